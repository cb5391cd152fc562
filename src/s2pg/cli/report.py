"""`s2pg report`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from tyro.conf import Positional, arg

from s2pg.analysis.report import Film, Report, build, render
from s2pg.analysis.scale import ALL, Ends
from s2pg.errors import UserError
from s2pg.io.atomic import replacing
from s2pg.io.folder import READABLE

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
        film = _filmer() if self.films else None
        report = build(self.folders, READABLE, self.value, self.seconds, rules(self.normalise))
        if not report.found.cells:
            raise UserError(f"no run in {', '.join(map(str, self.folders))} has returns yet")
        if film:
            report = dataclasses.replace(report, films=list(film(report, self.films)))
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.out) as file:
            file.write(render(report).encode())
        print(f"report: {self.out}")
        return 0


def _filmer() -> Callable[[Report, int], Iterator[Film]]:
    """What films policies, if that can be done. It needs JAX, whose import takes longer than a page without films."""
    from s2pg.cli import films

    films.prepare()
    return films.of


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
