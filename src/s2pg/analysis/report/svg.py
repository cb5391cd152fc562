"""Charts as SVG text. Colours, and what happens under a pointer, are the page's style sheet and script's business.

A series has the class `sN` of its label, which the style sheet gives a colour. The script reads values back from the
coordinates, for which a chart says what its frame stands for; so nothing is in the page twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from s2pg.analysis.report.numbers import Real, short

WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 18, 12, 44  # what is around the frame
BAR = 150  # the width of a bar in a table


class Series(NamedTuple):
    """A line with its band; `number` is that of its label."""

    number: int
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between two others: multiples of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def chart(
    series: Sequence[Series], x_name: str, y_name: str, y_range: tuple[float, float] | None = None, title: str = ""
) -> str:
    """Lines with bands over a grid; each band is cut where it leaves the frame."""
    x_low, x_high = _bounds([each.x for each in series], zero=True)
    y_low, y_high = y_range or _heights(series)
    across = _axis(x_low, x_high, LEFT, WIDTH - RIGHT)
    down = _axis(y_low, y_high, HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title or y_name)}"'
        f' data-x="{x_low:.9g} {x_high:.9g} {LEFT} {WIDTH - RIGHT}"'
        f' data-y="{y_low:.9g} {y_high:.9g} {HEIGHT - BOTTOM} {TOP}" data-unit="{escape(x_name)}">',
        *(_horizontal(down(at), short(at)) for at in ticks(y_low, y_high)),
        *(_vertical(across(at), short(at)) for at in ticks(x_low, x_high)),
        f'<text class="name" x="{(LEFT + WIDTH - RIGHT) / 2:g}" y="{HEIGHT - 8}">{escape(x_name)}</text>',
        f'<text class="name" transform="translate(13 {(TOP + HEIGHT - BOTTOM) / 2:g}) rotate(-90)">'
        f"{escape(y_name)}</text>",
        f'<svg class="inner" x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - TOP - BOTTOM}"'
        f' viewBox="{LEFT} {TOP} {WIDTH - LEFT - RIGHT} {HEIGHT - TOP - BOTTOM}">',
        *(_band(each, across, down) for each in series),
        *(_line(each, across, down) for each in series),
        "</svg>",
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>',
        '<g class="pointer"></g></svg>',
    ]
    return "".join(parts)


def bar(number: int, middle: float, low: float, high: float, bounds: tuple[float, float]) -> str:
    """An interval with its middle for a cell of a table, on a scale that the column shares."""
    at = _axis(*bounds, 4, BAR - 4)
    return (
        f'<svg class="bar" viewBox="0 0 {BAR} 14" aria-hidden="true">'
        f'<line class="rule" x1="0" x2="{BAR}" y1="7" y2="7"/>'
        f'<line class="s{number}" x1="{at(low)}" x2="{at(high)}" y1="7" y2="7"/>'
        f'<circle class="s{number}" cx="{at(middle)}" cy="7" r="3.5"/></svg>'
    )


def swatch(number: int) -> str:
    """A short piece of a label's line."""
    line = f'<line class="s{number}" x1="1" x2="25" y1="4" y2="4"/>'
    return f'<svg class="swatch" viewBox="0 0 26 8" aria-hidden="true">{line}</svg>'


Axis = Callable[[Real], str]


def _axis(low: float, high: float, start: int, end: int) -> Axis:
    """From a value to a coordinate, as text."""
    scale = (end - start) / (high - low) if high > low else 0.0

    def at(x: Real) -> str:
        return (
            f"{start + (min(max(x, low - 9 * (high - low)), high + 9 * (high - low)) - low) * scale:.1f}".removesuffix(
                ".0"
            )
        )

    return at


def _bounds(arrays: Sequence[np.ndarray], zero: bool = False) -> tuple[float, float]:
    values = np.concatenate([*arrays, np.zeros(1)] if zero else list(arrays))
    low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - 0.5 * (not zero), high + 0.5 + 0.5 * zero
    return low, high


def _heights(series: Sequence[Series]) -> tuple[float, float]:
    """Room for all lines, and for bands as far as they go no further beyond them than half of what the lines span."""
    low, high = _bounds([each.y for each in series])
    room = 0.5 * (high - low)
    low = max(low - room, min(low, *(float(each.low.min()) for each in series)))
    high = min(high + room, max(high, *(float(each.high.max()) for each in series)))
    return low - 0.03 * (high - low), high + 0.03 * (high - low)


def _horizontal(y: str, text: str) -> str:
    return (
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
        f'<text class="tick" x="{LEFT - 7}" y="{y}" dy=".32em" text-anchor="end">{text}</text>'
    )


def _vertical(x: str, text: str) -> str:
    return f'<text class="tick" x="{x}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{text}</text>'


def _points(xs: np.ndarray, ys: np.ndarray, across: Axis, down: Axis) -> str:
    return " ".join(f"{across(x)},{down(y)}" for x, y in zip(xs, ys, strict=True))


def _band(each: Series, across: Axis, down: Axis) -> str:
    if np.array_equal(each.low, each.high):
        return ""
    there, back = _points(each.x, each.high, across, down), _points(each.x[::-1], each.low[::-1], across, down)
    return f'<polygon class="band s{each.number}" data-s="{each.number}" points="{there} {back}"/>'


def _line(each: Series, across: Axis, down: Axis) -> str:
    dot = (
        f'<circle class="s{each.number}" data-s="{each.number}" cx="{across(each.x[0])}" cy="{down(each.y[0])}" r="3"/>'
    )
    line = _points(each.x, each.y, across, down)
    return (
        dot if len(each.x) == 1 else ""
    ) + f'<polyline class="line s{each.number}" data-s="{each.number}" points="{line}"/>'
