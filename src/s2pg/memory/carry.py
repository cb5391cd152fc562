"""Window, memoryless, oracle: the next internal state is a parameter-free function of the past."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.kernel import Kernel
from s2pg.memory.base import (
    ActionRule,
    Evaluation,
    ReplayEvaluation,
    ReplaySample,
    Sample,
    Segments,
    Spans,
    consecutive,
    judge,
    walk,
)
from s2pg.types import Decision, State


class CarryRule(ActionRule):
    """z' is no part of the decision. Out of a replay buffer it is rebuilt from the `history` observations before."""

    history: int = eqx.field(static=True, default=0)

    @property
    def spans(self) -> Spans:
        return Spans(rows=self.history + 1)

    def segments(self, steps: int, lanes: int) -> Segments:
        return consecutive(1, steps, lanes)

    def act(self, kernel: Kernel, obs: Array, z: State, key: PRNGKeyArray | None) -> tuple[Decision, State, Decision]:
        step = kernel(obs, z)
        decision, log_prob = self.draw(step, key)
        return decision, step.state, log_prob

    def evaluate(self, kernel: Kernel, sample: Sample) -> Evaluation:
        one = jax.vmap(lambda obs, z, u: judge(kernel(obs, z), u))
        now, log_prob, entropy = one(sample.obs, sample.z, sample.decision)
        return Evaluation(now, sample.z, sample.next_z, log_prob, entropy, jnp.zeros(sample.valid.shape), sample.valid)

    def stored(self, z: State) -> State:
        return ()

    def unfold(self, kernel: Kernel, sample: ReplaySample, key: PRNGKeyArray | None) -> ReplayEvaluation:
        z = kernel.initial()
        if self.history:
            z, _, _ = walk(kernel, jax.vmap(kernel.embed)(sample.obs[: self.history]), sample.valid[:-1], z)
        obs, next_obs = sample.obs[self.history :]
        now = kernel(obs, z)
        ahead = kernel(next_obs, now.state)
        now, ahead, z, next_z = jax.tree.map(lambda leaf: leaf[None], (now, ahead, z, now.state))
        return ReplayEvaluation(now, ahead, z, next_z, ())
