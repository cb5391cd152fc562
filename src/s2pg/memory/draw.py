"""S2PG: the next internal state is drawn with the action, and learns by the likelihood ratio."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.distributions import Normal
from s2pg.heads import Drawn, StateHeadBuilder
from s2pg.kernel import Kernel
from s2pg.memory.base import (
    DecisionRule,
    Evaluation,
    Sample,
    Segments,
    Spans,
    consecutive,
)
from s2pg.types import Decision, State


class DrawRule(DecisionRule):
    """(a, z') is drawn, so a gradient needs single transitions only: by the likelihood ratio over z' as over a.

    Off policy z' learns through dQ/dz'.
    """

    @property
    def spans(self) -> Spans:
        return Spans()

    def segments(self, steps: int, lanes: int) -> Segments:
        return consecutive(1, steps, lanes)

    def state_head(self, drawn: Drawn) -> StateHeadBuilder:
        return drawn(self.state_log_std, True)

    def act(self, kernel: Kernel, obs: Array, z: State, key: PRNGKeyArray | None) -> tuple[Decision, State, Decision]:
        decision, log_prob = self.draw(kernel(obs, z), key)
        return decision, decision.state, log_prob

    def evaluate(self, kernel: Kernel, sample: Sample) -> Evaluation:
        # One example at a time, log-probabilities too: what all examples share (sigma) is then computed once.
        def one(obs: Array, z: State, decision: Decision, next_z: State, valid: Array) -> Evaluation:
            now = kernel(obs, z)
            state = now.state
            assert isinstance(state, Normal), "a drawn state is a normal one"
            log_prob = Decision(now.action.log_prob(decision.action), state.log_prob(decision.state))
            entropy = Decision(now.action.entropy(), state.entropy())
            return Evaluation(now, z, next_z, log_prob, entropy, jnp.zeros(()), valid)

        return jax.vmap(one)(sample.obs, sample.z, sample.decision, sample.next_z, sample.valid)
