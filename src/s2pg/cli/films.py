"""Films for the page of `s2pg report`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from s2pg.analysis.report import Film, Report
from s2pg.configure import compilation_cache
from s2pg.errors import UserError
from s2pg.io import video
from s2pg.runs import assess
from s2pg.runs.run import Run

FRAMES, FILM_WIDTH = 60, 240  # that a film in a page has at most


def prepare() -> None:
    """Refuses at once where no film can be made."""
    video.check(Path("film.gif"))
    compilation_cache()


def of(report: Report, most: int) -> Iterator[Film]:
    """Films the first seed of the best label of each task, then of the second best, and so on."""
    ranked = [report.found.on(task) for task in report.found.tasks]
    longest = max(map(len, ranked))
    order = [cells[place] for place in range(longest) for cells in ranked if place < len(cells)]
    made = 0
    for cell in order:
        if made == most:
            return
        seed = cell.logs[0].seeds[0]
        try:
            yield Film(cell.task, cell.label, seed, _gif(Run(cell.logs[0].path), seed))
            made += 1
        except UserError as error:  # no policy was kept, or the task draws no pictures
            print(f"no film of {cell.label} on {cell.task}: {error}", file=sys.stderr)


def _gif(run: Run, seed: int) -> bytes:
    env = run.env()
    every, fps = assess.pace(env)
    frames = list(assess.film(env, run.policy(seed).actor, 0, every))
    skip = -(-len(frames) // FRAMES)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "film.gif"
        video.write(map(_shrunk, frames[::skip]), file, max(1, round(fps / skip)))
        return file.read_bytes()


def _shrunk(frame: np.ndarray) -> np.ndarray:
    """A picture of the width that a page has room for."""
    from PIL import Image

    picture = Image.fromarray(video.rgb(frame))
    picture.thumbnail((FILM_WIDTH, 10 * FILM_WIDTH))
    return np.asarray(picture)
