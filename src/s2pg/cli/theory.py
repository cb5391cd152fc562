"""`s2pg theory`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from tyro.conf import Positional, arg

from s2pg.errors import UserError, unknown
from s2pg.io import provenance
from s2pg.io.sinks import write_json
from s2pg.theory import figures, studies

SCHEMA = 1
QUICK = {"lengths": (2, 4, 8), "trajectories": 64, "seeds": 2}


class Study(NamedTuple):
    """A figure by name: what measures, draws and tabulates it."""

    run: Callable[..., dict[str, Any]]
    draw: Callable[[dict[str, Any], Path], None]
    table: Callable[[dict[str, Any]], Table]
    sizes: studies.Settings  # what it takes to see something


@dataclass(frozen=True)
class Theory:
    """Draw the theory: variance of gradient estimators with their bounds, bias of truncation.

    Figures:
      variance  measured variance of BPTT and S2PG and their bounds against trajectory length, for
                kernels with Z below, at and above 1, and against the noise of z
      bias      how far truncated BPTT is off the true gradient, against where it is cut and against
                trajectory length; S2PG, whole BPTT and the pathwise estimator are not

    Examples:
      s2pg theory variance
      s2pg theory bias --out bias.pdf --json bias.json
    """

    computes: ClassVar[bool] = True

    name: Annotated[Positional[str], arg(metavar="NAME")]
    """which figure: variance or bias"""
    out: Annotated[Path | None, arg(aliases=("-o",), metavar="FILE", help_behavior_hint="(default: NAME.png)")] = None
    """picture to draw: .png, .pdf or .svg"""
    json: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: beside the picture)")] = None
    """where the numbers go"""
    lengths: Annotated[
        tuple[int, ...], arg(metavar="T ...", help_behavior_hint="(default: 4 to 64; bias: 4 to 32)")
    ] = ()
    """trajectory lengths"""
    trajectories: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: 2000; bias: 8000)")] = None
    """trajectories of each seed"""
    seeds: int = 8
    """seeds, all at once"""
    seed: int = 0
    """where the seeds start"""
    discount: float = 0.99
    """gamma"""
    action_std: float = 0.5
    """standard deviation of the action, the square root of Sigma"""
    state_std: float = 0.3
    """standard deviation of z, the square root of Upsilon"""
    quick: bool = False
    """a few short trajectories, whatever else is said: shows that it works, nothing else"""

    def __call__(self) -> int:
        if self.name not in STUDIES:
            raise unknown("figure", self.name, STUDIES)
        study, out = STUDIES[self.name], self.out or Path(f"{self.name}.png")
        settings, beside = self._settings(study.sizes), self.json or out.with_suffix(".json")
        if beside == out:
            raise UserError(f"figure and numbers cannot both go to {out}")
        figures.figure(out, 1, 1, (1.0, 1.0))  # what cannot be drawn is said before minutes are spent
        with _watching(f"theory {self.name}") as report:
            found = study.run(settings, report)
        facts = {"hardware": provenance.hardware(), "versions": provenance.versions(), "settings": asdict(settings)}
        for path in (out, beside):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_json(beside, {"schema": SCHEMA, "name": self.name, **facts, **found})
        study.draw(found, out)
        Console().print(study.table(found))
        print(f"figure: {out}\nnumbers: {beside}")
        return 0

    def _settings(self, sizes: studies.Settings) -> studies.Settings:
        given = {"lengths": self.lengths or sizes.lengths, "seeds": self.seeds, "seed": self.seed}
        given |= {"trajectories": sizes.trajectories if self.trajectories is None else self.trajectories}
        given |= {"discount": self.discount, "action_std": self.action_std, "state_std": self.state_std}
        settings = studies.Settings(**given)
        return replace(settings, **QUICK) if self.quick else settings


@contextlib.contextmanager
def _watching(name: str) -> Iterator[studies.Report]:
    """A bar on a terminal, a line for every measurement elsewhere; on stderr, as stdout is for results."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text, done, total: console.print(f"{name}: {done}/{total} {text}", soft_wrap=True)
        return
    columns = TextColumn("{task.description}"), BarColumn(None), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, expand=True) as bar:
        task = bar.add_task(name)
        yield lambda text, done, total: bar.update(task, description=f"{name}: {text}", completed=done, total=total)


def _variances(found: dict[str, Any]) -> Table:
    shown = Table(
        "map", "Z", "estimator", title="measured variance over its bound, and its growth", title_justify="left"
    )
    for name in ("Lyapunov", "largest share of bound", "growth rate", "growth power"):
        shown.add_column(name, justify="right")
    for case in found["cases"]:
        for row in case["rows"]:
            slopes = [f"{row[key]:.3f}" if key in row else "" for key in ("rate", "power")]
            share, exponent = f"{max(row['shares']):.2g}", f"{case['lyapunov']:.3f}"
            shown.add_row(case["map"], f"{case['z']:g}", row["estimator"], exponent, share, *slopes)
    return shown


def _biases(found: dict[str, Any]) -> Table:
    rows = found["rows"]
    shown = Table("estimator", title="relative bias (largest deviation in standard errors)", title_justify="left")
    for length in sorted({row["length"] for row in rows}):
        shown.add_column(f"T = {length}", justify="right")
    for label in dict.fromkeys(row["estimator"] for row in rows):
        cells = [f"{row['bias']:.3f} ({row['standard_errors']:.1f})" for row in rows if row["estimator"] == label]
        shown.add_row(label, *cells)
    return shown


STUDIES = {
    "variance": Study(studies.variance, figures.variance, _variances, studies.Settings()),
    "bias": Study(
        studies.bias, figures.bias, _biases, studies.Settings(lengths=(4, 8, 16, 32), trajectories=8000)
    ),
}  # fmt: skip
