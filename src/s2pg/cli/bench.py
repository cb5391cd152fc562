"""`s2pg bench`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from rich.console import Console
from rich.table import Table
from tyro.conf import OmitArgPrefixes, Positional, arg

from s2pg.io.sinks import write_json
from s2pg.study import bench


@dataclass(frozen=True)
class Bench:
    """Measure speed on this machine: all labels in one alternating run.

    Benchmarks:
      memory  the time of one PPO update over the same transitions under each memory rule

    Example:
      s2pg bench memory --json > memory.json
    """

    computes: ClassVar[bool] = True

    name: Annotated[Positional[str], arg(metavar="NAME")]
    """which benchmark: memory"""
    settings: OmitArgPrefixes[bench.Settings] = field(default_factory=bench.Settings)
    json: bool = False
    """print JSON on stdout instead of a table"""
    out: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: none)")] = None
    """write the JSON to this file as well"""

    def __call__(self) -> int:
        console = Console(stderr=True)
        with console.status("compiling") as status:
            told = lambda done: status.update(f"round {max(done, 0)} of {self.settings.rounds}")  # noqa: E731
            report = bench.run(self.name, self.settings, told)
        if self.out:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.out, report)
        if self.json:
            print(json.dumps(report, indent=2))
        else:
            size = f"{self.settings.lanes} lanes x {self.settings.steps} steps, {self.settings.rounds} rounds"
            machine = f"{report['hardware']['device']}, {report['hardware']['cores']} cores"
            Console().print(f"{self.name}: {size}, on {machine}", _table(report))
        return 0


def _table(report: dict[str, Any]) -> Table:
    shown = Table()
    shown.add_column("label")
    for name in ("ms", "spread (IQR)", "ratio"):
        shown.add_column(name, justify="right")
    for row in report["rows"]:
        shown.add_row(row["label"], f"{1e3 * row['seconds']:.2f}", f"{1e3 * row['spread']:.2f}", f"{row['ratio']:.2f}")
    return shown
