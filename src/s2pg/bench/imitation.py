"""One LS-IQ update under each memory rule, `batch` samples of the policy and as many of an expert.

Everything but the objective is as in `offpolicy`; what the expert did does not matter to the time it takes.
"""

from __future__ import annotations

import jax

from s2pg.bench.base import Settings, Workload
from s2pg.bench.offpolicy import Trial, pointmass, update
from s2pg.envs.base import Env
from s2pg.rollout import collect, start
from s2pg.types import Expert

LABELS = ("none", "s2pg", "s2pg-8", "bptt-5", "bptt-32")
ROWS = 10_000  # of the expert


def workloads(settings: Settings) -> dict[str, Workload]:
    """One update under each label."""
    env = pointmass()
    trial = Trial("lsiq", env, settings, _demonstrations(Trial("sac", env, settings)))
    return {label: update(trial, trial.equal(label)) for label in settings.labels or LABELS}


def _demonstrations(trial: Trial) -> Expert:
    """What a policy does before any training."""
    algorithm, env = trial.built("none"), trial.env
    keys = jax.random.split(jax.random.key(0), 3)

    def play(env: Env) -> Expert:
        actor = algorithm.actor(algorithm.init_policy(env.spec, key=keys[0]))
        _, batch, _ = collect(env, actor, start(env, actor, 1, keys[1]), ROWS, keys[2])
        rows = Expert(batch.obs, batch.next_obs, batch.decision.action, batch.terminated, batch.first)
        return jax.tree.map(lambda leaf: leaf[:, 0], rows)

    return jax.jit(play)(env)
