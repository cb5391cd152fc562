"""`s2pg report`."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from tyro.conf import Positional, arg

from s2pg.analysis.report import Film, Report, build, render
from s2pg.analysis.scale import ALL, Ends
from s2pg.configure import compilation_cache
from s2pg.errors import UserError
from s2pg.io import video
from s2pg.io.atomic import replacing
from s2pg.runs import assess
from s2pg.runs.experiment import READABLE
from s2pg.runs.run import Run

FRAMES, FILM_WIDTH = 60, 240  # that a film in a page has at most
Folders = Annotated[Positional[tuple[Path, ...]], arg(metavar="FOLDER ...", help_behavior_hint="(required)")]
Normalise = Annotated[
    tuple[str, str] | None,
    arg(metavar="LOW HIGH", help_behavior_hint="(default: as the study says, or the range that was seen)"),
]


@dataclass(frozen=True)
class MakeReport:
    """Compare runs in one page: who is ahead and how sure that is, curves, profiles, settings.

    The page is a single file that needs no network. It shows all runs below the folders, a study's
    or any others. Runs that differ in their seeds alone count as one. Normalised returns are 0 and 1
    where the study's [normalise] or --normalise puts them, otherwise at the lowest and highest point
    of any curve. docs/reports.md says what is compared, and how.

    Examples:
      s2pg report runs -o report.html
      s2pg report studies/memory --films 4 -o memory.html
      s2pg report benchmarks/robots/warp --normalise none oracle -o robots.html
    """

    computes: ClassVar[bool] = False  # but for films

    folders: Folders
    """folders with runs in them, or below them"""
    out: Annotated[Path, arg(aliases=("-o",), metavar="FILE")] = Path("report.html")
    """page to write"""
    value: Annotated[str, arg(metavar="NAME")] = "eval_return"
    """what to compare: eval_return, eval_return_stochastic, eval_length or train_return"""
    normalise: Normalise = None
    """what counts as 0 and as 1 on every task: returns, or memory labels such as none and oracle"""
    seconds: bool = True
    """show times too; leave out where runs shared a machine"""
    films: Annotated[int, arg(metavar="N")] = 0
    """film so many policies, the best of each task first"""

    def __call__(self) -> int:
        if not self.folders:
            raise UserError("no folder was named")
        if self.films < 0:
            raise UserError(f"--films must be 0 or more, not {self.films}")
        if self.films:
            video.check(Path("film.gif"))
            compilation_cache()
        report = build(self.folders, READABLE, self.value, self.seconds, rules(self.normalise))
        if not report.found.cells:
            raise UserError(f"no run in {', '.join(map(str, self.folders))} has returns yet")
        report = dataclasses.replace(report, films=list(_films(report, self.films)))
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.out) as file:
            file.write(render(report).encode())
        print(f"report: {self.out}")
        return 0


def rules(given: tuple[str, str] | None) -> dict[str, Ends]:
    """What `--normalise` says, for all tasks."""
    if given is None:
        return {}
    floor, ceiling = (_number_or_label(text) for text in given)
    return {ALL: (floor, ceiling)}


def _number_or_label(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _films(report: Report, most: int) -> Iterator[Film]:
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
