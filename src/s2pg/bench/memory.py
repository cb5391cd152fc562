"""One PPO update over the same number of transitions (lanes x steps) under each memory rule.

The batch comes from pointmass-goal with its privileged critic; one epoch, four minibatches. A label may name its
kernel: "bptt-32 mingru" unrolls with an associative scan, "bptt-32" a GRU step by step.
"""

from __future__ import annotations

from typing import Any

import jax

from s2pg.bench.base import Settings, Workload
from s2pg.config import build, hyper, labels
from s2pg.envs.base import Env
from s2pg.envs.tasks import make
from s2pg.errors import UserError
from s2pg.rollout import collect, start
from s2pg.types import CRITIC

LABELS = (
    "none", "s2pg", "s2pg-pathwise", "bptt-5", "bptt-32", "bptt-128",
    "s2pg mingru", "bptt-32 mingru", "bptt-128 mingru",
)  # fmt: skip


def workloads(settings: Settings) -> dict[str, Workload]:
    """One update under each label."""
    env, width = make("pointmass-goal"), settings.width or 64
    sizes = {"lanes": settings.lanes, "steps": settings.steps, "width": width, "size": width}
    made: dict[str, Workload] = {}
    for case in settings.labels or LABELS:
        name, _, kernel = case.partition(" ")
        choice = labels.parse(name)
        made[case] = _update(env, choice, kernel or choice.label.kernel, sizes | {"epochs": 1, "minibatches": 4})
    return made


def _update(env: Any, choice: labels.Choice, kernel: str, given: dict[str, Any]) -> Workload:
    assert isinstance(env, Env)
    full = hyper.defaults("ppo", kernel) | given
    if choice.label.unrolls and choice.length > full["steps"]:
        raise UserError(f"memory '{choice.name}': a segment is longer than the rollout of {full['steps']} steps")
    algorithm = build.build("ppo", env.spec, choice, kernel, CRITIC, full)
    keys = jax.random.split(jax.random.key(0), 4)

    def prepare() -> tuple:
        state, plan = algorithm.init(env.spec, (), key=keys[0]), algorithm.plan
        actor = algorithm.actor(state.policy)
        _, batch, _ = collect(env, actor, start(env, actor, plan.lanes, keys[1]), plan.steps, keys[2])
        return state, batch

    # Once for all rounds: what is timed is learning, not collecting.
    state, batch = jax.block_until_ready(jax.jit(prepare)())
    update = jax.jit(algorithm.update)
    return Workload(lambda: update(state, batch, (), keys[3]))
