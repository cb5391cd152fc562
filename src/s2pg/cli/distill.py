"""`s2pg distill`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from tyro.conf import Positional, arg

from s2pg.cli.progress import watching
from s2pg.cli.train import PRESET, pairs, stopped
from s2pg.runs.request import Request
from s2pg.runs.run import Run
from s2pg.runs.start import start


@dataclass(frozen=True)
class Distill:
    """Teach what a run can do to a policy with memory, which may see less than its teacher.

    The student acts, and learns what the teacher would have done where it came to (DAgger). Train the
    teacher where the full state is known, `--memory oracle`; the student then needs the policy's view
    alone. It is an ordinary run: `s2pg eval`, `s2pg plot` and --resume work on it.

    Examples:
      s2pg train ppo --task pointmass-goal --memory oracle --out teacher
      s2pg distill teacher --memory bptt-32
      s2pg distill teacher --memory window-8 --steps 500000 --seeds 0 1 2
    """

    computes: ClassVar[bool] = True

    teacher: Annotated[Positional[Path], arg(metavar="RUN")]
    """run folder of the teacher; the best of its seeds teaches"""
    memory: Annotated[str, arg(metavar="LABEL")] = "bptt-32"
    """memory of the student: bptt-N, window-K, none or oracle"""
    kernel: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: the one that fits --memory)")] = (
        None
    )
    """what computes a and z'"""
    options: Annotated[
        tuple[str, ...], arg(name="set", metavar="NAME=VALUE ...", help_behavior_hint="(default: the teacher's)")
    ] = ()
    """options of the task that differ from the teacher's, such as hide=velocities"""
    hyper: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE ...", help_behavior_hint=PRESET)] = ()
    """hyper-parameters; `s2pg list distill` shows them"""
    steps: Annotated[int | None, arg(metavar="N", help_behavior_hint=PRESET)] = None
    """environment steps of each seed"""
    seeds: Annotated[tuple[int, ...], arg(metavar="S ...")] = (0,)
    """one student is trained for each, side by side"""
    episodes: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: 64, of gym tasks 10)")] = None
    """episodes of each evaluation on the way"""
    borders: Annotated[int, arg(metavar="N")] = 20
    """about how often to log, evaluate and checkpoint"""
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: runs/TASK-distill-LABEL)")] = None
    """run folder"""
    log: Annotated[
        tuple[str, ...] | None, arg(metavar="NAME ...", help_behavior_hint="(default: tensorboard, where installed)")
    ] = None
    """trackers that get all metrics too: tensorboard, wandb (WANDB_MODE=offline needs no network)"""
    resume: bool = False
    """go on with the run in that folder, or start it; only --steps and --log may differ"""

    def __call__(self) -> int:
        taught = Run(self.teacher).experiment
        request = Request(
            "distill", taught.task, taught.options | pairs("--set", self.options), self.memory, self.kernel, None,
            pairs("--hyper", self.hyper), self.steps, self.seeds, self.episodes, self.borders, self.out, self.resume,
            self.teacher, self.log,
        )  # fmt: skip
        with watching(f"{taught.task} distill {self.memory}") as watch:
            try:
                start(request, report=watch.report, say=watch.say)
            except KeyboardInterrupt:
                raise KeyboardInterrupt(stopped(watch)) from None
        where = shlex.quote(str(request.folder))
        print(f"the run is in {where}; go on with\n  s2pg eval {where}")
        return 0
