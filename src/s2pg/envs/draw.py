"""A small rasteriser: shapes as signed distances on a float canvas, their edges antialiased for free.

A pixel is covered as far as the shape's edge lies beyond its middle, clip(1/2 - distance, 0, 1), distance in
pixels. Pictures so need NumPy alone, on machines without a display and without plotting libraries.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Colour = Sequence[float] | np.ndarray  # red, green, blue in 0 ... 1
Point = Sequence[float] | np.ndarray

PAPER, PALE, GREY, INK = (0.97, 0.97, 0.95), (0.88, 0.90, 0.93), (0.62, 0.65, 0.70), (0.16, 0.19, 0.24)
BLUE, ORANGE, GREEN, RED = (0.15, 0.42, 0.78), (0.93, 0.52, 0.12), (0.16, 0.60, 0.38), (0.82, 0.24, 0.24)


def mix(first: Colour, second: Colour, share: float) -> np.ndarray:
    """A colour between two: `share` 0 is the first, 1 the second."""
    return (1 - share) * np.asarray(first) + share * np.asarray(second)


class Canvas:
    """A picture of the square [low, high]^2 of a world whose y axis points up."""

    def __init__(self, low: float, high: float, background: Colour = PAPER, pixels: int = 192):
        middles = (np.arange(pixels) + 0.5) / pixels * (high - low)
        self._x, self._y = np.meshgrid(low + middles, high - middles)
        self._scale = pixels / (high - low)
        self._picture = np.ones((pixels, pixels, 3)) * np.asarray(background)

    def _paint(self, distance: np.ndarray, colour: Colour) -> None:
        cover = np.clip(0.5 - distance * self._scale, 0.0, 1.0)[:, :, None]
        self._picture += cover * (np.asarray(colour) - self._picture)

    def _distance(self, centre: Point) -> np.ndarray:
        return np.hypot(self._x - centre[0], self._y - centre[1])

    def disc(self, centre: Point, radius: float, colour: Colour) -> None:
        """Paints a filled circle."""
        self._paint(self._distance(centre) - radius, colour)

    def ring(self, centre: Point, radius: float, width: float, colour: Colour) -> None:
        """Paints a circle of which `radius` is the outer edge."""
        self._paint(np.abs(self._distance(centre) - radius + width / 2) - width / 2, colour)

    def rectangle(self, low: Point, high: Point, colour: Colour) -> None:
        """Paints a filled rectangle between two corners."""
        outside_x = np.maximum(low[0] - self._x, self._x - high[0])
        outside_y = np.maximum(low[1] - self._y, self._y - high[1])
        self._paint(np.maximum(outside_x, outside_y), colour)

    def line(self, start: Point, end: Point, width: float, colour: Colour) -> None:
        """Paints a stroke with round ends."""
        along = np.asarray(end, float) - np.asarray(start, float)
        x, y = self._x - start[0], self._y - start[1]
        share = np.clip((x * along[0] + y * along[1]) / max(along @ along, 1e-12), 0.0, 1.0)
        self._paint(np.hypot(x - share * along[0], y - share * along[1]) - width / 2, colour)

    def picture(self) -> np.ndarray:
        """Returns what was painted, uint8 [height, width, 3]."""
        return np.round(255 * self._picture).astype(np.uint8)
