"""Metrics reach TensorBoard, Weights & Biases and trackers of one's own; none of them can stop a run."""

import importlib
import shutil
import socket
import sys
import types

import numpy as np
import pytest

import s2pg
from s2pg.errors import UserError
from s2pg.io import trackers
from s2pg.io.sinks import write_object
from s2pg.io.trackers import TRACKERS, TensorBoard, Tracker, WeightsAndBiases, find_trackers, register_tracker, tracking

ROWS = [
    {"step": 8, "seed": 2, "loss": np.float32(0.5), "bad": float("nan")},
    {"step": 8, "seed": 3, "loss": 1},
]


class Kept(Tracker):
    """Keeps all rows, and fails when it is told to."""

    def __init__(self, folder, resumed):
        self.rows, self.resumed, self.closed = [], resumed, 0
        Kept.made = self

    def __len__(self):
        return len(self.rows)  # 0 at first: it is a tracker all the same

    def write(self, rows):
        if any(row["step"] == 99 for row in rows):
            raise ConnectionError("gone")
        self.rows += rows

    def close(self):
        self.closed += 1

    @classmethod
    def check(cls):
        if getattr(cls, "refused", False):
            raise UserError("no account")


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(trackers, "TRACKERS", dict(TRACKERS))
    register_tracker("kept", Kept)


def test_tensorboard_gets_one_curve_per_metric_and_seed(tmp_path):
    pytest.importorskip("tensorboardX")
    board = TensorBoard(tmp_path, resumed=4)
    board.write(ROWS)
    board.close()
    (events,) = (tmp_path / "events").iterdir()
    data = events.read_bytes()
    assert b"loss/seed-2" in data and b"loss/seed-3" in data and b"bad" not in data


def test_without_tensorboardx_there_is_one_line_and_no_error(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    trackers._tensorboard_or_line.cache_clear()
    try:
        assert find_trackers(None) == find_trackers(None) == []
    finally:
        trackers._tensorboard_or_line.cache_clear()
    assert len(capsys.readouterr().err.splitlines()) == 1
    with pytest.raises(UserError, match=r"needs the package tensorboardX: pip install 's2pg\[logging\]'"):
        find_trackers(["tensorboard"])  # asked for by name, it has to be there


def test_names_are_checked_and_no_names_are_no_trackers(registered):
    assert find_trackers(()) == []
    assert find_trackers(["kept", "kept"]) == [Kept]
    with pytest.raises(UserError, match="unknown tracker 'wandbb'; did you mean wandb"):
        find_trackers(["wandbb"])
    with pytest.raises(UserError, match="must be a subclass"):
        register_tracker("other", dict)
    with pytest.raises(UserError, match="there is a tracker 'wandb' already"):
        register_tracker("wandb", Kept)
    register_tracker("kept", Kept)  # again, which does no harm
    namesake = type(WeightsAndBiases.__name__, (Kept,), {"__qualname__": WeightsAndBiases.__qualname__})
    with pytest.raises(UserError, match="there is a tracker 'wandb' already"):
        register_tracker("wandb", namesake)
    unfinished = type("Unfinished", (Tracker,), {"write": Kept.write, "check": Kept.check})
    with pytest.raises(UserError, match=r"^tracker 'other' is unfinished: it has no __init__, close$"):
        register_tracker("other", unfinished)


def test_a_folder_is_no_package(tmp_path, monkeypatch):
    (tmp_path / "wandb").mkdir()  # where wandb itself would put runs
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    importlib.invalidate_caches()
    with pytest.raises(UserError, match="needs the package wandb"):
        find_trackers(["wandb"])


def test_a_tracker_that_fails_is_told_once_and_left(tmp_path):
    class Broken(Kept):
        def __init__(self, folder, resumed):
            raise OSError("no\n  space")

    said = []
    with pytest.raises(ZeroDivisionError), tracking([Broken, Kept], tmp_path, None, said.append) as write:
        write(ROWS)
        kept = Kept.made
        write([{"step": 99}])
        write(ROWS)
        raise ZeroDivisionError
    assert kept.rows == ROWS and kept.closed == 1
    assert [line.split(":")[0] for line in said] == ["Broken failed (OSError", "Kept failed (ConnectionError"]
    assert "no space" in said[0]


def test_one_that_cannot_be_closed_either_is_told_once(tmp_path):
    class Stuck(Kept):
        def close(self):
            super().close()
            raise OSError("still gone")

    said = []
    with tracking([Stuck], tmp_path, None, said.append) as write:
        write([{"step": 99}])
    assert Kept.made.closed == 1 and len(said) == 1


def test_trackers_are_closed_whatever_happens(tmp_path):
    with pytest.raises(ZeroDivisionError), tracking([Kept], tmp_path, None, print):
        raise ZeroDivisionError
    assert Kept.made.closed == 1


QUIET = {
    "console": "off", "silent": True, "disable_git": True, "disable_code": True, "x_disable_meta": True,
    "x_disable_stats": True, "x_save_requirements": False, "host": "",
}  # fmt: skip
TINY = {"size": 4, "width": 4, "epochs": 1, "minibatches": 2, "lanes": 4, "steps": 8}


def test_a_run_shows_its_rows_to_a_tracker_of_ones_own(registered, tmp_path):
    run = s2pg.train(
        "ppo", s2pg.make("recall", k=3), hyper=TINY, steps=64, borders=2, episodes=2, out=tmp_path / "run", log=["kept"]
    )
    assert [row["eval_return"] for row in Kept.made.rows] == [row["eval_return"] for row in run.metrics]
    assert Kept.made.closed == 1
    assert not (run.path / "events").exists()  # named trackers take the place of TensorBoard


def test_a_tracker_knows_what_was_logged_before(registered, tmp_path):
    def train(steps):
        given = {"hyper": TINY, "borders": 2, "episodes": 2, "out": tmp_path / "run", "resume": True, "log": "kept"}
        s2pg.train("ppo", s2pg.make("recall", k=3), steps=steps, say=lambda line: None, **given)
        return Kept.made.resumed, Kept.made.rows[0]["step"]

    assert train(64) == (None, 32)  # a new run, though it would have been resumed
    assert train(96) == (64, 96)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert train(96) == (0, 32)  # it begins anew, and all its rows come again


def test_what_is_missing_is_refused_before_anything_is_written(registered, tmp_path, monkeypatch):
    monkeypatch.setattr(Kept, "refused", True, raising=False)
    with pytest.raises(UserError, match="no account"):
        s2pg.train("ppo", s2pg.make("recall", k=3), hyper=TINY, steps=64, out=tmp_path / "run", log=["kept"])
    assert not (tmp_path / "run").exists()


class AuthenticationError(Exception):
    """As wandb's own: no `UserError`."""


class FakeRun:
    def __init__(self, **given):
        self.given, self.logged, self.finished = given, [], False
        self.settings = types.SimpleNamespace(mode=given.get("mode"))

    def define_metric(self, name, step_metric):
        self.axis = name, step_metric

    def log(self, values):
        self.logged.append(values)

    def finish(self):
        self.finished = True


@pytest.fixture
def wandb(monkeypatch):
    """A stand-in that keeps what it is given; the package itself is not among what tests need."""
    monkeypatch.delenv("WANDB_MODE", raising=False)
    fake = types.ModuleType("wandb")
    fake.Settings = dict  # pyright: ignore
    fake.login = lambda prompt, verify: False  # pyright: ignore
    fake.errors = types.SimpleNamespace(AuthenticationError=AuthenticationError)  # pyright: ignore
    fake.run = None  # pyright: ignore
    fake.runs = []  # pyright: ignore
    fake.init = lambda **given: fake.runs.append(FakeRun(**given)) or fake.runs[-1]  # pyright: ignore
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def test_wandb_gets_a_row_a_border_and_a_resumed_run_keeps_its_id(wandb, tmp_path):
    write_object(tmp_path / "config.json", {"task": "recall"})
    for resumed in (None, 8):
        tracker = WeightsAndBiases(tmp_path, resumed)
        tracker.write(ROWS)
        tracker.close()
    first, second = wandb.runs
    assert first.logged == [{"step": 8, "loss/seed-2": 0.5, "loss/seed-3": 1}]
    assert first.axis == ("*", "step") and first.finished
    assert first.given["config"]["task"] == "recall"
    assert first.given["settings"] == second.given["settings"] == QUIET
    assert first.given["id"] == second.given["id"] and len(first.given["id"]) == 8


def test_wandb_without_an_account_is_refused_unless_it_is_offline(wandb, monkeypatch):
    with pytest.raises(UserError, match="WANDB_MODE=offline"):
        find_trackers(["wandb"])
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert find_trackers(["wandb"]) == [WeightsAndBiases]
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"pip install 's2pg\[wandb\]'"):
        find_trackers(["wandb"])


