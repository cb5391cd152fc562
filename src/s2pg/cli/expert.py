"""`s2pg expert`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from rich.console import Console
from tyro.conf import Positional, arg

from s2pg.analysis import demonstrations
from s2pg.cli.progress import watching
from s2pg.cli.train import PRESET, pairs
from s2pg.envs.mujoco.bodies import OWN
from s2pg.runs.expert import expert


@dataclass(frozen=True)
class MakeExpert:
    """Make an expert: train a policy that sees everything to follow a motion, and record its episodes.

    PPO learns `oracle` on the task with reward=tracking; its run lies beside the file, or in --run,
    and the same command goes on with it after Ctrl-C. Episodes are recorded at several levels of
    noise on the actions, since one that never stumbles shows nobody how to recover. What is
    recorded holds neither the phase nor the frame of the motion: gail, lsiq and bc learn from it.

    Examples:
      s2pg expert humanoid-ages -o walkers.npz
      s2pg expert humanoid-ages -o runners.npz --set gait=run
      s2pg expert atlas-carry --clip walk.npz -o carriers.npz --episodes 40 --noise 0 0.005 0.01
    """

    computes: ClassVar[bool] = True

    task: Annotated[Positional[str], arg(metavar="TASK")]
    """humanoid-ages or atlas-carry"""
    out: Annotated[str, arg(aliases=("-o",), metavar="FILE")]
    """where to write the demonstrations"""
    clip: Annotated[str, arg(metavar="FILE", help_behavior_hint="(default: one that comes with the task)")] = OWN
    """the motion, an .npz file with members q_JOINT and dq_JOINT"""
    run: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: FILE without its ending)")] = None
    """run folder of the training"""
    options: Annotated[
        tuple[str, ...], arg(name="set", metavar="NAME=VALUE ...", help_behavior_hint="(default: the task's)")
    ] = ()
    """options of the task, such as gait=run or size=0.6"""
    hyper: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE ...", help_behavior_hint=PRESET)] = ()
    """hyper-parameters of the training"""
    steps: Annotated[int | None, arg(metavar="N", help_behavior_hint=PRESET)] = None
    """environment steps of the training"""
    episodes: Annotated[int, arg(metavar="N")] = 64
    """how many to record"""
    noise: Annotated[tuple[float, ...], arg(metavar="X ...")] = (0.0, 0.01, 0.02)
    """noise on actions, in units of half their range; episodes take the levels in turn"""
    seed: Annotated[int, arg(metavar="S")] = 0
    """training seed"""
    borders: Annotated[int, arg(metavar="N")] = 50
    """about how often to log, evaluate and checkpoint"""

    def __call__(self) -> int:
        with watching(f"{self.task} expert") as watch:
            made = expert(
                self.task, self.out, self.clip, run=self.run, options=pairs("--set", self.options),
                hyper=pairs("--hyper", self.hyper), steps=self.steps, episodes=self.episodes, noise=self.noise,
                seed=self.seed, borders=self.borders, report=watch.report, say=watch.say,
            )  # fmt: skip
        Console().print(demonstrations.table(demonstrations.facts(made)))
        whole = np.array([not made.terminated[part.stop - 1] for part in made.episodes])
        print(f"{whole.sum()} of {len(whole)} episodes did not end in a fall; demonstrations: {self.out}")
        return 0
