"""One step of a policy as a robot takes it, one observation after the other: by a session, and by an exported file.

The first row of each label hands the actor over at every step, as a call under `eqx.filter_jit` does; sessions are
compiled over its weights instead. A label may name its kernel: "s2pg lstm".
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from s2pg.actor import Actor
from s2pg.bench.base import Settings, Workload
from s2pg.config import build, hyper, labels
from s2pg.envs.tasks import make
from s2pg.io import export
from s2pg.runs.session import LoadedPolicy
from s2pg.types import POLICY, PREVIOUS_ACTION, Space

LABELS, TASKS, STEPS = ("s2pg gru",), ("recall",), 20


def workloads(settings: Settings) -> dict[str, Workload]:
    """Steps of each policy, by each way to take them."""
    made: dict[str, Workload] = {}
    for task in settings.tasks or TASKS:
        for case in settings.labels or LABELS:
            policy = _policy(task, case, settings.width)
            ways = {"actor as an argument": _by_argument(policy), "session": policy.session()}
            if all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime")):
                ways["exported, onnxruntime"] = _exported(policy)
            facts = {"pieces": STEPS, "piece": "steps", "against": f"{task}, {case}: {next(iter(ways))}"}
            obs = np.zeros(policy.flat.size, np.float32)
            for way, act in ways.items():
                made[f"{task}, {case}: {way}"] = Workload(_many(act, obs), facts)
    return made


def _many(act: Callable[[np.ndarray], Any], obs: np.ndarray) -> Callable[[], None]:
    def work() -> None:
        for _ in range(STEPS):
            act(obs)

    return work


def _policy(task: str, case: str, width: int) -> LoadedPolicy:
    """One that has not been trained: what it computes takes as long."""
    name, _, kernel = case.partition(" ")
    choice, spec = labels.parse(name), make(task).spec
    kernel = kernel or choice.label.kernel
    given = hyper.defaults("ppo", kernel) | ({"width": width, "size": width} if width else {})
    algorithm = build.build("ppo", spec, choice, kernel, POLICY, given)
    return LoadedPolicy(algorithm.actor(algorithm.init_policy(spec, key=jax.random.key(0)), False), spec)


def _by_argument(policy: LoadedPolicy) -> Callable[[np.ndarray], np.ndarray]:
    z, previous, actor = policy.actor.initial(), np.zeros(policy.spec.action.size, np.float32), policy.actor
    name, first, key = next(iter(policy.flat.views)), np.asarray(False), jax.random.key(0)

    def act(obs: np.ndarray) -> np.ndarray:
        nonlocal z, previous, key
        seen = {name: obs, PREVIOUS_ACTION: previous}
        action, previous, z, key = _decide(actor, policy.spec.action, seen, z, first, key)
        return np.asarray(action)

    return act


@eqx.filter_jit
def _decide(actor: Actor, space: Space, obs: Any, z: Any, first: Any, key: Any) -> tuple:
    key, own = jax.random.split(key)
    decision, z, _ = actor(obs, actor.fresh(first, z), own)
    return space.execute(decision.action), space.encode(decision.action), z, key


def _exported(policy: LoadedPolicy) -> Callable[[np.ndarray], np.ndarray]:
    play = export.player(export.encode(policy.flat, "onnx", {}), "onnx")
    state, never = policy.flat.initial[None], np.zeros(1, np.float32)

    def act(obs: np.ndarray) -> np.ndarray:
        nonlocal state
        action, state = play(obs[None], state, never)
        return action

    return act
