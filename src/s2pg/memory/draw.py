"""S2PG: the next internal state is drawn with the action."""

from __future__ import annotations

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.distributions import Normal
from s2pg.heads import Drawn, StateHeadBuilder
from s2pg.kernel import Kernel, Step
from s2pg.memory.base import (
    Evaluation,
    Memory,
    ReplayEvaluation,
    ReplaySample,
    Sample,
    Segments,
    Spans,
    consecutive,
    mix,
)
from s2pg.options import option
from s2pg.types import Decision, State


class NoisyState(NamedTuple):
    """z' = mean + noise, kept apart: what the pathwise estimator needs of the drawn state."""

    mean: Array
    noise: Array


class DrawRule(Memory):
    """(a, z') is drawn, so a gradient needs single transitions only.

    On policy, `score` takes the likelihood ratio over z'. `pathwise` lets z' = eta + noise reach the future through
    V(s', z'): no ratio over z', a differentiable `next_z` instead, noise of fixed size.

    Off policy, z' of a replayed transition is drawn anew and written back: (1 - refresh) old + refresh new. That is
    sound because reward and next observation do not depend on z' given a. `refresh_noise` draws it with its noise,
    otherwise it is the mode; `refresh_first` lets the critic learn from the new z' at once, otherwise from the old.
    """

    estimator: Literal["score", "pathwise"] = eqx.field(static=True, default="score")
    state_log_std: float = option(-1.5, "log standard deviation of z' under s2pg and s2pg-pathwise (there fixed)")
    refresh: float = option(
        1.0, "tau_z: how far a replayed z' moves to a new draw; 0: stored states stay as they were", low=0, high=1,
        replay=True,
    )  # fmt: skip
    refresh_noise: bool = option(True, "draw it with its noise, instead of taking the mode", replay=True)
    refresh_first: bool = option(
        True, "the critic learns from the new z' at once, instead of from the stored one", replay=True
    )

    @property
    def pathwise(self) -> bool:
        return self.estimator == "pathwise"

    @property
    def spans(self) -> Spans:
        return Spans()

    def segments(self, steps: int, lanes: int) -> Segments:
        return consecutive(1, steps, lanes)

    def halves(self, action: object, state: object) -> Decision:
        return Decision(action, state)

    def state_head(self, drawn: Drawn) -> StateHeadBuilder:
        return drawn(self.state_log_std, not self.pathwise)

    def draw(self, step: Step, key: PRNGKeyArray | None) -> tuple[Decision, Decision]:
        action_key, state_key = (None, None) if key is None else jax.random.split(key)
        action, action_log_prob = step.action.draw(action_key)
        state, state_log_prob = step.state.draw(state_key)
        return Decision(action, state), Decision(action_log_prob, state_log_prob)

    def act(self, kernel: Kernel, obs: Array, z: State, key: PRNGKeyArray | None) -> tuple[Decision, State, Decision]:
        step = kernel(obs, z)
        decision, log_prob = self.draw(step, key)
        next_z = decision.state
        if self.pathwise:
            mean = step.state.mode()
            return decision._replace(state=NoisyState(mean, next_z - mean)), next_z, log_prob._replace(state=())
        return decision, next_z, log_prob

    def evaluate(self, kernel: Kernel, sample: Sample) -> Evaluation:
        # One example at a time, log-probabilities too: what all examples share (sigma) is then computed once.
        def one(obs: Array, z: State, decision: Decision, next_z: State, valid: Array) -> Evaluation:
            now = kernel(obs, z)
            state = now.state
            assert isinstance(state, Normal), "a drawn state is a normal one"
            log_prob, entropy = now.action.log_prob(decision.action), Decision(now.action.entropy(), state.entropy())
            if self.pathwise:
                drawn: NoisyState = decision.state
                drift = jnp.sum(((state.mean - drawn.mean) * jnp.exp(-state.log_std)) ** 2)
                return Evaluation(now, z, state.mean + drawn.noise, Decision(log_prob), entropy, drift, valid)
            log_probs = Decision(log_prob, state.log_prob(decision.state))
            return Evaluation(now, z, next_z, log_probs, entropy, jnp.zeros(()), valid)

        return jax.vmap(one)(sample.obs, sample.z, sample.decision, sample.next_z, sample.valid)

    def stored(self, z: State) -> State:
        return z

    def unfold(self, kernel: Kernel, sample: ReplaySample, key: PRNGKeyArray | None) -> ReplayEvaluation:
        now = kernel(sample.obs[0], sample.z)
        next_z, fresh = sample.next_z, ()
        if key is not None and self.refresh > 0.0:
            drawn, _ = now.state.draw(key if self.refresh_noise else None)
            fresh = mix(next_z, jax.lax.stop_gradient(drawn), self.refresh)
            next_z = fresh if self.refresh_first else next_z
        ahead = kernel(sample.obs[1], next_z)
        now, ahead, z, next_z = jax.tree.map(lambda leaf: leaf[None], (now, ahead, sample.z, next_z))
        return ReplayEvaluation(now, ahead, z, next_z, fresh)
