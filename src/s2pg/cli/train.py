"""`s2pg train`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from tyro.conf import Positional, arg

from s2pg.cli.progress import Watch, watching
from s2pg.errors import DivergenceError, UserError
from s2pg.io.checkpoint import Checkpoints
from s2pg.runs.request import Request
from s2pg.runs.start import start
from s2pg.runs.training import CHECKPOINTS

PRESET = "(default: the preset's)"


def pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    """`k=32 cue=real` as a dict."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UserError(f"{option} takes NAME=VALUE, not '{text}'")
        if name in found:
            raise UserError(f"{option} names '{name}' twice")
        found[name] = value
    return found


@dataclass(frozen=True)
class Train:
    """Train a policy: one algorithm on one task under one memory rule, for some seeds.

    Everything left out comes from presets for the algorithm, the task and the memory rule.
    The run folder holds config.json, metrics.jsonl, TensorBoard events, checkpoints, and a policy per
    seed. Ctrl-C leaves a run that --resume goes on with, bit for bit.

    The three axes:
      ALGO      what the update is: ppo, trpo, sac, td3, ddpg, reinforce or gpomdp; or imitation of
                demonstrations: gail (around ppo), gail-trpo, lsiq (around sac), bc
      --memory  how z' is learned, and from which samples:
                  s2pg           drawn with the action; learned by the likelihood ratio over z' (ppo ...)
                                 or through dQ/dz' (sac, td3, ddpg), from single transitions
                  s2pg-pathwise  the same, but learned through dV/dz': needs a critic that knows
                                 (--critic critic), and ppo or trpo
                  s2pg-N         the same through N steps first, noise held fixed; then through dV/dz' or
                                 dQ/dz'
                  bptt-N         recomputed, and backpropagated through segments of N steps
                  bptt-N-last    the same, with the loss on the last step of each segment only
                  window-K       no memory but the last K observations
                  none           no memory: the current observation alone
                  oracle         no memory, but sees the full state: what memory could reach at best
      --kernel  what computes a and z': gru, lstm, rnn, mingru (unrolls in parallel), ode (a neural
                differential equation) or cpg (oscillators; on-policy) for s2pg and bptt;
                window for window-K, mlp for none and oracle

    Examples:
      s2pg train ppo --task recall --memory s2pg --set k=8 --seeds 0 1 2
      s2pg train ppo --task pointmass-goal --memory s2pg-pathwise --critic critic --steps 5000000
      s2pg train sac --task pointmass-goal
      s2pg train gail --task recall --memory bptt-8 --demos expert.npz --hyper judge_inputs=action
      s2pg train ppo --task gym:Pendulum-v1 --memory bptt-16 --set hide=2 --hyper learning_rate=1e-3
    """

    computes: ClassVar[bool] = True

    algorithm: Annotated[Positional[str], arg(metavar="ALGO")]
    """ppo, trpo, sac, td3, ddpg, reinforce, gpomdp, gail, lsiq, bc or distill"""
    task: Annotated[str, arg(metavar="TASK")]
    """a name from `s2pg list`, or gym:ID for whatever gymnasium.make takes"""
    memory: Annotated[str, arg(metavar="LABEL")] = "s2pg"
    """memory rule, see above"""
    kernel: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: the one that fits --memory)")] = (
        None
    )
    """what computes a and z', see above; `s2pg list KERNEL` shows its options"""
    critic: Annotated[str | None, arg(metavar="policy|critic", help_behavior_hint=PRESET)] = None
    """what the critic reads: the policy's view, or the full state (privileged)"""
    options: Annotated[
        tuple[str, ...], arg(name="set", metavar="NAME=VALUE ...", help_behavior_hint="(default: the task's)")
    ] = ()
    """options of the task, such as k=32 horizon=200 hide=2,3; `s2pg list TASK` shows them"""
    hyper: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE ...", help_behavior_hint=PRESET)] = ()
    """hyper-parameters of the algorithm and the kernel, such as lanes=64 learning_rate=1e-3; `s2pg list ALGO`
    and `s2pg list KERNEL` show them"""
    steps: Annotated[int | None, arg(metavar="N", help_behavior_hint=PRESET)] = None
    """environment steps of each seed"""
    seeds: Annotated[tuple[int, ...], arg(metavar="S ...")] = (0,)
    """one policy is trained for each, side by side"""
    episodes: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: 64, of gym tasks 10)")] = None
    """episodes of each evaluation on the way"""
    borders: Annotated[int, arg(metavar="N")] = 50
    """about how often to log, evaluate and checkpoint"""
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: runs/TASK-ALGO-LABEL[-KERNEL])")] = (
        None
    )
    """run folder; one that exists is never overwritten"""
    demos: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: none)")] = None
    """demonstrations that gail, lsiq and bc learn from: a file of `s2pg record`, a Minari folder ... (docs/demos.md);
    for distill, the run of the teacher"""
    log: Annotated[
        tuple[str, ...] | None, arg(metavar="NAME ...", help_behavior_hint="(default: tensorboard, where installed)")
    ] = None
    """trackers that get all metrics too: tensorboard, wandb (WANDB_MODE=offline needs no network)"""
    devices: Annotated[int, arg(metavar="N")] = 1
    """GPUs of this machine that share the environments (`lanes`, a multiple of N); for tasks on the device. Another
    number gives the same up to rounding, not bit for bit"""
    resume: bool = False
    """go on with the run in that folder, or start it; only --steps, --devices and --log may differ. Bit for bit an
    undisturbed run, unless --devices differs"""

    def __call__(self) -> int:
        request = Request(
            self.algorithm, self.task, pairs("--set", self.options), self.memory, self.kernel, self.critic,
            pairs("--hyper", self.hyper), self.steps, self.seeds, self.episodes, self.borders, self.out, self.resume,
            self.demos, self.log, self.devices,
        )  # fmt: skip
        out = request.folder
        with watching(f"{self.task} {self.algorithm} {self.memory}") as watch:
            try:
                start(request, report=watch.report, say=watch.say)
            except DivergenceError as error:
                raise DivergenceError(f"{error}; {_last_good(out)}") from error
            except KeyboardInterrupt:
                raise KeyboardInterrupt(stopped(watch)) from None
        where = shlex.quote(str(out))
        print(f"the run is in {where}; go on with\n  s2pg eval {where}\n  s2pg plot {where} -o curves.png")
        return 0


def stopped(watch: Watch) -> str:
    """What is said of a run that was stopped by Ctrl-C."""
    at = f"at step {watch.step:,}" if watch.step else "before the first new checkpoint"
    return f"stopped {at}; the same command goes on with --resume"


def _last_good(out: Path) -> str:
    files = Checkpoints(out / CHECKPOINTS)
    steps = files.steps()
    return f"last good checkpoint: {files.path(steps[-1])}" if steps else "there is no checkpoint yet"
