"""Makes an expert of a motion: a policy that sees everything, trained to follow it, and its episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from s2pg.demos import Demonstrations, files, recorder
from s2pg.envs.mujoco.bodies import BODIES, OWN
from s2pg.envs.tasks import make
from s2pg.errors import UserError, unknown
from s2pg.runs import training
from s2pg.runs.record import record
from s2pg.runs.request import Request
from s2pg.runs.start import start
from s2pg.types import Spec


def expert(
    task: str,
    out: str | Path,
    clip: str | Path = OWN,
    *,
    run: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    hyper: Mapping[str, Any] | None = None,
    steps: int | None = None,
    episodes: int = 64,
    noise: Sequence[float] = (0.0, 0.01, 0.02),
    seed: int = 0,
    borders: int = 50,
    report: Callable[[training.Border], None] = lambda border: None,
    say: Callable[[str], None] = print,
) -> Demonstrations:
    """Trains PPO `oracle` to follow a motion and records it, as demonstrations of the task without the motion.

    The run goes on where it was stopped; what it sees of the motion, phase and frame, is not in what is recorded.
    """
    if task not in BODIES:
        raise unknown("task that follows motions", task, BODIES)
    for name in ("demos", "reward"):
        if name in (options or {}):
            raise UserError(f"'{name}' of {task} is set by the expert: leave it out")
    folder = Path(run) if run else Path(out).with_suffix("")
    # By its whole name: the run is evaluated from other folders too.
    clip = clip if clip == OWN else Path(clip).resolve()
    for other, what in ((clip, "the motion"), (folder, "the run")):
        if Path(out).resolve() == Path(other).resolve():
            raise UserError(f"{out} is where {what} lies: name another file for the demonstrations")
    files.check(out)  # before minutes are spent
    recorder.check(episodes, noise)
    given = {**(options or {}), "demos": str(clip)}
    request = Request(
        "ppo", task, given | {"reward": "tracking"}, memory="oracle", hyper=hyper or {}, steps=steps, seeds=(seed,),
        borders=borders, out=folder, resume=True,
    )  # fmt: skip
    start(request, report=report, say=say)
    played = record(folder, episodes, noise=noise)
    made = without_motion(played, make(task, **given).spec)
    files.write(out, made)
    return made


def without_motion(played: Demonstrations, spec: Spec) -> Demonstrations:
    """Cuts off what only a task that follows a motion shows: it stands behind everything else."""

    def cut(views: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: view[:, : spec.views[name]] for name, view in views.items() if name in spec.views}

    options = {name: value for name, value in played.notes["options"].items() if name not in ("demos", "reward")}
    notes = dict(played.notes) | {"source": "s2pg expert", "options": options}
    return dataclasses.replace(played, obs=cut(played.obs), next_obs=cut(played.next_obs), notes=notes)
