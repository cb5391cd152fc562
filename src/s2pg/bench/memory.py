"""One PPO update over the same number of transitions (lanes x steps) under each memory rule.

The batch comes from pointmass-goal with its privileged critic; one epoch, four minibatches. A label may name its
kernel: "bptt-32 mingru" unrolls with an associative scan, "bptt-32" a GRU step by step.
"""

from __future__ import annotations

from typing import Any

import jax

from s2pg.bench.base import Settings, Workload
from s2pg.config import methods
from s2pg.envs.base import Env
from s2pg.envs.tasks import make
from s2pg.errors import UserError
from s2pg.rollout import collect, start
from s2pg.types import CRITIC

LABELS = (
    "none", "s2pg", "s2pg-pathwise", "bptt-5", "bptt-32", "bptt-128",
    "s2pg mingru", "bptt-32 mingru", "bptt-128 mingru",
)  # fmt: skip


def memory(settings: Settings) -> dict[str, Workload]:
    env, width = make("pointmass-goal"), settings.width or 64
    sizes = {"lanes": settings.lanes, "steps": settings.steps, "width": width, "size": width}
    made: dict[str, Workload] = {}
    for case in settings.labels or LABELS:
        name, _, kernel = case.partition(" ")
        label = methods.parse(name)
        made[case] = _update(env, label, kernel or label.default_kernel, sizes | {"epochs": 1, "minibatches": 4})
    return made


def _update(env: Any, label: methods.Label, kernel: str, given: dict[str, Any]) -> Workload:
    assert isinstance(env, Env)
    hyper = methods.hyper_defaults("ppo", kernel) | given
    if label.kind == "bptt" and label.length > hyper["steps"]:
        raise UserError(f"memory '{label.name}': a segment is longer than the rollout of {hyper['steps']} steps")
    algorithm = methods.build("ppo", env.spec, label, kernel, CRITIC, hyper)
    keys = jax.random.split(jax.random.key(0), 4)

    def prepare() -> tuple:
        state = algorithm.init(env.spec, key=keys[0])
        actor = algorithm.actor(state)
        _, batch, _ = collect(env, actor, start(env, actor, algorithm.lanes, keys[1]), algorithm.steps, keys[2])
        return state, batch

    # Once for all rounds: what is timed is learning, not collecting.
    state, batch = jax.block_until_ready(jax.jit(prepare)())
    update = jax.jit(algorithm.update)
    return Workload(lambda: update(state, batch, keys[3]))
