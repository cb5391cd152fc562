"""`s2pg bench`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from rich.console import Console
from rich.table import Table
from tyro.conf import OmitArgPrefixes, Positional, arg

from s2pg import bench
from s2pg.io.sinks import write_json


@dataclass(frozen=True)
class Bench:
    """Measure speed on this machine: all labels in one alternating run.

    Benchmarks:
      memory     one PPO update over the same transitions under each memory rule
      offpolicy  one SAC update with the authors' network sizes under each memory rule, the same with an
                 environment step for each, and the machine's rate for matrices; `none` has as many
                 parameters as s2pg
      imitation  the same for one LS-IQ update, with as many samples of an expert as of the policy
      envs       a step of each robot under random actions: sync and async (Gymnasium's own vector
                 environments), gymnasium (ours on the host) and, where there is an accelerator or
                 --labels asks for them, mjx and warp (ours on the device) and "mjx, ppo s2pg" (training
                 there)
      session    one step of a policy on its own: the actor handed over at every step, a session,
                 and the file that `s2pg export` writes, in onnxruntime

    Examples:
      s2pg bench memory --json > memory.json
      s2pg bench offpolicy
      s2pg bench envs --tasks halfcheetah ant
      s2pg bench session --tasks masked-pendulum --labels "s2pg gru" "s2pg ode" none
      s2pg bench envs --tasks ant --labels mjx warp "warp, ppo s2pg"
      s2pg bench envs --tasks ant --labels mjx "mjx, iterations=4"
    """

    computes: ClassVar[bool] = True

    name: Annotated[Positional[str], arg(metavar="NAME")]
    """which benchmark: memory, offpolicy, imitation, envs or session"""
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
            machine = f"{report['hardware']['device']}, {report['hardware']['cores']} cores"
            Console().print(f"{self.name}: {self.settings.rounds} rounds on {machine}", _table(report))
        return 0


def _milliseconds(seconds: float) -> str:
    own = 1e3 * seconds
    return f"{own:.2f}" if own >= 1 else f"{own:.3g}"  # steps of an environment take microseconds


COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "seconds": ("ms", _milliseconds),
    "spread": ("spread (IQR)", _milliseconds),
    "lanes": ("lanes", lambda x: f"{x:,}"),
    "steps_per_s": ("steps/s", lambda x: f"{x:,.0f}"),
    "ratio": ("ratio", lambda x: f"{x:.2f}"),
    "parameters": ("parameters", lambda x: f"{x:,}"),
    "gflop": ("GFLOP", lambda x: f"{x:.2f}"),
    "gflop_per_s": ("GFLOP/s", lambda x: f"{x:.1f}"),
    "share": ("share", lambda x: f"{x:.0%}"),
}


def _table(report: dict[str, Any]) -> Table:
    """The columns that any row has."""
    shown = Table("label")
    names = [name for name in COLUMNS if any(name in row for row in report["rows"])]
    for name in names:
        shown.add_column(COLUMNS[name][0], justify="right")
    for row in report["rows"]:
        shown.add_row(row["label"], *(COLUMNS[name][1](row[name]) if name in row else "" for name in names))
    return shown
