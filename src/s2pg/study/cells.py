"""How far the cells of a study are. Their run folders are the only truth: nothing else is kept or asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from s2pg.errors import UserError
from s2pg.io.folder import read_meta, stored_steps, why_diverged
from s2pg.io.lock import is_held
from s2pg.io.sinks import Row
from s2pg.runs import training
from s2pg.runs.experiment import read_config
from s2pg.study.plan import Cell

WAITING, STOPPED, RUNNING, DONE, DIVERGED, FAILED = "waiting", "stopped", "running", "done", "diverged", "failed"
ENDED = (DONE, DIVERGED)  # nothing is left to do
TAIL = 2**16  # bytes of metrics in which the last rows are


class Outcome(NamedTuple):
    """How a cell ended, and why."""

    state: str
    why: str = ""


class Progress(NamedTuple):
    """Where a cell stands."""

    state: str
    step: int = 0
    steps: int = 0  # at the end; 0: not known yet
    value: float | None = None  # the last evaluation, mean over seeds
    speed: float | None = None  # steps a second, all seeds
    why: str = ""


def look(cell: Cell) -> Progress:
    """Where a cell stands, by its run folder."""
    out, asked = cell.request.folder, cell.request.steps or 0
    if not (out / training.CONFIG).exists():
        return Progress(RUNNING if is_held(out) else WAITING, steps=asked)
    try:
        steps = asked or read_config(out)[0].steps
    except UserError as error:
        return Progress(FAILED, steps=asked, why=str(error))
    step = max(stored_steps(out / training.CHECKPOINTS), default=0)
    rows = [row for row in last_rows(out / training.METRICS) if row.get("eval_return") is not None]
    value = float(np.mean([row["eval_return"] for row in rows])) if rows else None
    found = Progress(STOPPED, min(step, steps), steps, value, rows[0].get("steps_per_s") if rows else None)
    if (out / training.DIVERGED).exists():
        return found._replace(state=DIVERGED, why=why_diverged(out))
    if is_held(out):
        return found._replace(state=RUNNING)
    # A run that was killed between its last checkpoint and its policies has older ones, and has to mend them.
    fresh = all((read_meta(training.policy_file(out, seed)) or {}).get("step") == step for seed in cell.request.seeds)
    return found._replace(state=DONE) if step >= steps and fresh else found


def last_rows(file: Path) -> list[Row]:
    """The rows of the last border, one for each seed; a last line that is torn is left out."""
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, 2)
            opened.seek(max(0, size - TAIL))
            lines = opened.read().split(b"\n")[:-1]
    except OSError:
        return []
    rows: list[Row] = []
    for line in reversed(lines):
        try:
            row = json.loads(line)
            if not isinstance(row, dict) or (rows and row["step"] != rows[0]["step"]):
                break
        except (ValueError, KeyError):  # the first line of the tail may be half of one
            break
        rows.append(row)
    return rows[::-1]
