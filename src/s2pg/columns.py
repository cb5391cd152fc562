"""Checks of arrays with one row per step, and columns found by their names."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from s2pg.errors import UserError, unknown


def matrix(what: str, values: np.ndarray, rows: int) -> None:
    """Refuses what is no table of finite numbers [rows, columns]; `what` names it in the message."""
    if values.ndim != 2:
        raise UserError(f"{what} must be a table [rows, columns], and has {values.ndim} axes")
    if len(values) != rows:
        raise UserError(f"{what} has {len(values)} rows where there are {rows}")
    finite(what, values)


def finite(what: str, values: np.ndarray) -> None:
    """Refuses NaN and infinity, and says in which row."""
    fine = np.isfinite(values).reshape(len(values), -1).all(axis=1)
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
    points = np.asarray(points).reshape(-1).astype(int)
    if len(points) < 2 or points[0] != 0 or points[-1] != rows:
        raise UserError(f"the split points of {where} must go from 0 to {rows}, its number of rows")
    found = [slice(int(start), int(end)) for start, end in itertools.pairwise(points)]
    for i, piece in enumerate(found):
        if piece.stop <= piece.start:
            raise UserError(f"episode {i} of {where} is empty")
    return found
