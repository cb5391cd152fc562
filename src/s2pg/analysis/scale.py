"""Normalised returns: which return of a task counts as 0 and which as 1, so that tasks can be averaged."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from s2pg.analysis.comparison import Cell, Comparison
from s2pg.analysis.scores import normalise
from s2pg.analysis.statistics import iqm
from s2pg.errors import UserError

End = float | str  # a return, or the memory label whose last IQM on the task it is
Ends = tuple[End, End]
ALL = "*"  # what holds for every task without a rule of its own
STUDY = "study.toml"  # the copy of its file in the folder of a study


class Scale(NamedTuple):
    """The returns of a task that count as 0 and as 1, and where they come from."""

    floor: float
    ceiling: float
    source: str

    def __call__(self, cell: Cell) -> np.ndarray:
        """The normalised last returns of a cell's seeds."""
        return normalise(cell.scores, self.floor, self.ceiling)


def read_study(folders: Sequence[Path]) -> tuple[str, dict[str, Ends]]:
    """What the study files of these folders are about, and their `[normalise]`; nothing where there are none."""
    about, rules = "", {}
    for folder in folders:
        for file in (folder / STUDY, folder.parent / STUDY):  # a study's folder was named, or its runs
            if file.is_file():
                content = _toml(file)
                about = about or str(content.get("about", ""))
                rules |= parse_rules(content.get("normalise", {}), file)
                break
    return about, rules


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except ValueError as error:  # no TOML, or no text at all
        raise UserError(f"{file} is damaged: {error}") from None


def parse_rules(table: Mapping[str, Any], where: Path) -> dict[str, Ends]:
    """`task = [floor, ceiling]`, each a return or a memory label; the task `*` stands for all others."""
    rules: dict[str, Ends] = {}
    for task, ends in table.items():
        if not (isinstance(ends, list) and len(ends) == 2 and all(isinstance(end, int | float | str) for end in ends)):
            raise UserError(f"{where}: '{task}' of [normalise] must be what is 0 and what is 1, not {ends!r}")
        floor, ceiling = (end if isinstance(end, str) else float(end) for end in ends)
        rules[task] = floor, ceiling
    return rules


def scales(found: Comparison, rules: Mapping[str, Ends]) -> dict[str, Scale]:
    """A scale for each task. Where no rule can be applied, it goes from the lowest to the highest IQM of any curve."""
    made = {}
    for task in found.tasks:
        cells = found.on(task)
        name = str(cells[0].log.config.get("task"))
        ends = rules.get(task) or rules.get(name) or rules.get(ALL)
        floor, ceiling = (_height(end, cells) for end in ends) if ends else (np.nan, np.nan)
        if ends and floor < ceiling:
            made[task] = Scale(floor, ceiling, f"{_told(ends[0])} and {_told(ends[1])}")
            continue
        middles = np.concatenate([iqm(cell.points[2]) for cell in cells])
        floor, ceiling = float(middles.min()), float(middles.max())
        why = f", as {_told(ends[0])} is not below {_told(ends[1])} here" if ends else ""
        source = f"lowest and highest point of any curve{why}"
        made[task] = Scale(floor, ceiling if ceiling > floor else floor + 1.0, source)
    return made


def _height(end: End, cells: Sequence[Cell]) -> float:
    """The return that an end of a scale stands for; not a number where its label was not run on the task."""
    if not isinstance(end, str):
        return end
    named = [cell.scores for cell in cells if end in (cell.label, cell.log.config.get("memory"))]
    return float(iqm(np.concatenate(named))) if named else np.nan


def _told(end: End) -> str:
    return end if isinstance(end, str) else f"{end:,g}"
