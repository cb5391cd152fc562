"""`s2pg plot`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from rich.console import Console
from tyro.conf import Positional, arg

from s2pg.analysis import plots


@dataclass(frozen=True)
class Plot:
    """Compare runs: curves over steps and over seconds, and a table of where they ended.

    Lines are interquartile means over seeds, bands 95 % bootstrap intervals. Compilation is not
    counted (but for gym tasks).

    Example:
      s2pg plot runs/recall-ppo-* -o curves.png
    """

    computes: ClassVar[bool] = False

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN ...", help_behavior_hint="(required)")]
    """run folders that `s2pg train` made"""
    out: Annotated[Path, arg(aliases=("-o",), metavar="FILE")]
    """picture to draw: .png, .pdf or .svg"""
    value: Annotated[str, arg(metavar="NAME")] = "eval_return"
    """what to compare: eval_return, eval_return_stochastic, eval_length or train_return"""
    seconds: bool = True
    """draw against seconds too; leave out where runs shared a machine"""

    def __call__(self) -> int:
        plots.curves(self.runs, self.out, self.value, seconds=self.seconds)
        Console().print(plots.table(self.runs, self.value))
        print(f"plot: {self.out}")
        return 0
