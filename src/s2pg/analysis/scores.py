"""What a curve of returns is worth: its normalised height, its area, and when it reaches a return."""

from __future__ import annotations

import re

import numpy as np

# The robots of the paper's averaged figures, in its words: "Hopper, Walker and HalfCheetah", "Humanoid and Ant".
DIMENSIONS = {"low-dimensional": ("hopper", "walker", "halfcheetah"), "high-dimensional": ("humanoid", "ant")}


def normalise(values: np.ndarray, floor: float, ceiling: float) -> np.ndarray:
    """Scales returns such that `floor` becomes 0 and `ceiling` 1."""
    return (np.asarray(values, float) - floor) / (ceiling - floor)


def area(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Mean height of curves [..., points] over x: the area under them, by trapezoids, divided by the width."""
    width = x[-1] - x[0]
    return np.asarray(np.trapezoid(values, x, axis=-1) / width if width else values[..., -1])


def reached(x: np.ndarray, values: np.ndarray, target: float) -> np.ndarray:
    """The first x, steps or seconds, at which each curve [..., points] is at `target` or above; infinite if never."""
    above = values >= target
    return np.where(above.any(axis=-1), x[above.argmax(axis=-1)], np.inf)


def dimensions(task: str) -> str | None:
    """Which of the paper's two groups of robots a task belongs to, whatever library it is from."""
    name = re.sub(r"[^a-z]", "", task.rpartition(":")[2].lower())
    return next((group for group, robots in DIMENSIONS.items() if name.startswith(robots)), None)
