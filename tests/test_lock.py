"""One run, one writer: who may write to a folder, and what becomes of a lock that a dead process left."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import s2pg
from s2pg.errors import UserError
from s2pg.io import lock
from s2pg.io.folder import read_object
from s2pg.io.lock import LockedError, locked
from s2pg.runs import training

SMALL = ["--hyper", "lanes=4", "steps=8", "size=4", "width=4", "epochs=1", "minibatches=2", "--episodes", "4"]
TRAIN = [
    "train", "ppo", "--task", "recall", "--set", "k=4", *SMALL, "--steps", "1568", "--seeds", "0", "1", "--resume",
]  # fmt: skip
ROWS = 98  # 49 borders of 2 seeds


def begin(*args):
    return subprocess.Popen(
        [sys.executable, "-m", "s2pg", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def rows(out):
    file = out / training.METRICS
    return file.read_bytes().count(b"\n") if file.exists() else 0


def wait_for(condition, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()


def left(folder, **changes):
    """A lock file as a process of this machine would have written it, or one that differs."""
    with locked(folder, print):
        content = json.loads((folder / lock.NAME).read_text())
    (folder / lock.NAME).write_text(json.dumps(content | {"token": "other"} | changes))


def test_of_two_processes_that_resume_one_run_the_second_is_refused(tmp_path):
    out = tmp_path / "run"
    first = begin(*TRAIN, "--out", str(out))
    wait_for(lambda: rows(out) > 4, first)
    first.send_signal(signal.SIGSTOP)  # so that it is surely at work when the second one looks
    second = begin(*TRAIN, "--out", str(out))
    told = second.communicate(timeout=120)[1].splitlines()
    assert second.returncode == 2
    assert len(told) == 1 and f"is being written by process {first.pid} on " in told[0], told
    assert s2pg.Run(out).metrics and s2pg.load(out)  # readers are not held up
    first.send_signal(signal.SIGCONT)
    assert first.communicate(timeout=120) and first.returncode == 0
    assert rows(out) == ROWS and not (out / lock.NAME).exists()


def test_a_killed_process_leaves_a_lock_that_the_next_one_takes_over_and_says_so(tmp_path):
    out = tmp_path / "run"
    first = begin(*TRAIN, "--out", str(out))
    wait_for(lambda: rows(out) > 4, first)
    first.kill()  # and not waited for: a process that has ended but is still listed is gone too
    while lock._born(first.pid) != "gone":
        time.sleep(0.01)
    second = begin(*TRAIN, "--out", str(out))
    told = second.communicate(timeout=120)[1]
    assert second.returncode == 0
    assert f"took over from process {first.pid} on " in told.replace("\n", " ") and "is gone" in told
    assert rows(out) == ROWS
    first.communicate()


def test_the_lock_is_free_again_afterwards_and_no_second_one_is_had_meanwhile(tmp_path):
    with locked(tmp_path, print) as held:
        held.check()
        with pytest.raises(LockedError, match=f"being written by process {os.getpid()} on "), locked(tmp_path, print):
            pass
        held.check()
    with locked(tmp_path, print):
        pass
    assert not list(tmp_path.iterdir())


def test_one_that_is_patient_gets_it_when_it_is_free(tmp_path):
    entered = threading.Event()

    def hold():
        with locked(tmp_path, print):
            entered.set()
            time.sleep(0.3)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait()
    with locked(tmp_path, print, patience=30.0):
        thread.join()
    assert not (tmp_path / lock.NAME).exists()


def test_another_machine_is_judged_by_its_last_sign_of_life(tmp_path):
    left(tmp_path, machine="elsewhere", host="far", pid=1)
    with pytest.raises(LockedError, match="process 1 on far "), locked(tmp_path, print):
        pass
    then = time.time() - lock.STALE_S - 5.0
    os.utime(tmp_path / lock.NAME, (then, then))
    lines = []
    with locked(tmp_path, lines.append):
        pass
    assert len(lines) == 1 and "took over from process 1 on far, which has given no sign of life for 6" in lines[0]


def test_a_process_that_has_the_id_of_a_dead_one_is_not_taken_for_it(tmp_path):
    left(tmp_path, born="1")  # this process has the id, but began later
    lines = []
    with locked(tmp_path, lines.append):
        pass
    assert lines == [f"{tmp_path}: took over from process {os.getpid()} on {lock.socket.gethostname()}, which is gone"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 3}'])
def test_a_torn_lock_is_judged_by_its_age(tmp_path, content):
    (tmp_path / lock.NAME).write_text(content)
    with pytest.raises(LockedError, match="is being written by another process"), locked(tmp_path, print):
        pass
    os.utime(tmp_path / lock.NAME, (0, 0))
    with locked(tmp_path, print):
        pass


def test_a_holder_shows_that_it_lives(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "BEAT_S", 0.02)
    with locked(tmp_path, print):
        os.utime(tmp_path / lock.NAME, (0, 0))
        deadline = time.monotonic() + 30
        while (tmp_path / lock.NAME).stat().st_mtime < 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert lock._age(tmp_path / lock.NAME) < 10


def test_a_process_that_stood_still_too_long_writes_nothing_more(tmp_path):
    out, seen = tmp_path / "run", []

    def robbed(border):
        seen.append(border)
        if border.step == 64:
            left_by = json.loads((out / lock.NAME).read_text()) | {"token": "another"}
            (out / lock.NAME).write_text(json.dumps(left_by))

    with pytest.raises(UserError, match="was taken over by another process while this one stood still"):
        s2pg.train(
            "ppo", s2pg.make("recall", k=4), steps=32 * 6, episodes=4, out=out, report=robbed, say=print,
            hyper={"lanes": 4, "steps": 8, "size": 4, "width": 4, "epochs": 1, "minibatches": 2},
        )  # fmt: skip
    assert rows(out) == 2 and seen[-1].step == 64
    assert (out / lock.NAME).exists()  # which is the other's


def test_two_that_find_a_dead_lock_do_not_both_take_it(tmp_path):
    """The second one, having judged the same lock, must not remove the first one's."""
    left(tmp_path, born="1")
    dead = lock.read(tmp_path / lock.NAME)
    with locked(tmp_path, lambda line: None) as held:
        assert not lock._clear(tmp_path / lock.NAME, dead)
        held.check()


def test_a_request_that_is_refused_leaves_no_folder(tmp_path):
    with pytest.raises(UserError, match="unknown hyper-parameter"):
        s2pg.train("ppo", "recall", hyper={"lanez": 3}, out=tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())


def test_a_run_that_diverges_says_so_in_its_folder_until_it_goes_on(tmp_path, monkeypatch):
    given = {
        "steps": 32 * 4, "episodes": 4, "out": tmp_path,
        "hyper": {"lanes": 4, "steps": 8, "size": 4, "width": 4, "epochs": 1, "minibatches": 2},
    }  # fmt: skip
    real = training._check_finite

    def check(measured, seeds, before):
        if before == 2:
            raise s2pg.DivergenceError("policy_loss is not finite")
        real(measured, seeds, before)

    monkeypatch.setattr(training, "_check_finite", check)
    with pytest.raises(s2pg.DivergenceError):
        s2pg.train("ppo", s2pg.make("recall", k=4), **given)
    found = read_object(tmp_path / training.DIVERGED)
    assert found.pop("sha256") and found == {"schema": 1, "why": "policy_loss is not finite", "step": 64}
    monkeypatch.setattr(training, "_check_finite", real)
    s2pg.train("ppo", s2pg.make("recall", k=4), resume=True, **given)
    assert not (tmp_path / training.DIVERGED).exists() and rows(tmp_path) == 4
