"""Films of a policy at work, with its internal state z drawn beneath the picture."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import jax
import numpy as np

from s2pg.errors import UserError
from s2pg.io.atomic import replacing
from s2pg.types import State

MARGIN = 6  # pixels around the strip
TALLEST_ROW, STRIP = 12, 96  # a unit of z is at most so tall, and the strip about so tall while rows are above 1 pixel
PAPER, EDGE, EMPTY, CURSOR = 255, 170, 232, 40  # grey levels: around the strip, its edge, the future, the present
# Blue, white and red at z = -1, 0, 1 with a stop between each, so that small values show.
STOPS = np.array([[33, 102, 172], [146, 197, 222], [247, 247, 247], [244, 165, 130], [178, 24, 43]], float)


def heat(x: np.ndarray) -> np.ndarray:
    """Values to colours, blue over white to red for -1 ... 1; beyond it clips. [...] -> uint8 [..., 3]."""
    at = np.linspace(-1.0, 1.0, len(STOPS))
    return np.stack([np.interp(x, at, stops) for stops in STOPS.T], axis=-1).round().astype(np.uint8)


def units(z: State) -> np.ndarray:
    """The state of a policy, of whatever structure, as one vector with one number per unit."""
    return np.concatenate([np.zeros(0), *(np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(z))])


def with_state(frame: np.ndarray, z: State, history: Sequence[State], max_steps: int) -> np.ndarray:
    """The frame above a heat map of z over time: one row per unit, time from left to right.

    `history` holds the states before z, oldest first. The width stands for `max_steps` steps, so all frames
    of an episode have one size and the map fills up; a longer episode scrolls. Without a state the strip is grey.
    """
    frame = rgb(frame)
    width = frame.shape[1] - 2 * MARGIN
    seen = np.stack([units(each) for each in [*history, z][-max_steps:]])  # [steps, units]
    steps, rows = seen.shape
    tall = max(1, min(TALLEST_ROW, STRIP // max(rows, 1)))
    strip = np.full((tall * max(rows, 1), width, 3), EMPTY, np.uint8)
    if rows:
        step = np.arange(width) * max_steps // width  # the step that each pixel column shows
        past = step < steps
        strip[:, past] = np.repeat(heat(seen[step[past]].T), tall, axis=0)
        strip[:, min(np.count_nonzero(past), width - 1)] = CURSOR
    for wide, grey in ((1, EDGE), (MARGIN - 1, PAPER)):  # a thin edge first: white at z = 0 would melt into the paper
        strip = np.pad(strip, ((wide, wide), (wide, wide), (0, 0)), constant_values=grey)
    return np.concatenate([frame, strip])


def rgb(frame: np.ndarray) -> np.ndarray:
    """Any picture as uint8 [height, width, 3]: grey is spread, transparency dropped, floats in 0 ... 1 scaled."""
    frame = np.asarray(frame)
    if np.issubdtype(frame.dtype, np.floating):
        frame = (frame.clip(0.0, 1.0) * 255).round()
    if frame.ndim == 2:
        frame = np.repeat(frame[:, :, None], 3, axis=-1)
    return frame[:, :, :3].astype(np.uint8)


def check(path: Path) -> None:
    """Refuses a name of which no film can be made, before an episode is played for it."""
    if path.suffix.lower() not in WRITERS:
        raise UserError(f"cannot film {path.name}: the name must end in {' or '.join(WRITERS)}")
    needed = NEEDS[path.suffix.lower()]
    if importlib.util.find_spec(needed) is None:
        raise UserError(f"films need {needed}, which is not installed: pip install 's2pg[video]'")


def write(frames: Iterable[np.ndarray], path: Path, fps: int = 20) -> None:
    """Writes a GIF, which loops for ever, or an MP4, by the suffix of `path`."""
    path = Path(path)
    check(path)
    writer = WRITERS[path.suffix.lower()]
    shots = map(rgb, frames)
    first = next(shots, None)
    if first is None:
        raise UserError(f"cannot film {path.name}: there are no frames")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        writer(chain([first], shots), file, fps)


def _gif(frames: Iterator[np.ndarray], file: BinaryIO, fps: int) -> None:
    from PIL import Image  # comes with imageio, whose own GIF writer picks a palette per frame and flickers

    shots = list(frames)
    # One palette for all: from a few frames across the episode, seen at once, with all of the heat map's colours.
    few = shots[:: max(1, len(shots) // 8)]
    ramp = np.repeat(heat(np.linspace(-1, 1, shots[0].shape[1]))[None], 16, axis=0)
    palette = Image.fromarray(np.concatenate([*few, ramp])).quantize(255, method=Image.Quantize.MEDIANCUT)
    flat = [Image.fromarray(shot).quantize(palette=palette, dither=Image.Dither.NONE) for shot in shots]
    pause = max(20, round(100 / fps) * 10)  # GIFs count in 10 ms, and browsers slow down what is faster than 20
    flat[0].save(file, format="GIF", save_all=True, append_images=flat[1:], duration=pause, loop=0)


def _mp4(frames: Iterator[np.ndarray], file: BinaryIO, fps: int) -> None:
    from imageio_ffmpeg import write_frames  # imageio itself refuses a file whose name does not end in .mp4

    # Without this it starts ffmpeg by a plain fork, which JAX warns of: its threads may hold locks at that moment.
    os.environ.setdefault("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")
    even = (np.pad(shot, (*((0, n % 2) for n in shot.shape[:2]), (0, 0)), mode="edge") for shot in frames)
    first = next(even)  # sides are made even because the codec halves its colour planes
    film = write_frames(
        file.name, first.shape[1::-1], fps=fps, codec="libx264", quality=8, macro_block_size=1,
        output_params=["-movflags", "+faststart", "-f", "mp4"],
    )  # fmt: skip
    with closing(film):
        film.send(None)  # starts ffmpeg
        for shot in chain([first], even):
            film.send(np.ascontiguousarray(shot))


WRITERS: dict[str, Callable[[Iterator[np.ndarray], BinaryIO, int], None]] = {".gif": _gif, ".mp4": _mp4}
NEEDS = {".gif": "PIL", ".mp4": "imageio_ffmpeg"}  # packages that s2pg[video] brings
