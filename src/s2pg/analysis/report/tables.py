"""The tables of a report: returns task by task, aggregates over tasks, and who improves on whom."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from html import escape

import numpy as np

from s2pg.analysis.comparison import Cell, Comparison
from s2pg.analysis.report.numbers import aligned, duration, number, short
from s2pg.analysis.report.svg import bar, swatch
from s2pg.analysis.report.words import first_reached, rank, target
from s2pg.analysis.scale import Scale
from s2pg.analysis.scores import area
from s2pg.analysis.statistics import AGGREGATES, Strata, improvement, interval, iqm

MOST = 12  # labels that are compared each with each; of more, the leader with each


def names(found: Comparison) -> dict[str, int]:
    """The number of each label, by which it has its colour."""
    return {label: i for i, label in enumerate(found.labels)}


def returns(found: Comparison, scales: Mapping[str, Scale], seconds: bool) -> str:
    """Where each cell ended, the best of each task first."""
    heads = ["label", "last return", "95 % interval", "", "over training", "steps to target"]
    heads += ["time to target", "time", "steps/s"] if seconds else []
    heads += ["steps", "seeds"]
    body = "".join(_task_rows(found, task, scales[task], seconds, len(heads)) for task in found.tasks)
    return _table(heads, body)


def _task_rows(found: Comparison, task: str, scale: Scale, seconds: bool, columns: int) -> str:
    cells, numbers = found.on(task), names(found)
    ranks = {each.label: each for each in rank({cell.label: [cell.scores] for cell in cells})}
    ordered = [ranks[cell.label] for cell in cells]
    bounds = min(each.low for each in ordered), max(each.high for each in ordered)
    texts = aligned([x for each in ordered for x in (each.middle, each.low, each.high)], 4)
    areas = aligned([float(iqm(area(cell.points[0], cell.points[2]))) for cell in cells], 4)
    lines = [
        f'<tr class="group"><th colspan="{columns}" scope="rowgroup">{escape(task)}'
        f"<small>target {number(target(scale), 4)}</small></th></tr>"
    ]
    for i, (cell, each) in enumerate(zip(cells, ordered, strict=True)):
        middle, low, high = texts[3 * i : 3 * i + 3]
        one = len(cell.scores) == 1
        row = [
            f"<b>{middle}</b>" if i == 0 else middle,
            "one seed" if one else f"{low} to {high}",
            bar(numbers[cell.label], each.middle, each.low, each.high, bounds),
            areas[i],
            _or_never(first_reached(cell, scale, cell.points[0]), short),
        ]
        if seconds:
            row += [_or_never(first_reached(cell, scale, cell.points[1]), duration)]
            row += [duration(cell.log.seconds), short(cell.log.speed)]
        row += [_progress(cell), str(len(cell.scores))]
        lines.append(_row(numbers[cell.label], cell.label, row))
    return f"<tbody>{''.join(lines)}</tbody>"


def _or_never(x: float, write: Callable[[float], str]) -> str:
    return write(x) if np.isfinite(x) else '<span class="faint">never</span>'


def _progress(cell: Cell) -> str:
    done = int(cell.points[0][-1])
    if done >= cell.planned:
        return short(done)
    return f'<span class="warn">{short(done)} of {short(cell.planned)}</span>'


def aggregates(scores: Mapping[str, Strata], numbers: Mapping[str, int]) -> str:
    """IQM, median, mean and optimality gap of normalised returns with their intervals."""
    ranks = rank(scores)
    bounds = min(each.low for each in ranks), max(each.high for each in ranks)
    lines = []
    for each in ranks:
        row = [bar(numbers[each.label], each.middle, each.low, each.high, bounds)]
        for statistic in AGGREGATES.values():
            low, high = interval(statistic, each.scores)
            middle, low, high = (f"{x:.2f}" for x in (float(statistic(each.scores)), float(low), float(high)))
            row.append(f'{middle} <span class="faint iv">{low} to {high}</span>'.replace("-", "\N{MINUS SIGN}"))
        lines.append(_row(numbers[each.label], each.label, row))
    return _table(["label", "", *AGGREGATES], f"<tbody>{''.join(lines)}</tbody>")


def improvements(scores: Mapping[str, Strata], numbers: Mapping[str, int]) -> str:
    """The probability that a seed of the row's label beats one of the column's; strong where its interval omits 1/2."""
    ranks = rank(scores)
    rows = ranks if len(ranks) <= MOST else ranks[:1]
    known: dict[tuple[str, str], tuple[float, float, float]] = {}  # chance, and the ends of its interval
    for mine, other in itertools.combinations(ranks, 2):
        if mine in rows:
            ends = interval(improvement, mine.scores, other.scores, draws=1000)
            chance, low, high = (float(x) for x in (improvement(mine.scores, other.scores), *ends))
            known[mine.label, other.label] = chance, low, high
            known[other.label, mine.label] = 1 - chance, 1 - high, 1 - low
    lines = []
    for mine in rows:
        head = f'<th scope="row">{_label(mine.label, numbers)}</th>'
        chances = "".join(_chance(known.get((mine.label, other.label))) for other in ranks)
        lines.append(f'<tr data-s="{numbers[mine.label]}">{head}{chances}</tr>')
    heads = "".join(
        f'<th scope="col" title="{escape(each.label)}">{swatch(numbers[each.label])}</th>' for each in ranks
    )
    inner = f"<thead><tr><th></th>{heads}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f'<div class="scroll"><table class="matrix">{inner}</table></div>'


def _chance(known: tuple[float, float, float] | None) -> str:
    if known is None:
        return "<td></td>"
    chance, low, high = known
    text = f"{chance:.2f}" if low <= 0.5 <= high else f"<b>{chance:.2f}</b>"
    side = "ahead" if chance > 0.5 else "behind"
    title = f"95 % interval {low:.2f} to {high:.2f}"
    return f'<td style="--p:{abs(chance - 0.5):.2f}" class="{side}" title="{title}">{text}</td>'


def _label(label: str, numbers: Mapping[str, int]) -> str:
    return f"{swatch(numbers[label])}{escape(label)}"


def _row(number: int, label: str, cells: Sequence[str]) -> str:
    rest = "".join(f"<td>{cell}</td>" for cell in cells)
    return f'<tr data-s="{number}"><th scope="row">{swatch(number)}{escape(label)}</th>{rest}</tr>'


def _table(heads: Sequence[str], body: str) -> str:
    shown = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    return f'<div class="scroll"><table><thead><tr>{shown}</tr></thead>{body}</table></div>'
