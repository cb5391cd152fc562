"""`s2pg export`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tyro.conf import Positional, arg

from s2pg.runs.export import Exported, export


@dataclass(frozen=True)
class Export:
    """Export a policy as one file that a robot runs, without JAX: ONNX.

    obs [1, N], state [1, M], first [1] -> action [1, A], next_state [1, M], all float32. Normaliser,
    previous action, scaling, clipping and the reset are inside: give the raw observation, hand the
    state back, set `first` to 1 where an episode begins. It acts as `s2pg eval` does, without
    noise. Before it is written, the file plays an episode beside the policy (with onnxruntime).

    Examples:
      s2pg export runs/recall-ppo-s2pg -o policy.onnx
      s2pg export runs/recall-ppo-s2pg --seed 2 --format stablehlo -o policy.stablehlo
    """

    computes: ClassVar[bool] = True

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """run folder that `s2pg train` made"""
    out: Annotated[Path, arg(aliases=("-o",), metavar="FILE")]
    """where to write it"""
    seed: Annotated[int | None, arg(metavar="S", help_behavior_hint="(default: the first)")] = None
    """training seed: whose policy to export"""
    format: Literal["onnx", "stablehlo"] = "onnx"
    """stablehlo is for programs that have JAX, on CPU or CUDA"""
    force: bool = False
    """write over a file that is there"""
    check: bool = True
    """play an episode to compare; leave out where the task cannot be run"""

    def __call__(self) -> int:
        began = time.perf_counter()
        made = export(self.run, self.out, seed=self.seed, format=self.format, force=self.force, check=self.check)
        print(_told(made, self.check, time.perf_counter() - began))
        return 0


def _told(made: Exported, asked: bool, seconds: float) -> str:
    facts = made.metadata
    returns = ", ".join(f"{name} {value:.4g}" for name, value in facts["returns"].items()) or "no returns noted"
    views = " + ".join(f"{view['name']} ({view['size']})" for view in facts["views"])
    shapes = ", ".join(f"{name} {list(shape)}" for name, shape in made.inputs.items())
    lines = [
        f"policy: {facts['algorithm']}, {facts['memory']}, {facts['kernel']} on {facts['task']}, seed {facts['seed']},"
        f" step {facts['step']}: {returns}",
        f"in:     {shapes}; obs = {views}",
        f"out:    action [1, {facts['action']['size']}], next_state {list(made.inputs['state'])}",
        f"file:   {made.path}, {made.size / 1e3:.0f} kB, {seconds:.1f} s",
    ]
    if found := made.difference:
        lines.append(
            f"check:  {found.steps} steps of an episode, largest difference {found.step:.1e} after one step,"
            f" {found.action:.1e} of actions over all"
        )
    else:
        why = "onnxruntime is not installed (pip install 's2pg[export]')" if asked else "as asked"
        lines.append(f"check:  none, {why}")
    return "\n".join(lines)
