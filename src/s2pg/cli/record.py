"""`s2pg record`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from rich.console import Console
from tyro.conf import Positional, arg

from s2pg.analysis import demonstrations
from s2pg.cli.train import pairs
from s2pg.runs.record import record


@dataclass(frozen=True)
class Record:
    """Record demonstrations: whole episodes of a trained policy, into a file that imitation learns from.

    All views are kept, and actions as they were executed. Episodes are others than those of
    training and of `s2pg eval`. A name that ends in .npz gets the library's own layout, one that
    ends in / or .minari a folder in Minari's.

    Examples:
      s2pg record runs/recall-ppo-s2pg -o expert.npz --episodes 100
      s2pg record runs/ant-ppo-oracle -o expert.npz --episodes 40 --noise 0 0.1 0.3
    """

    computes: ClassVar[bool] = True

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """run folder that `s2pg train` made"""
    out: Annotated[str, arg(aliases=("-o",), metavar="FILE")]
    """where to write them"""
    episodes: Annotated[int, arg(metavar="N")] = 100
    """how many to play"""
    stochastic: bool = False
    """draw actions and internal states, as in training"""
    noise: Annotated[tuple[float, ...], arg(metavar="X ...", help_behavior_hint="(default: none)")] = ()
    """noise on actions, in units of half their range; episodes take several levels in turn"""
    seed: Annotated[int | None, arg(metavar="S", help_behavior_hint="(default: the best)")] = None
    """training seed: whose policy to record"""
    record_seed: Annotated[int, arg(metavar="S")] = 0
    """which episodes: the same number gives the same ones"""
    options: Annotated[
        tuple[str, ...], arg(name="set", metavar="NAME=VALUE ...", help_behavior_hint="(default: as in training)")
    ] = ()
    """other options of the task than in training"""

    def __call__(self) -> int:
        found = record(
            self.run, self.episodes, self.out, seed=self.seed, record_seed=self.record_seed,
            stochastic=self.stochastic, noise=self.noise, options=pairs("--set", self.options),
        )  # fmt: skip
        Console().print(demonstrations.table(demonstrations.facts(found)))
        print(f"demonstrations: {self.out}")
        return 0
