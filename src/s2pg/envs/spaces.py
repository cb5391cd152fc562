"""Spaces of actions, to and from Gymnasium's."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from s2pg.errors import UserError
from s2pg.types import Box, Discrete


def box(low: np.ndarray, high: np.ndarray, shape: tuple[int, ...] | None = None) -> Box:
    """Makes a `Box` of arrays of bounds, rounded to single precision, in which they are used."""
    least, most = (tuple(np.asarray(side, np.float32).reshape(-1).tolist()) for side in (low, high))
    return Box(least, most, shape)


def from_gymnasium(space: spaces.Space, where: str) -> Box | Discrete:
    """Reads Gymnasium's space of the actions of `where`."""
    match space:
        case spaces.Box():
            return box(space.low, space.high, space.shape)
        case spaces.Discrete():
            return Discrete(int(space.n), int(space.start))
    raise UserError(f"actions of {where} are {type(space).__name__}; known: Box, Discrete")


def to_gymnasium(space: Box | Discrete) -> spaces.Space:
    """Tells Gymnasium of a space of actions; those of a box are vectors there."""
    if isinstance(space, Discrete):
        return spaces.Discrete(space.n, start=space.start)
    low, high = (np.asarray(side, np.float32) for side in (space.low, space.high))
    return spaces.Box(low, high)
