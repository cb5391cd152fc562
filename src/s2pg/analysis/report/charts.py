"""The charts of a report: curves against steps and seconds, and performance profiles."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import numpy as np

from s2pg.analysis.comparison import Comparison
from s2pg.analysis.plots import NAMES
from s2pg.analysis.report.svg import Series, chart
from s2pg.analysis.report.tables import names
from s2pg.analysis.statistics import Strata, bootstrap_band, interval, iqm, profile

MOST = 60  # points of a curve that are drawn: more cannot be told apart
DRAWS = 300  # of the bands' bootstrap: their ends are a pixel's matter


def curves(found: Comparison, task: str, seconds: bool) -> str:
    """The returns of all labels on a task: IQM over seeds with its band."""
    numbers, lines = names(found), []
    for cell in found.on(task):
        steps, times, values = cell.points
        kept = np.unique(np.linspace(0, len(steps) - 1, min(MOST, len(steps))).round().astype(int))
        band = bootstrap_band(values[:, kept], draws=DRAWS)
        lines.append((numbers[cell.label], (steps[kept], times[kept]), iqm(values[:, kept]), *band))
    axes = ("environment steps", "seconds of training")[: 1 + seconds]
    y_name = NAMES.get(found.value, found.value)
    figures = [
        chart(
            [Series(number, x[axis], *heights) for number, x, *heights in lines],
            name,
            y_name,
            title=f"{task}: {y_name}",
        )
        for axis, name in enumerate(axes)
    ]
    shown = "".join(f"<figure>{figure}</figure>" for figure in figures)
    return f'<section class="task"><h3>{escape(task)}</h3><div class="charts">{shown}</div></section>'


def profiles(scores: Mapping[str, Strata], numbers: Mapping[str, int]) -> str:
    """The share of seeds above each normalised return."""
    every = np.concatenate([np.concatenate(strata) for strata in scores.values()])
    low, high = np.clip(float(every.min()), -1.0, 0.0), np.clip(float(every.max()), 1.0, 2.0)
    thresholds = np.linspace(low, high, 121)
    lines = []
    for label, strata in scores.items():
        band = interval(lambda sample: profile(sample, thresholds), strata, draws=DRAWS)
        lines.append(Series(numbers[label], thresholds, profile(strata, thresholds), *band))
    return f"<figure>{chart(lines, 'normalised return', 'share of seeds above it', (0.0, 1.0))}</figure>"
