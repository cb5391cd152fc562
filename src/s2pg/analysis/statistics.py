"""What many seeds say together: the interquartile mean and a bootstrap band around it."""

from __future__ import annotations

import numpy as np
from scipy.stats import trim_mean

BLOCK = 64  # points resampled at once: bounds the memory of [draws, seeds, points] for long runs with many seeds


def iqm(x: np.ndarray, axis: int = 0) -> np.ndarray:
    """Interquartile mean: the mean of what is left when the lowest and the highest quarter are cut off.

    A quarter is rounded down, so with fewer than four seeds nothing is cut and this is the plain mean.
    """
    return np.asarray(trim_mean(np.asarray(x, float), 0.25, axis=axis))


def bootstrap_band(
    curves: np.ndarray, level: float = 0.95, draws: int = 2000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Percentile band of the IQM over resampled seeds: [seeds, points] -> (low [points], high [points]).

    Whole curves are drawn with replacement, one choice of seeds for all points. One seed is resampled
    to itself, so its band is the curve: it says nothing about spread, and does not pretend to.
    """
    curves = np.asarray(curves, float)
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie between 0 and 1, not {level}")
    seeds, points = curves.shape
    chosen = np.random.default_rng(seed).integers(seeds, size=(draws, seeds))
    band = np.empty((2, points))
    for start in range(0, points, BLOCK):
        block = slice(start, start + BLOCK)
        means = iqm(curves[chosen, block], axis=1)
        band[:, block] = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return band[0], band[1]
