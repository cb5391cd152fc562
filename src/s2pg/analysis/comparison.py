"""Runs as a table of cells: one for each label on each task, with all of its seeds."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from s2pg.analysis.logs import USUAL_KERNELS, Log, plain, tell_apart
from s2pg.analysis.statistics import iqm
from s2pg.config.labels import parse
from s2pg.errors import UserError
from s2pg.views import POLICY


@dataclass(frozen=True)
class Cell:
    """One label on one task: its runs, which differ in their seeds alone, and their returns."""

    task: str
    label: str
    logs: tuple[Log, ...]
    value: str

    @cached_property
    def log(self) -> Log:
        """All of its runs as one. One that diverged counts with its last return from there on."""
        if len(self.logs) == 1:
            return self.logs[0]
        rows: dict[int, dict[int, Mapping[str, Any]]] = defaultdict(dict)
        for log in self.logs:
            for step, at in log.rows.items():
                rows[step] |= at
        for log in self.logs:
            last = max(log.rows)
            for step in rows if log.diverged else ():
                if step > last:
                    rows[step] |= log.rows[last]
        return Log(self.logs[0].path, self.logs[0].config, rows)

    @cached_property
    def points(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(steps [points], seconds [points], returns [seeds, points])."""
        return self.log.points(self.value)

    @property
    def scores(self) -> np.ndarray:
        """The last return of each seed."""
        return self.points[2][:, -1]

    @cached_property
    def middle(self) -> float:
        """Their interquartile mean."""
        return float(iqm(self.scores))

    @property
    def planned(self) -> int:
        """Steps that it was to be trained for."""
        return max((int(log.config.get("steps") or 0) for log in self.logs), default=0)

    @property
    def running(self) -> bool:
        """Whether one of its runs was being trained when it was read."""
        return any(log.running for log in self.logs)

    @property
    def privileged(self) -> bool:
        """Whether its policy sees the full state, so that no other one can be expected to get ahead of it."""
        try:
            return parse(str(self.log.config.get("memory"))).label.actor_view != POLICY
        except UserError:  # a label of another version
            return False


@dataclass(frozen=True)
class Comparison:
    """Cells with something to show, by task and label, and runs without."""

    value: str
    tasks: tuple[str, ...]
    labels: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]
    empty: tuple[Log, ...]

    def on(self, task: str) -> list[Cell]:
        """The cells of a task, the best first."""
        cells = [self.cells[task, label] for label in self.labels if (task, label) in self.cells]
        return sorted(cells, key=lambda cell: -cell.middle)

    def block(self, tasks: Iterable[str]) -> tuple[list[str], list[str]]:
        """The largest set of tasks, among these, and of labels that were all run on all of them."""
        wanted = [task for task in self.tasks if task in set(tasks)]
        sets = {frozenset(task for task in wanted if (task, label) in self.cells) for label in self.labels}
        covering = {each: [label for label in self.labels if self._covers(label, each)] for each in sets if each}
        if not covering:
            return [], []
        best = max(covering, key=lambda each: (len(covering[each]) > 1, len(each) * len(covering[each]), sorted(each)))
        return [task for task in wanted if task in best], covering[best]

    def _covers(self, label: str, tasks: Iterable[str]) -> bool:
        return all((task, label) in self.cells for task in tasks)


def compare(logs: Sequence[Log], value: str) -> Comparison:
    """Sorts runs into cells. Runs that differ in their seeds alone share one."""
    tasks = _tasks(logs)
    groups: dict[tuple[str, str], list[Log]] = defaultdict(list)
    for log, task, label in zip(logs, tasks, _labels(logs, tasks), strict=True):
        groups[task, label].append(log)
    cells, empty = {}, []
    for (task, label), group in groups.items():
        counted = [log for log in group if log.has(value)]
        empty += [log for log in group if log not in counted]
        taken: set[int] = set()
        for log in counted:  # the same seed twice: two runs to compare, not one with twice the seeds
            name = f"{label} ({log.path.name})" if taken & set(log.seeds) else label
            taken |= set(log.seeds)
            before = cells[task, name].logs if (task, name) in cells else ()
            cells[task, name] = Cell(task, name, (*before, log), value)
    names = [sorted({key[i] for key in cells}, key=_natural) for i in range(2)]
    return Comparison(value, tuple(names[0]), tuple(names[1]), cells, tuple(empty))


def _natural(text: str) -> list[tuple[int, int | str]]:
    """Sorts bptt-8 before bptt-32."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", text)]


def _tasks(logs: Sequence[Log]) -> list[str]:
    """The task of each run, with those of its options in which runs of that task differ."""
    options = [log.config.get("options") or {} for log in logs]
    names = [plain(log.config.get("task", "?")) for log in logs]
    return tell_apart(names, options, names, missing=True)


def _labels(logs: Sequence[Log], tasks: Sequence[str]) -> list[str]:
    """The memory of each run, and what else tells it apart from others on the same task."""
    names = [plain(log.config.get("memory", log.path.name)) for log in logs]
    kernels = {log.config.get("kernel") for log in logs}
    # A memory label implies a kernel: kernels are named only where there are others than these.
    axes = ["algorithm", "kernel"] if kernels - {None, *USUAL_KERNELS} else ["algorithm"]
    for axis in axes:
        values = [log.config.get(axis) for log in logs]
        if len(set(values)) > 1:
            names = [f"{name}, {plain(value)}" for name, value in zip(names, values, strict=True)]
    rest = [
        {name: log.config[name] for name in ("critic", "demos") if name in log.config} | (log.config.get("hyper") or {})
        for log in logs
    ]
    return tell_apart(names, rest, list(zip(tasks, names, strict=True)))
