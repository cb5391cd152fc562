"""What a run imitates, demonstrations or a teacher: read, fitted to its task, and what differs said in a line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from s2pg.actor import Actor
from s2pg.algorithms import Algorithm, Imitator, Student
from s2pg.demos import Demonstrations, expert, read
from s2pg.envs.tasks import task_settings
from s2pg.errors import UserError
from s2pg.runs.experiment import Experiment
from s2pg.runs.run import Run
from s2pg.types import POLICY, Expert, Spec

# Options that change neither what an expert does nor what is seen of it: who simulates and how exactly, in what frames
# episodes begin, and what is rewarded. `hide` is the policy's view alone.
HARMLESS = {
    "backend", "iterations", "line_searches", "contacts", "constraints", "variants", "starts", "demos", "reward",
}  # fmt: skip
HIDE = "hide"


def demonstrated(
    algorithm: Algorithm, experiment: Experiment, spec: Spec, file: Path, say: Callable[[str], None]
) -> Expert | Actor:
    """Reads the demonstrations that an algorithm is to learn from, or the policy of a run that is to teach it."""
    if isinstance(algorithm, Student):
        return teacher(experiment, spec, file, say)
    if not isinstance(algorithm, Imitator):
        raise UserError(f"{experiment.algorithm} does not learn from demonstrations; gail, lsiq, bc and distill do")
    found = read(file)
    if not isinstance(found, Demonstrations):
        raise UserError(f"{file} holds motions, not demonstrations of a task: make some with s2pg record")
    views = algorithm.views_of_expert(spec, found.obs.keys())
    given = expert(found, spec, views)
    if found.task and found.task != experiment.task:
        say(f"{file} holds demonstrations of {found.task}, and this is {experiment.task}")
    elif differing := differences(found.notes.get("options"), experiment, POLICY in views):
        say(f"{file} was recorded with {_told(differing, 0)}, and this task has {_told(differing, 1)}")
    return jax.tree.map(jnp.asarray, given)


def teacher(experiment: Experiment, spec: Spec, folder: Path, say: Callable[[str], None]) -> Actor:
    """The policy of a run, of its best seed, which answers in this task's units to what this task shows."""
    run = Run(folder)
    if run.experiment.task != experiment.task:
        raise UserError(f"{folder} was trained on {run.experiment.task} and cannot teach {experiment.task}")
    if run.spec.action != spec.action:
        raise UserError(f"{folder} has other actions than this task: it cannot teach it")
    seed = run.best_seed
    actor = run.policy(seed).actor
    for view in actor.reads:
        if run.spec.views[view] != (has := spec.views.get(view, 0)):
            raise UserError(f"{folder} reads {run.spec.views[view]} entries of '{view}', and this task shows {has}")
    if differing := differences(run.experiment.options, experiment, POLICY in actor.reads):
        say(f"{folder} was trained with {_told(differing, 0)}, and this task has {_told(differing, 1)}")
    if (worth := run.returns.get(seed)) is not None:
        say(f"the teacher is seed {seed} of {folder}, with a return of {worth:.4g}")
    return actor


def _told(differing: dict[str, tuple[Any, Any]], which: int) -> str:
    return ", ".join(f"{name}={pair[which]}" for name, pair in differing.items())


def differences(recorded: Any, experiment: Experiment, reads_policy: bool) -> dict[str, tuple[Any, Any]]:
    """(recorded, trained on) of each option in which runs of the same task differ, as far as it matters."""
    if not isinstance(recorded, Mapping):  # not of our making
        return {}
    usual = {name: setting.default for name, setting in task_settings(experiment.task).items() if not setting.required}
    was, now = ({**usual, **options} for options in (recorded, experiment.options))
    names = [name for name in was.keys() | now.keys() if name not in HARMLESS and (name != HIDE or reads_policy)]
    pairs = {name: (was.get(name), now.get(name)) for name in sorted(names)}
    return {name: pair for name, pair in pairs.items() if _plain(pair[0]) != _plain(pair[1])}


def _plain(value: Any) -> Any:
    """A value as JSON gives it back: a list for a tuple, a number whether it is whole or not."""
    return json.loads(json.dumps(value, default=str))
