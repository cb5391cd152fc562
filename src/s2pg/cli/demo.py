"""`s2pg demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from rich.console import Console
from tyro.conf import arg

from s2pg import demo
from s2pg.cli.progress import watching


@dataclass(frozen=True)
class Demo:
    """Watch memory being learned: PPO on recall, four memory labels side by side.

    A walker sees a colour in the first cell of a corridor and has to name it in the last. Leaves a
    table, a plot of the learning curves and a film, with the internal state z beneath the picture.
    """

    computes: ClassVar[bool] = True

    out: Annotated[Path, arg(metavar="DIR")] = Path("demo")
    """where to leave them; what an earlier demo left there is replaced"""
    quick: bool = False
    """a few thousand steps only: shows that everything works, learns nothing"""

    def __call__(self) -> int:
        done = demo.run(self.out, watching, self.quick)
        Console().print(done.table)
        print("see", ", ".join(map(str, done.files)))
        return 0
