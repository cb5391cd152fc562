"""Matplotlib, where there is one: refuses what cannot be drawn before minutes are spent on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from s2pg.errors import UserError

SUFFIXES = (".png", ".pdf", ".svg")


def figure_class(out: Path) -> Any:
    """Matplotlib's `Figure`: without pyplot there is no global state and no display."""
    if out.suffix.lower() not in SUFFIXES:
        raise UserError(f"cannot draw {out.name}: the name must end in {', '.join(SUFFIXES)}")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("plots need matplotlib: pip install 's2pg[plots]'") from None
    return Figure
