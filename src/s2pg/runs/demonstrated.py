"""Demonstrations of a run: read, fitted to its task, and what differs from it said in a line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from s2pg.algorithms import Algorithm, Imitator
from s2pg.demos import Demonstrations, expert, read
from s2pg.envs.tasks import task_settings
from s2pg.errors import UserError
from s2pg.runs.experiment import Experiment
from s2pg.types import POLICY, Expert, Spec

# Options that change neither what an expert does nor what is seen of it: who simulates and how exactly, in what frames
# episodes begin, and what is rewarded. `hide` is the policy's view alone.
HARMLESS = {
    "backend", "iterations", "line_searches", "contacts", "constraints", "variants", "starts", "demos", "reward",
}  # fmt: skip
HIDE = "hide"


def demonstrated(
    algorithm: Algorithm, experiment: Experiment, spec: Spec, file: Path, say: Callable[[str], None]
) -> Expert:
    """Reads the demonstrations that an algorithm is to learn from."""
    if not isinstance(algorithm, Imitator):
        raise UserError(f"{experiment.algorithm} does not learn from demonstrations; gail, lsiq and bc do")
    found = read(file)
    if not isinstance(found, Demonstrations):
        raise UserError(f"{file} holds motions, not demonstrations of a task: make some with s2pg record")
    views = algorithm.views_of_expert(spec, found.obs.keys())
    given = expert(found, spec, views)
    if found.task and found.task != experiment.task:
        say(f"{file} holds demonstrations of {found.task}, and this is {experiment.task}")
    elif differing := differences(found, experiment, POLICY in views):
        was, now = (", ".join(f"{name}={pair[i]}" for name, pair in differing.items()) for i in (0, 1))
        say(f"{file} was recorded with {was}, and this task has {now}")
    return jax.tree.map(jnp.asarray, given)


def differences(found: Demonstrations, experiment: Experiment, reads_policy: bool) -> dict[str, tuple[Any, Any]]:
    """(recorded, trained on) of each option in which demonstrations of the same task differ, as far as it matters."""
    recorded = found.notes.get("options")
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
