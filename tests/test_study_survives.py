"""A study survives what happens to its processes: cells and drivers are killed, and it ends as if nothing had been."""

import importlib.util
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from s2pg.cli import main
from s2pg.io import lock
from s2pg.io.checkpoint import Checkpoints
from s2pg.runs import training
from s2pg.study.plan import read

GRID = """
schema = 1
seeds = 2
[grid]
task = {tasks}
algorithm = "ppo"
memory = {labels}
steps = 1568
episodes = 4
critic = "critic"
hyper = {{ lanes = 4, steps = 8, size = 4, width = 4, epochs = 1, minibatches = 2 }}
[[where]]
match = {{ task = "recall" }}
set = {{ options.k = 4 }}
[run]
gpu = 0
retries = 9
"""
SMALL = GRID.format(tasks=["recall"], labels=["none", "s2pg"])
WHOLE = GRID.format(tasks=["recall", "repeat-previous"], labels=["none", "s2pg", "bptt-4"])
BORDERS = 49
MARK = "S2PG_TEST_MARK"  # in the environment of every process of a test


class Driven:
    """A study in a folder, whose driver and cells can be killed."""

    def __init__(self, folder, text, on="local"):
        self.folder, self.file, self.mark = folder / "out", folder / "a.toml", uuid.uuid4().hex
        folder.mkdir()
        self.file.write_text(text)
        self.on, self.driver, self.killed = on, None, set()

    @property
    def cells(self):
        return read(self.file, self.folder).cells

    def begin(self):
        command = [
            sys.executable,
            "-m",
            "s2pg",
            "study",
            self.file,
            "--out",
            self.folder,
            "--on",
            self.on,
            "--jobs",
            "2",
        ]
        with (self.folder.parent / "driver.log").open("ab") as log:
            self.driver = subprocess.Popen(
                list(map(str, command)), stdout=log, stderr=log, env=os.environ | {MARK: self.mark}
            )

    def told(self):
        return (self.folder.parent / "driver.log").read_text()

    def end(self, seconds=900):
        assert self.driver.wait(timeout=seconds) == 0, self.told()

    def rows(self, name):
        file = self.folder / "runs" / name / training.METRICS
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def at_work(self):
        """Cells and the processes that train them."""
        holders = {cell.name: lock.read(cell.request.folder / lock.NAME) for cell in self.cells}
        return {name: found.pid for name, found in holders.items() if found and found.pid and lock._lives(found)}

    def wait_for(self, rows):
        """Waits until a cell at work that was not killed yet has so many rows; its name and its process."""
        deadline = time.monotonic() + 600
        while True:
            for name, pid in self.at_work().items():
                if name not in self.killed and self.rows(name) >= rows:
                    return name, pid
            assert self.driver.poll() is None and time.monotonic() < deadline, self.told()
            time.sleep(0.005)

    def kill_a_cell(self, rows):
        """Kills a process that trains, when it has come so far."""
        name, pid = self.wait_for(rows)
        os.kill(pid, signal.SIGKILL)
        self.killed.add(name)
        print(f"killed {name} after row {self.rows(name)}")

    def kill_the_driver(self, rows):
        self.wait_for(rows)
        found = [f"{name} after row {self.rows(name)}" for name in self.at_work()]
        self.driver.kill()
        self.driver.wait()
        print(f"killed the driver, at work: {', '.join(found)}")
        assert not self.left(), "processes outlive their driver"

    def left(self, seconds=180):
        """Processes of this study that are still there after a while: Ray's own take up to a minute or two to leave."""
        deadline = time.monotonic() + seconds
        while (found := self._processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def _processes(self):
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes():
                    found.append((entry.name, (entry / "cmdline").read_bytes()))
            except OSError:  # gone meanwhile, or not ours
                continue
        return found

    def results(self):
        """Bytes of the policies, and metrics but for time."""
        found = {}
        for cell in self.cells:
            out = cell.request.folder
            lines = (out / training.METRICS).read_text().splitlines()
            rows = [{k: v for k, v in json.loads(line).items() if k not in ("wall_s", "steps_per_s")} for line in lines]
            assert len(rows) == 2 * BORDERS
            found[cell.name] = rows, [training.policy_file(out, seed).read_bytes() for seed in (0, 1)]
        return found


def undisturbed(folder, text):
    study = Driven(folder, text)
    study.begin()
    study.end()
    assert not study.left()
    return study


def assert_ended_alike(study, whole):
    assert study.results() == whole.results()
    assert not study.left()
    # Again: nothing is done, and nothing changes.
    before = {path: path.read_bytes() for path in study.folder.rglob("*") if path.is_file()}
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    study.begin()
    study.end(60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    print(f"once more: {seconds:.1f} CPU seconds")
    assert seconds < 10
    assert {path: path.read_bytes() for path in study.folder.rglob("*") if path.is_file()} == before


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return undisturbed(tmp_path_factory.mktemp("undisturbed") / "a", SMALL)


def test_a_study_that_is_killed_and_stopped_ends_as_if_nothing_had_been(small, tmp_path):
    study = Driven(tmp_path / "a", SMALL)
    study.begin()
    study.kill_a_cell(20)
    study.kill_the_driver(10)
    study.begin()
    study.wait_for(20)
    study.driver.send_signal(signal.SIGINT)
    assert study.driver.wait(timeout=120) == 130, study.told()
    assert "stopped; the same command goes on" in study.told() and not study.left(0)
    for cell in study.cells:  # at checkpoints: no row is without one
        steps = Checkpoints(cell.request.folder / training.CHECKPOINTS).steps()
        assert not (cell.request.folder / lock.NAME).exists()
        assert study.rows(cell.name) == 2 * max(steps, default=0) // 32
    assert min(study.rows(cell.name) for cell in study.cells) < 2 * BORDERS
    study.begin()
    study.end()
    assert_ended_alike(study, small)


def test_a_second_driver_is_refused(small, capsys):
    (small.folder / "runs" / "recall-ppo-none" / "policies" / "seed-0.npz").rename(small.folder / "away")
    try:
        with lock.locked(small.folder, print):
            assert main(["study", str(small.file), "--out", str(small.folder)]) == 2
    finally:
        (small.folder / "away").rename(small.folder / "runs" / "recall-ppo-none" / "policies" / "seed-0.npz")
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1 and f"is being written by process {os.getpid()} on " in told[0]


@pytest.mark.slow
@pytest.mark.parametrize("on", ["local", "ray"])
def test_five_cells_and_two_drivers_are_killed_at_random(on, tmp_path):
    if on == "ray" and importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    whole = undisturbed(tmp_path / "whole", WHOLE)
    draw, study = random.Random(2), Driven(tmp_path / "a", WHOLE, on)
    study.begin()
    for event in ("cell", "cell", "driver", "cell", "driver", "cell", "cell"):
        if event == "cell":
            study.kill_a_cell(draw.randrange(2 * BORDERS - 10))
        else:
            study.kill_the_driver(draw.randrange(2 * BORDERS - 10))
            study.begin()
    study.end()
    assert_ended_alike(study, whole)
