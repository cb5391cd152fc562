"""The summary of a report in words: who is ahead, by how much, and how sure that is.

Names stand between backticks: labels and tasks may hold commas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from s2pg.analysis.comparison import Cell, Comparison
from s2pg.analysis.report.numbers import aligned, count, duration, listed, number, short
from s2pg.analysis.scale import Scale
from s2pg.analysis.scores import DIMENSIONS, dimensions, reached
from s2pg.analysis.statistics import Strata, improvement, interval, pooled_iqm

FEW = 5  # fewer seeds make intervals too narrow; more tasks are counted, not named
# How often the 95 % interval held the IQM of normal scores, on one task and over five; 92 and 94 % with ten seeds.
COVERAGE = {2: (51, 78), 3: (74, 85), 4: (87, 90)}
REACH = 0.9  # the share of a task's scale whose first crossing is told


class Rank(NamedTuple):
    """A label with its scores, one array per task, and their IQM with its interval."""

    label: str
    scores: Strata
    middle: float
    low: float
    high: float


def rank(scores: Mapping[str, Strata]) -> list[Rank]:
    """Labels by their IQM over all tasks and seeds, the best first."""
    found = []
    for label, strata in scores.items():
        low, high = interval(pooled_iqm, strata)
        found.append(Rank(label, strata, float(pooled_iqm(strata)), float(low), float(high)))
    return sorted(found, key=lambda each: -each.middle)


def difference(ours: Strata, theirs: Strata) -> np.ndarray:
    """By how much our IQM is above theirs."""
    return pooled_iqm(ours) - pooled_iqm(theirs)


def lead(first: Rank, second: Rank) -> str:
    """How sure it is that the first is ahead of the second, in a word; few seeds are never sure."""
    fewest = min(len(each) for rank in (first, second) for each in rank.scores)
    if fewest < 2:
        return "unknown"
    levels = {0.95: "clear", 0.80: "likely"} if fewest >= FEW else {0.95: "likely"}
    for level, word in levels.items():
        if interval(difference, first.scores, second.scores, level=level)[0] > 0:
            return word
    return "open"


def summary(found: Comparison, scales: Mapping[str, Scale]) -> list[str]:
    """Sentences, the most important first."""
    tasks, labels = found.block(found.tasks)
    said = []
    if len(labels) > 1 and len(tasks) > 1:
        scores = {label: [scales[task](found.cells[task, label]) for task in tasks] for label in labels}
        named = _names(tasks) if len(tasks) <= FEW else count(len(tasks), "task")
        said += _told_apart(scores, _privileged(found, tasks, labels), "normalised returns", f"over {named}")
        said += _by_dimensions(found, scales, tasks, labels)
    elif len(labels) > 1:
        scores = {label: [found.cells[tasks[0], label].scores] for label in labels}
        said += _told_apart(scores, _privileged(found, tasks, labels), "last returns", f"on `{tasks[0]}`")
    else:
        said.append("There is one label on each task: nothing to compare.")
    return said + _cautions(found, tasks, labels)


def _privileged(found: Comparison, tasks: Sequence[str], labels: Sequence[str]) -> set[str]:
    return {label for label in labels if found.cells[tasks[0], label].privileged}


def _told_apart(scores: Mapping[str, Strata], privileged: set[str], what: str, where: str) -> list[str]:
    """Who is ahead; and who among those that see no more than the rest, if that is somebody else."""
    ranks = rank(scores)
    said = [_ahead(ranks[0], ranks[1], f" {where}: the IQM of its {what} is")]
    fair = [each for each in ranks if each.label not in privileged]
    if ranks[0].label in privileged and fair:
        rest = _ahead(fair[0], fair[1], " with") if len(fair) > 1 else f"`{fair[0].label}` has {_bracketed(fair[0])}."
        said.append(f"`{ranks[0].label}` sees the full state. Of labels that do not, {rest}")
    return said


def _ahead(first: Rank, second: Rank, what: str) -> str:
    gap = first.middle - second.middle
    if gap == 0:
        return f"`{first.label}` and `{second.label}` are level{what} {number(first.middle)}."
    text = f"`{first.label}` is ahead{what} {_bracketed(first)}, {number(gap)} more than `{second.label}`,"
    text += f" which is next with {_bracketed(second)}. "
    word = lead(first, second)
    if word == "unknown":
        return text + "One seed cannot tell how sure that is."
    low, high = interval(difference, first.scores, second.scores)
    low, high = aligned([float(low), float(high)])
    beats = float(improvement(first.scores, second.scores))
    return text + (
        f"The lead is {word}: the 95 % interval of the difference is {low} to {high}, and a seed of `{first.label}`"
        f" beats one of `{second.label}` with probability {beats:.2f}."
    )


def _bracketed(rank: Rank) -> str:
    if rank.low == rank.high:
        return number(rank.middle)
    middle, low, high = aligned([rank.middle, rank.low, rank.high])
    return f"{middle} (95 % interval {low} to {high})"


def _by_dimensions(
    found: Comparison, scales: Mapping[str, Scale], tasks: Sequence[str], labels: Sequence[str]
) -> list[str]:
    """Who leads on the low- and on the high-dimensional robots, where both kinds are there."""
    groups = {group: [task for task in tasks if dimensions(task.partition(",")[0]) == group] for group in DIMENSIONS}
    if not all(groups.values()):
        return []
    fair = [label for label in labels if label not in _privileged(found, tasks, labels)] or labels
    said = []
    for group, own in groups.items():
        first = rank({label: [scales[task](found.cells[task, label]) for task in own] for label in fair})[0]
        said.append(f"on the {group} ({_names(own)}) `{first.label}` leads with {number(first.middle)}")
    return [f"Robots as the paper groups them, full state aside: {', '.join(said)}."]


def _names(names: Sequence[str]) -> str:
    return listed([f"`{name}`" for name in names])


def on_task(cells: Sequence[Cell], scale: Scale, seconds: bool = True) -> str:
    """One line on a task: who is first and second there, and who gets far soonest, by seconds or by steps."""
    ranks = rank({cell.label: [cell.scores] for cell in cells})
    text = f"`{ranks[0].label}` with {_bracketed(ranks[0])}"
    if len(ranks) > 1 and ranks[0].middle == ranks[1].middle:
        text = f"`{ranks[0].label}` and `{ranks[1].label}` are level with {_bracketed(ranks[0])}"
    elif len(ranks) > 1:
        text += f", then `{ranks[1].label}` with {_bracketed(ranks[1])}; the lead is {lead(*ranks[:2])}"
    when = {cell.label: first_reached(cell, scale, cell.points[1 if seconds else 0]) for cell in cells}
    soonest = min(when.values())
    if len(ranks) > 1 and np.isfinite(soonest):
        quick = [label for label, moment in when.items() if moment == soonest]
        first = "is the first" if len(quick) == 1 else "are the first"
        after = f"{duration(soonest)} of training" if seconds else f"{short(soonest)} steps"
        text += f". {_names(quick)} {first} to reach {number(target(scale), 4)}, after {after}"
    return text + "."


def target(scale: Scale) -> float:
    """The return whose first crossing is told."""
    return scale.floor + REACH * (scale.ceiling - scale.floor)


def first_reached(cell: Cell, scale: Scale, x: np.ndarray) -> float:
    """The x at which the median seed reaches the target; infinite if it does not."""
    return float(np.median(reached(x, cell.points[2], target(scale))))


def _cautions(found: Comparison, tasks: Sequence[str], labels: Sequence[str]) -> list[str]:
    said = []
    counts = {len(cell.scores) for cell in found.cells.values()}
    fewest = min(counts - {1}, default=FEW)
    if fewest < FEW:
        one, five = COVERAGE[fewest]
        said.append(
            f"Intervals of {count(fewest, 'seed')} are too narrow: on normal scores those of 95 % hold the truth in"
            f" {one} % of cases on one task, in {five} % over five. So no lead is called clear."
        )
    if 1 in counts:
        said.append("Where there is one seed there is no interval.")
    left = [label for label in found.labels if label not in labels]
    if left and len(tasks) > 1:
        others = count(len(left), "label was", "labels were")
        named = f": {_names(left)}" if len(left) <= FEW else ""
        said.append(f"{others} not run on all of these tasks, so only single tasks compare them{named}.")
    incomplete = [each.running for each in (*unfinished_cells(found), *found.empty)]
    for state, cells in (("running", sum(incomplete)), ("unfinished", len(incomplete) - sum(incomplete))):
        if cells:
            said.append(f"{count(cells, 'cell is', 'cells are')} {state}; what returns there are count.")
    return said


def unfinished_cells(found: Comparison) -> list[Cell]:
    """Cells that have not come to the steps that were planned for them."""
    return [cell for cell in found.cells.values() if cell.points[0][-1] < cell.planned]
