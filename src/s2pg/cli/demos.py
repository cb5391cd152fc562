"""`s2pg demos`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from rich.console import Console
from tyro.conf import Positional, arg

from s2pg.analysis import demonstrations
from s2pg.demos import layout, read


@dataclass(frozen=True)
class Demos:
    """Look into a file of demonstrations: what it holds, and a picture of its first episodes.

    Reads the library's own .npz, clips, transitions and trajectories of LocoMuJoCo, and Minari's
    folders. Nothing in a file is executed.

    Examples:
      s2pg demos expert.npz
      s2pg demos expert.npz -o expert.png
    """

    computes: ClassVar[bool] = False

    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """file or Minari folder"""
    out: Annotated[Path | None, arg(aliases=("-o",), metavar="PICTURE", help_behavior_hint="(default: none)")] = None
    """picture to draw: .png, .pdf or .svg"""
    json: bool = False
    """print JSON on stdout instead of a table"""

    def __call__(self) -> int:
        found = read(self.file)
        told = {"file": str(self.file), "layout": layout(self.file), **demonstrations.facts(found)}
        if self.json:
            print(json.dumps({"schema": demonstrations.SCHEMA, **told}, indent=2))
        else:
            Console().print(demonstrations.table(told))
        if self.out:
            demonstrations.draw(found, self.out)
            if not self.json:
                print(f"picture: {self.out}")
        return 0
