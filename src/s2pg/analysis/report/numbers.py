"""Numbers as people read them: few digits, thousands apart, a real minus sign."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

MINUS = "\N{MINUS SIGN}"
Real = float | int | np.integer


def number(x: Real, digits: int = 3) -> str:
    """A number with about so many digits, no more than it takes."""
    return aligned([x], digits)[0]


def aligned(values: Sequence[Real], digits: int = 3) -> list[str]:
    """Numbers for one column: as many decimals for all as the largest needs to show so many digits."""
    places = decimals(values, digits)
    return [f"{x:,.{places}f}".replace("-", MINUS) if math.isfinite(x) else "\N{EN DASH}" for x in values]


def decimals(values: Sequence[Real], digits: int = 3) -> int:
    """How many decimals show `digits` digits of the largest of some numbers."""
    largest = max((abs(x) for x in values if math.isfinite(x)), default=0.0)
    if largest == 0.0:
        return 0
    return int(np.clip(digits - 1 - math.floor(math.log10(largest)), 0, 6))


def short(x: Real) -> str:
    """A number for an axis or a count of steps: 2M, 500k, 0.25."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= size:
            return f"{x / size:.3g}{suffix}".replace("-", MINUS)
    return f"{x:.3g}".replace("-", MINUS)


def duration(seconds: Real) -> str:
    """Seconds as 42 s, 12.0 min, 3.4 h."""
    if not math.isfinite(seconds):
        return "\N{EN DASH}"
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    if seconds >= 120:
        return f"{seconds / 60:.1f} min"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


def count(n: int, noun: str, plural: str = "") -> str:
    """`1 seed`, `3 seeds`."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
