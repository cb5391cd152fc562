"""Spaces of actions, to and from Gymnasium's."""

from __future__ import annotations

import math

import numpy as np
from gymnasium import spaces

from s2pg.errors import UserError
from s2pg.types import Box, Discrete, MultiDiscrete, Space

KNOWN = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")  # of Gymnasium's


def box(low: np.ndarray, high: np.ndarray, shape: tuple[int, ...] | None = None) -> Box:
    """Makes a `Box` of arrays of bounds, rounded to single precision, in which they are used."""
    least, most = (tuple(np.asarray(side, np.float32).reshape(-1).tolist()) for side in (low, high))
    return Box(least, most, shape)


def from_gymnasium(space: spaces.Space, where: str) -> Space:
    """Reads Gymnasium's space of the actions of `where`; a bit is one of two."""
    match space:
        case spaces.Box():
            return box(space.low, space.high, space.shape)
        case spaces.Discrete():
            return Discrete(int(space.n), int(space.start))
        case spaces.MultiDiscrete():
            sizes, start = (tuple(np.asarray(each).reshape(-1).tolist()) for each in (space.nvec, space.start))
            return MultiDiscrete(sizes, start, space.shape)
        case spaces.MultiBinary():
            return MultiDiscrete((2,) * math.prod(space.shape), shape=space.shape)
    raise UserError(f"actions of {where} are {type(space).__name__}; known: {', '.join(KNOWN)}")


def to_gymnasium(space: Space) -> spaces.Space:
    """Tells Gymnasium of a space of actions; those of several axes are vectors there."""
    match space:
        case Discrete():
            return spaces.Discrete(space.n, start=space.start)
        case MultiDiscrete():
            sizes = np.asarray(space.sizes)
            return spaces.MultiDiscrete(sizes, start=np.broadcast_to(space.start, sizes.shape))
    low, high = (np.asarray(side, np.float32) for side in (space.low, space.high))
    return spaces.Box(low, high)
