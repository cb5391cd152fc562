"""Benchmarks by name: how long one thing takes under each memory label, all measured in one alternating run.

A report is `{schema, name, hardware, versions, settings, rows: [{label, seconds, spread, ratio}]}`, with the median
of the rounds, their interquartile range, and the ratio to the first label.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np

from s2pg.envs.base import Env
from s2pg.envs.tasks import make
from s2pg.errors import UserError, unknown
from s2pg.rollout import collect, start
from s2pg.study import methods, provenance
from s2pg.types import CRITIC

SCHEMA = 1


@dataclass(frozen=True)
class Settings:
    """How much is measured, and with which networks."""

    rounds: int = 20
    """how often each label is timed, in turn with the others"""
    lanes: int = 64
    """environments side by side"""
    steps: int = 128
    """steps of each: lanes x steps transitions are learnt from"""
    width: int = 64
    """units of each layer and of the internal state"""
    labels: tuple[str, ...] = ("none", "s2pg", "s2pg-pathwise", "bptt-5", "bptt-32", "bptt-128")
    """memory labels to compare; ratios are to the first"""

    def __post_init__(self) -> None:
        for name in ("rounds", "lanes", "steps", "width"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} of a benchmark must be 1 or more, not {getattr(self, name)}")
        if not self.labels or len(set(self.labels)) < len(self.labels):
            raise UserError(f"labels of a benchmark must be one or more, and different, not {list(self.labels)}")


def memory(settings: Settings) -> dict[str, Callable[[], Any]]:
    """One PPO update over the same number of transitions (lanes x steps) under each memory rule.

    The batch comes from pointmass-goal with its privileged critic; one epoch, four minibatches.
    """
    env = make("pointmass-goal")
    sizes = {"lanes": settings.lanes, "steps": settings.steps, "width": settings.width, "size": settings.width}
    hyper = methods.hyper_defaults("ppo") | sizes | {"epochs": 1, "minibatches": 4}
    return {label: _update(env, methods.parse(label), hyper) for label in settings.labels}


def _update(env: Any, label: methods.Label, hyper: dict[str, Any]) -> Callable[[], Any]:
    assert isinstance(env, Env)
    if label.kind == "bptt" and label.length > hyper["steps"]:
        raise UserError(f"memory '{label.name}': a segment is longer than the rollout of {hyper['steps']} steps")
    algorithm = methods.build("ppo", env.spec, label, label.default_kernel, CRITIC, hyper)
    keys = jax.random.split(jax.random.key(0), 4)

    def prepare() -> tuple:
        state = algorithm.init(env.spec, key=keys[0])
        actor = algorithm.actor(state)
        _, batch, _ = collect(env, actor, start(env, actor, algorithm.lanes, keys[1]), algorithm.steps, keys[2])
        return state, batch

    # Once for all rounds: what is timed is learning, not collecting.
    state, batch = jax.block_until_ready(jax.jit(prepare)())
    update = jax.jit(algorithm.update)
    return lambda: update(state, batch, keys[3])


BENCHES: dict[str, Callable[[Settings], dict[str, Callable[[], Any]]]] = {"memory": memory}


def run(name: str, settings: Settings, report: Callable[[int], None] = lambda done: None) -> dict[str, Any]:
    """Times every label of a benchmark in turn, round after round, so that a busy moment hits all of them alike."""
    if name not in BENCHES:
        raise unknown("benchmark", name, BENCHES)
    timed = BENCHES[name](settings)
    seconds: dict[str, list[float]] = {label: [] for label in timed}
    for number in range(-2, settings.rounds):  # two rounds to compile and warm up
        for label, work in timed.items():
            began = time.perf_counter()
            jax.block_until_ready(work())
            if number >= 0:
                seconds[label].append(time.perf_counter() - began)
        report(number + 1)
    medians = {label: float(np.median(each)) for label, each in seconds.items()}
    first = next(iter(medians.values()))
    rows = [
        {
            "label": label,
            "seconds": medians[label],
            "spread": float(np.subtract(*np.quantile(each, (0.75, 0.25)))),
            "ratio": medians[label] / first,
        }
        for label, each in seconds.items()
    ]
    facts = {"hardware": provenance.hardware(), "versions": provenance.versions(), "settings": asdict(settings)}
    return {"schema": SCHEMA, "name": name, **facts, "rows": rows}
