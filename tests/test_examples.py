"""The example package: an algorithm, a kernel and a task from outside, and a killed run that goes on bit for bit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import s2pg
from s2pg.io import checkpoint

FOLDER = Path(__file__).parent.parent / "examples" / "extras"
TIMES = ("wall_s", "steps_per_s")


@pytest.fixture(scope="module")
def extras():
    sys.path.insert(0, str(FOLDER))
    import extras

    yield extras
    sys.path.remove(str(FOLDER))


def start(out, *more):
    """The example's own command, in a process of its own."""
    source = Path(s2pg.__file__).parent.parent
    env = os.environ | {"PYTHONPATH": f"{FOLDER}{os.pathsep}{source}"}
    command = [sys.executable, "-m", "extras", "--out", str(out), "--steps", "3072", "--borders", "3", *more]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def rows(out):
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in TIMES} for row in lines]


def test_a_wrapper_with_state_and_shared_data_is_killed_and_goes_on_bit_for_bit(tmp_path):
    whole = start(tmp_path / "whole")
    assert "judged 3072 observations" in whole.communicate(timeout=300)[0] and whole.returncode == 0
    killed = start(tmp_path / "killed")
    while not list((tmp_path / "killed" / "checkpoints").glob("step-*.npz")):
        assert killed.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    killed.stdout.close()
    assert len(rows(tmp_path / "killed")) < 6, "it was killed too late to prove anything"
    resumed = start(tmp_path / "killed", "--resume")
    resumed.communicate(timeout=300)
    assert resumed.returncode == 0
    assert rows(tmp_path / "killed") == rows(tmp_path / "whole")
    assert {row["seed"] for row in rows(tmp_path / "whole")} == {0, 1}


def test_its_own_state_is_saved_and_shared_data_is_not(extras, tmp_path):
    given = np.zeros((50_000, 2), np.float32)
    asked = {"critic": "critic", "steps": 256, "borders": 1, "hyper": {"lanes": 8, "steps": 32, "size": 4, "width": 4}}
    run = s2pg.train("lookalike", s2pg.make("recall", k=4), out=tmp_path / "run", shared=given, episodes=2, **asked)
    file = next((run.path / "checkpoints").glob("step-*.npz"))
    arrays, meta = checkpoint.load_arrays(file)
    assert {"train/learner/seen", "train/learner/judge/layers/0/weight"} <= arrays.keys(), sorted(arrays)[:40]
    assert meta["shared"] == checkpoint.fingerprint(given)
    assert file.stat().st_size < given.nbytes
    other = given.copy()
    other[0, 0] = 1.0
    with pytest.raises(s2pg.UserError, match="trained with other shared data"):
        again = asked | {"steps": 512}
        s2pg.train("lookalike", s2pg.make("recall", k=4), out=run.path, resume=True, shared=other, episodes=2, **again)


def test_the_judge_is_trained_on_data_that_all_seeds_share(extras):
    from extras.algorithm import judge_loss

    from s2pg.networks import MLP

    judge = MLP([2, 4, 1], key=jax.random.key(0), last_gain=0.0)  # which says 0 of everything
    given = np.ones((3, 2), np.float32)
    np.testing.assert_allclose(judge_loss(judge, given, given), 2 * np.log(2), rtol=1e-6)


def test_a_policy_of_a_task_from_a_function_does_not_look_at_what_was_hidden(extras, tmp_path):
    small = {"lanes": 2, "steps": 8, "size": 4, "width": 4, "epochs": 1, "minibatches": 1}
    task = s2pg.make("blind-pendulum", horizon=8)
    run = s2pg.train("ppo", task, memory="none", hyper=small, steps=16, borders=1, episodes=1, out=tmp_path / "run")
    policy = s2pg.load(run.path)
    assert policy.hide == (2,)
    np.testing.assert_array_equal(*(policy.session()(np.array([1.0, 0.0, speed])) for speed in (0.0, 5.0)))


def test_a_task_from_a_function_can_be_made_again(extras):
    task = s2pg.make("blind-pendulum", horizon=7)
    assert task.spec.horizon == 7
    from s2pg.envs.tasks import describe

    assert describe(task) == ("blind-pendulum", {"horizon": 7})
    with pytest.raises(s2pg.UserError, match="must be 1 or more"):
        s2pg.make("blind-pendulum", horizon=0)


def test_an_option_of_the_kernel_is_a_hyper_parameter_with_bounds(extras, tmp_path):
    asked = {"kernel": "leaky", "hyper": {"leak": 2.0}, "out": tmp_path / "run"}
    with pytest.raises(s2pg.UserError, match="'leak' must be above 0 and at most 1, not 2"):
        s2pg.train("ppo", s2pg.make("recall", k=4), **asked)
