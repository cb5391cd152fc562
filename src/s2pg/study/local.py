"""Trains the cells of a study on this machine, each in a process of its own."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, NamedTuple

from s2pg.study.cells import DONE, FAILED, STOPPED, Outcome, look
from s2pg.study.plan import Cell
from s2pg.study.share import Share
from s2pg.study.worker import CODES, MEMORY, to_json

LOGS = "logs"  # what the processes print, in the folder of a study
POLL_S = 0.1
WORKER = (sys.executable, "-m", "s2pg.study.worker")
STATES = {code: state for state, code in CODES.items()}

# Told, again and again, which cells are at work and how others ended.
Watch = Callable[[Collection[str], Mapping[str, Outcome]], None]


class Stop:
    """Counts what asks a driver to stop, Ctrl-C or SIGTERM: once, at the next checkpoints; twice, at once."""

    def __init__(self) -> None:
        self.asked = 0

    @contextlib.contextmanager
    def listening(self) -> Iterator[Stop]:
        """Listens for as long as it lasts."""

        def ask(number: int, frame: FrameType | None) -> None:
            self.asked += 1

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Job(NamedTuple):
    cell: Cell
    slot: int
    alone: bool
    process: subprocess.Popen[bytes]
    log: IO[bytes]


def run(
    cells: Sequence[Cell], folder: Path, share: Share, retries: int, stop: Stop, watch: Watch
) -> dict[str, Outcome]:
    """Trains all cells and tells how they ended; those that were not begun are not in it."""
    waiting, running = deque(cells), dict[str, _Job]()
    attempts, outcomes, signalled = Counter[str](), dict[str, Outcome](), 0
    starved: set[str] = set()  # had no memory beside others: they wait until they are alone
    try:
        while running or (waiting and not stop.asked):
            while waiting and not stop.asked:
                cell, alone = waiting[0], waiting[0].name in starved
                if len(running) >= share.jobs or (alone and running) or any(job.alone for job in running.values()):
                    break
                waiting.popleft()
                attempts[cell.name] += 1
                slot = min(set(range(share.jobs)) - {job.slot for job in running.values()})
                running[cell.name] = _begin(cell, folder, share, slot, alone, attempts[cell.name])
            for job in running.values() if stop.asked > signalled else ():
                # Once, and it stops at its next checkpoint; a run that is killed loses no more than since the last one.
                job.process.send_signal(signal.SIGINT if stop.asked == 1 else signal.SIGKILL)
            signalled = stop.asked
            for name, job in list(running.items()):
                if job.process.poll() is None:
                    continue
                _end(running.pop(name))
                outcome, again = _judge(job, folder, bool(stop.asked))
                if again and attempts[name] <= retries:
                    starved |= {name} if outcome.state == MEMORY else set()
                    # It goes on first, but one that has to be alone lets the others finish.
                    (waiting.append if name in starved else waiting.appendleft)(job.cell)
                else:
                    outcomes[name] = outcome
            watch(running.keys(), outcomes)
            time.sleep(POLL_S)
    finally:
        for job in running.values():
            job.process.kill()
            _end(job)
    return outcomes


def _begin(cell: Cell, folder: Path, share: Share, slot: int, alone: bool, attempt: int) -> _Job:
    log = (folder / LOGS / f"{cell.name}.log").open("ab", buffering=0)
    log.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')}, attempt {attempt}\n".encode())
    process = subprocess.Popen(
        WORKER, stdin=subprocess.PIPE, stdout=log, stderr=log,
        env=share.environment(slot, alone),
        start_new_session=True,  # Ctrl-C is for the driver, which tells them in its turn
    )  # fmt: skip
    assert process.stdin
    with contextlib.suppress(BrokenPipeError):  # it ended already
        process.stdin.write(to_json(cell.request).encode() + b"\n")
        process.stdin.flush()  # and stays open: its end tells the process that its driver is gone
    return _Job(cell, slot, alone, process, log)


def _end(job: _Job) -> None:
    job.process.wait()
    with contextlib.suppress(BrokenPipeError):
        job.process.communicate()
    job.log.close()


def _judge(job: _Job, folder: Path, stopping: bool) -> tuple[Outcome, bool]:
    """How a process ended, and whether to try again: killed or out of memory, but nothing that would be so again."""
    code = job.process.returncode
    if stopping and look(job.cell).state != DONE:
        return Outcome(STOPPED), False
    if code < 0:
        return Outcome(FAILED, f"killed by {signal.Signals(-code).name}"), True
    state = STATES.get(code, FAILED)
    why = "" if state == DONE else _last_line(folder / LOGS / f"{job.cell.name}.log")
    return Outcome(state, why.removeprefix(f"{state}: ")), state == MEMORY


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
