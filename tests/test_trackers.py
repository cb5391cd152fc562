"""Metrics reach TensorBoard, Weights & Biases and trackers of one's own; none of them can stop a run."""

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
        self.rows, self.closed = [], False
        Kept.made = self

    def write(self, rows):
        if any(row["step"] == 99 for row in rows):
            raise ConnectionError("gone")
        self.rows += rows

    def close(self):
        self.closed = True

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


def test_a_tracker_that_fails_is_told_once_and_left(tmp_path):
    class Broken(Kept):
        def __init__(self, folder, resumed):
            raise OSError("no space")

    said = []
    with pytest.raises(ZeroDivisionError), tracking([Broken, Kept], tmp_path, None, said.append) as write:
        write(ROWS)
        kept = Kept.made
        write([{"step": 99}])
        write(ROWS)
        raise ZeroDivisionError
    assert kept.rows == ROWS
    assert [line.split(":")[0] for line in said] == ["Broken failed (OSError", "Kept failed (ConnectionError"]


def test_trackers_are_closed_whatever_happens(tmp_path):
    with pytest.raises(ZeroDivisionError), tracking([Kept], tmp_path, None, print):
        raise ZeroDivisionError
    assert Kept.made.closed


TINY = {"size": 4, "width": 4, "epochs": 1, "minibatches": 2, "lanes": 4, "steps": 8}


def test_a_run_shows_its_rows_to_a_tracker_of_ones_own(registered, tmp_path):
    run = s2pg.train(
        "ppo", s2pg.make("recall", k=3), hyper=TINY, steps=64, borders=2, episodes=2, out=tmp_path / "run", log=["kept"]
    )
    assert [row["eval_return"] for row in Kept.made.rows] == [row["eval_return"] for row in run.metrics]
    assert Kept.made.closed
    assert not (run.path / "events").exists()  # named trackers take the place of TensorBoard


def test_what_is_missing_is_refused_before_anything_is_written(registered, tmp_path, monkeypatch):
    monkeypatch.setattr(Kept, "refused", True, raising=False)
    with pytest.raises(UserError, match="no account"):
        s2pg.train("ppo", s2pg.make("recall", k=3), hyper=TINY, steps=64, out=tmp_path / "run", log=["kept"])
    assert not (tmp_path / "run").exists()


class FakeRun:
    def __init__(self, **given):
        self.given, self.logged, self.finished = given, [], False

    def define_metric(self, name, step_metric):
        self.axis = name, step_metric

    def log(self, values):
        self.logged.append(values)

    def finish(self):
        self.finished = True


@pytest.fixture
def wandb(monkeypatch):
    """A stand-in that keeps what it is given; the package itself is not among what tests need."""
    fake = types.ModuleType("wandb")
    fake.Settings = dict  # pyright: ignore
    fake.login = lambda prompt: False  # pyright: ignore
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
    assert first.given["id"] == second.given["id"] and len(first.given["id"]) == 8


def test_wandb_without_an_account_is_refused_unless_it_is_offline(wandb, monkeypatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    with pytest.raises(UserError, match="WANDB_MODE=offline"):
        find_trackers(["wandb"])
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert find_trackers(["wandb"]) == [WeightsAndBiases]
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"pip install 's2pg\[wandb\]'"):
        find_trackers(["wandb"])