@pytest.mark.parametrize("error", [AuthenticationError, ValueError])
def test_a_key_that_cannot_be_one_is_told_in_a_line(error, wandb):
    def login(prompt, verify):
        raise error("API key must have 40+ characters,\nhas 3.")

    wandb.login = login
    with pytest.raises(UserError, match=r"^--log wandb cannot log in: API key must have 40\+ characters, has 3\.$"):
        find_trackers(["wandb"])


def test_the_server_is_not_asked_about_the_key(wandb):
    def login(prompt, verify):
        if verify:
            raise AuthenticationError("cannot reach the server")
        return not prompt

    wandb.login = login
    assert find_trackers(["wandb"]) == [WeightsAndBiases]


def test_nobody_logs_in_where_a_run_is_open(wandb, tmp_path):
    wandb.run = FakeRun(mode="offline")
    assert find_trackers(["wandb"]) == [WeightsAndBiases]
    write_object(tmp_path / "config.json", {})
    WeightsAndBiases(tmp_path, None)
    assert wandb.runs[-1].given["mode"] == "offline"


def test_the_real_wandb_takes_a_run_offline_and_keeps_to_what_is_promised(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(socket, "gethostname", lambda: "our-machine")
    write_object(tmp_path / "config.json", {"task": "recall"})
    said = []
    with tracking(find_trackers(["wandb"]), tmp_path, None, said.append) as write:
        write(ROWS)
    wandb.teardown()
    assert not said
    (log,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    data = log.read_bytes()
    assert b"loss/seed-2" in data and b"recall" in data
    assert not any(secret in data for secret in (b"equinox", b"test_trackers", b"our-machine"))
    assert not [path for path in tmp_path.rglob("*") if path.name in ("requirements.txt", "wandb-metadata.json")]
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_API_KEY", "short")
    with pytest.raises(UserError, match=r"^--log wandb cannot log in: .*40"):
        find_trackers(["wandb"])
    wandb.teardown()
