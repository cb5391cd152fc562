"""Checks of arrays with one row per step, and columns found by their names."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from s2pg.errors import UserError, unknown


def numbers(what: str, values: Any, kind: type) -> np.ndarray:
    """Real numbers, truth values among them, as an array of this kind; refuses what is none, such as text."""
    found = np.asarray(values)
    if found.dtype.kind not in "biuf":
        raise UserError(f"{what} holds no real numbers")
    if kind is bool:
        finite(what, np.atleast_1d(found))
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as that
        return found.astype(kind)


def check_dt(dt: Any) -> None:
    """Refuses what is no length of a step; None is one that nobody knows."""
    if dt is not None and not (isinstance(dt, int | float | np.number) and 0.0 < dt < math.inf):
        raise UserError(f"dt must be a number of seconds above 0, not {dt}")


def matrix(what: str, values: np.ndarray, rows: int) -> None:
    """Refuses what is no table of finite numbers [rows, columns]; `what` names it in the message."""
    if values.ndim != 2:
        raise UserError(f"{what} must be a table [rows, columns], and has {values.ndim} axes")
    if len(values) != rows:
        raise UserError(f"{what} has {len(values)} rows where there are {rows}")
    finite(what, values)


def finite(what: str, values: np.ndarray) -> None:
    """Refuses NaN and infinity, and says in which row."""
    fine = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
    if not fine.all():
        raise UserError(f"{what} is not finite in row {int(np.argmin(fine))}")


def find(kind: str, wanted: Sequence[str], known: Sequence[str]) -> list[int]:
    """Finds where each wanted name stands among the known ones; refuses one that is missing, with names near it."""
    place = {name: i for i, name in enumerate(known)}
    for name in wanted:
        if name not in place:
            raise unknown(kind, name, known)
    return [place[name] for name in wanted]


def pieces(points: np.ndarray, rows: int, where: str) -> list[slice]:
    """Cuts rows at split points such as 0, 500, 1000; refuses those that leave a piece empty or do not fit."""
    points = numbers(f"split_points of {where}", points, float).reshape(-1)
    finite(f"split_points of {where}", points)
    if len(points) < 2 or points[0] != 0 or points[-1] != rows:
        raise UserError(f"the split points of {where} must go from 0 to {rows}, its number of rows")
    found = [slice(int(start), int(end)) for start, end in itertools.pairwise(points)]
    for i, piece in enumerate(found):
        if piece.stop <= piece.start:
            raise UserError(f"episode {i} of {where} is empty")
    return found
