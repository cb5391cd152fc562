"""Refuses every wrong cell of a study, by name, before anything trains: nothing is compiled for it."""

from __future__ import annotations

import json
from typing import Any

from s2pg.envs.tasks import Task, make
from s2pg.errors import UserError
from s2pg.runs.experiment import Experiment
from s2pg.runs.start import prepare
from s2pg.study.plan import Cell, Study


def check(study: Study, share: float = 1.0) -> dict[str, Experiment]:
    """What each cell comes to, by its name; `share` is the part of a device that each will have."""
    tasks: dict[str, Task] = {}
    found: dict[str, Experiment] = {}
    wrong: dict[str, list[str]] = {}
    for cell in study.cells:
        try:
            found[cell.name] = prepare(cell.request, _task(cell, tasks), share=share).experiment
        except UserError as error:
            wrong.setdefault(str(error), []).append(cell.name)
    if wrong:
        told = "; ".join(f"{', '.join(names)}: {why}" for why, names in wrong.items())
        count = sum(map(len, wrong.values()))
        raise UserError(f"{study.file}: {count} of {len(study.cells)} cells cannot be trained: {told}")
    return found


def _task(cell: Cell, made: dict[str, Task]) -> Task:
    """The task of a cell; cells with the same one share it, as making some takes a while."""
    request: Any = cell.request
    key = json.dumps([request.task, dict(request.options)], sort_keys=True)
    if key not in made:
        made[key] = make(request.task, **request.options)
    return made[key]
