"""What lies in a run folder is as it was written, or is named."""

import json
import shutil

import jax
import numpy as np
import pytest

import s2pg
from s2pg.errors import UserError
from s2pg.io import checkpoint, lock
from s2pg.io.folder import CONFIG, METRICS, newest_meta, policy_file, read_object, why_diverged
from s2pg.io.sinks import read_metrics, write_object
from s2pg.runs import training

ASKED = {
    "steps": 32 * 4, "episodes": 4, "seeds": (0, 3), "memory": "none", "borders": 4,
    "hyper": {"lanes": 4, "steps": 8, "width": 4, "epochs": 1, "minibatches": 2},
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture
def out(whole, tmp_path):
    return shutil.copytree(whole.path, tmp_path / "run")


def train(out, **more):
    return s2pg.train("ppo", s2pg.make("recall", k=4), out=out, **ASKED | more)


def change(file, old, new):
    data = file.read_bytes()
    assert old in data
    file.write_bytes(data.replace(old, new, 1))


def test_an_object_that_says_something_else_than_was_written_is_damaged(tmp_path):
    write_object(tmp_path / "a", {"x": 1.5, "y": [np.float32(2)]})
    assert read_object(tmp_path / "a")["y"] == [2.0]
    change(tmp_path / "a", b"1.5", b"1.6")
    with pytest.raises(UserError, match=r"a is damaged: its checksum is wrong"):
        read_object(tmp_path / "a")
    (tmp_path / "a").write_text('{"x": 1.6}')  # as earlier versions wrote it
    assert read_object(tmp_path / "a") == {"x": 1.6}
    for text, told in (("{", "no JSON"), ("[]", "no JSON object")):
        (tmp_path / "a").write_text(text)
        with pytest.raises(UserError, match=told):
            read_object(tmp_path / "a")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read_object(tmp_path)


def test_a_setting_that_changed_by_itself_is_refused(out):
    change(out / CONFIG, b'"k": 4', b'"k": 5')
    for use in (lambda: s2pg.Run(out), lambda: train(out, resume=True)):
        with pytest.raises(UserError, match=r"config\.json is damaged: its checksum is wrong"):
            use()


def test_a_digit_of_the_metrics_that_changed_is_noticed_by_readers_and_by_resume(out):
    row = json.loads((out / METRICS).read_text().splitlines()[0])
    change(out / METRICS, f'"wall_s": {row["wall_s"]}'.encode(), b'"wall_s": ' + b"9" * len(str(row["wall_s"])))
    for use in (lambda: s2pg.Run(out).metrics, lambda: train(out, resume=True)):
        with pytest.raises(UserError, match=r"metrics\.jsonl is damaged: its first \d+ bytes are not those"):
            use()


def test_rows_that_a_checkpoint_counts_must_be_there_for_readers_too(out):
    (out / METRICS).write_bytes((out / METRICS).read_bytes()[:-5])
    with pytest.raises(UserError, match="rows are missing"):
        read_metrics(out / METRICS)


def test_a_checkpoint_that_is_gone_is_said_and_made_again(whole, out):
    steps = checkpoint.Checkpoints(out / training.CHECKPOINTS)
    steps.path(128).unlink()
    said = []
    assert newest_meta(out)["chunks"] == 3
    train(out, resume=True, say=said.append)
    assert said == [f"{out} has lost its checkpoints after step 96: goes on from there"]
    assert policy_file(out, 3).read_bytes() == policy_file(whole.path, 3).read_bytes()
    for step in steps.steps():
        steps.path(step).unlink()
    train(out, resume=True, say=said.append)
    assert said[1:] == [f"{out} has lost its checkpoints: begins anew"]


def test_checkpoints_that_changed_places_are_refused(out):
    steps = checkpoint.Checkpoints(out / training.CHECKPOINTS)
    steps.path(128).write_bytes(steps.path(96).read_bytes())
    with pytest.raises(UserError, match=r"0128\.npz is that of step 96, by what is in it"):
        train(out, resume=True)


def test_the_policy_of_another_seed_is_refused(out):
    policy_file(out, 0).write_bytes(policy_file(out, 3).read_bytes())
    with pytest.raises(UserError, match=r"seed-0\.npz is the policy of seed 3, by what is in it"):
        s2pg.load(out, 0)
    assert s2pg.load(out, 3)


def test_a_policy_that_is_not_finite_is_refused(out, monkeypatch):
    real = checkpoint.load

    def load(*given):
        tree, meta = real(*given)
        return jax.tree.map(lambda leaf: leaf * np.nan, tree), meta

    monkeypatch.setattr(checkpoint, "load", load)
    with pytest.raises(UserError, match=r"seed-0\.npz holds numbers that are not finite"):
        s2pg.load(out, 0)


def test_a_policy_that_became_infinite_in_the_last_update_is_not_kept(whole, out, monkeypatch):
    monkeypatch.setattr(
        training, "_policies", lambda loop: {"kernel": {"bias": np.array([[1.0, 2.0], [np.inf, 0.0]], np.float32)}}
    )
    before = policy_file(out, 3).read_bytes()
    steps = checkpoint.Checkpoints(out / training.CHECKPOINTS)
    steps.path(128).unlink()
    monkeypatch.setattr(training, "_save_policies", lambda *given: None)
    with pytest.raises(s2pg.DivergenceError, match="kernel/bias is not finite at update 4 in seed 3"):
        train(out, resume=True)
    assert why_diverged(out) == "kernel/bias is not finite at update 4 in seed 3"
    assert steps.steps()[-1] == 96 and policy_file(out, 3).read_bytes() == before


@pytest.mark.parametrize("pid", ['"a"', "1e400", str(10**30), "-3", "[]"])
def test_a_lock_of_nonsense_is_one_of_nobody_known(tmp_path, pid):
    (tmp_path / lock.NAME).write_text(f'{{"token": "", "host": "", "machine": "", "pid": {pid}, "born": ""}}')
    assert lock.read(tmp_path / lock.NAME) == lock.UNKNOWN and lock.is_held(tmp_path)
