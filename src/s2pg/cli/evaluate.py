"""`s2pg eval`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

from s2pg.analysis.statistics import iqm
from s2pg.cli.train import pairs
from s2pg.errors import UserError
from s2pg.io import video
from s2pg.runs import assess
from s2pg.runs.run import Run

SCHEMA = 1
FIGURES = ("mean", "std", "min", "max")


@dataclass(frozen=True)
class Eval:
    """Evaluate the policies of a run, seed by seed, and film them.

    Figures are undiscounted returns of whole episodes. Every seed's policy plays the same episodes,
    none of which it was trained on. By default it acts deterministically: the mode of the action
    and of z'. The last line is the interquartile mean over seeds.

    Examples:
      s2pg eval runs/recall-ppo-s2pg --episodes 1000
      s2pg eval runs/recall-ppo-s2pg --seed 2 --video recall.gif
    """

    computes: ClassVar[bool] = True

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """run folder that `s2pg train` made"""
    episodes: Annotated[int, arg(metavar="N")] = 100
    """how many each policy plays"""
    stochastic: bool = False
    """draw actions and internal states, as in training"""
    seed: Annotated[int | None, arg(metavar="S", help_behavior_hint="(default: all)")] = None
    """training seed: whose policy to evaluate"""
    eval_seed: Annotated[int, arg(metavar="S")] = 0
    """which episodes: the same number gives the same ones"""
    options: Annotated[
        tuple[str, ...], arg(name="set", metavar="NAME=VALUE ...", help_behavior_hint="(default: as in training)")
    ] = ()
    """other options of the task than in training, such as backend=gymnasium or masses=0.3"""
    video: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: none)")] = None
    """film one episode into this .gif or .mp4, with the internal state z beneath"""
    json: bool = False
    """print JSON on stdout instead of a table"""

    def __call__(self) -> int:
        if self.episodes < 1:
            raise UserError(f"episodes must be 1 or more, not {self.episodes}")
        if not 0 <= self.eval_seed < 2**32:
            raise UserError(f"--eval-seed must lie between 0 and 2^32 - 1, not {self.eval_seed}")
        if self.video:
            video.check(self.video)
        run = Run(self.run)
        env = run.env(**pairs("--set", self.options))
        seeds = run.experiment.seeds if self.seed is None else (self.seed,)
        actors = {seed: run.policy(seed, explore=self.stochastic).actor for seed in seeds}
        for view in next(iter(actors.values())).reads:
            if env.spec.views[view] != run.spec.views[view]:
                raise UserError(f"with these options the view '{view}' is another than the policy was trained on")
        rows = []
        for seed, actor in actors.items():
            found = assess.played(env, actor, self.episodes, self.eval_seed)
            rows.append({"seed": seed} | {name: float(getattr(found.returns, name)()) for name in FIGURES})
            rows[-1]["length"] = float(found.lengths.mean())
            learned = {
                name: [round(float(x), 4) for x in np.ravel(values)] for name, values in actor.kernel.facts().items()
            }
            rows[-1] |= {"kernel": learned} if learned else {}
        middle = float(iqm(np.array([row["mean"] for row in rows])))
        if self.json:
            asked = {"episodes": self.episodes, "stochastic": self.stochastic, "eval_seed": self.eval_seed}
            print(json.dumps({"schema": SCHEMA, "run": str(self.run), **asked, "seeds": rows, "iqm": middle}, indent=2))
        else:
            Console().print(_table(rows), f"IQM over seeds: {middle:.4g}")
            for row in rows:
                for name, values in row.get("kernel", {}).items():
                    print(f"seed {row['seed']}: {name}: {' '.join(f'{x:.3g}' for x in values)}")
        if self.video:  # last: where a task cannot be drawn, its figures have been told
            every, fps = assess.pace(env)
            video.write(assess.film(env, actors[seeds[0]], self.eval_seed, every), self.video, fps)
            print(f"film: {self.video}", file=sys.stderr)
        return 0


def _table(rows: list[dict[str, Any]]) -> Table:
    shown = Table()
    for name in ("seed", *FIGURES, "length"):
        shown.add_column(name, justify="right")
    for row in rows:
        shown.add_row(str(row["seed"]), *(f"{row[name]:.4g}" for name in (*FIGURES, "length")))
    return shown
