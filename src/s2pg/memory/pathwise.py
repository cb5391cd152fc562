"""S2PG over N steps: the next internal state is drawn, and gradients flow back through it with its noise held fixed."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from s2pg.distributions import Normal
from s2pg.heads import Drawn, StateHeadBuilder
from s2pg.kernel import Kernel, Step
from s2pg.memory.base import (
    DecisionRule,
    Evaluation,
    Sample,
    Segments,
    Spans,
    consecutive,
    restarts,
)
from s2pg.types import Decision, State


class NoisyState(NamedTuple):
    """z' = mean + noise, kept apart."""

    mean: Array
    noise: Array


class PathwiseRule(DecisionRule):
    """z' = eta + noise reaches the future through N steps, and beyond them through V(s', z').

    A sample is N consecutive steps, through which the kernel is unrolled with the stored noise. z' has no ratio, its
    noise a fixed size. At the last step of a sample, and where an episode ends within it, z' hands its gradient on to
    whoever asks what comes after; between these it does not, since the steps that follow count themselves.
    """

    length: int = eqx.field(static=True, default=1)

    @property
    def spans(self) -> Spans:
        return Spans(self.length, self.length)

    def segments(self, steps: int, lanes: int) -> Segments:
        return consecutive(self.length, steps, lanes)

    def state_head(self, drawn: Drawn) -> StateHeadBuilder:
        return drawn(self.state_log_std, False)

    def act(self, kernel: Kernel, obs: Array, z: State, key: PRNGKeyArray | None) -> tuple[Decision, State, Decision]:
        step = kernel(obs, z)
        decision, log_prob = self.draw(step, key)
        mean, next_z = step.state.mode(), decision.state
        return decision._replace(state=NoisyState(mean, next_z - mean)), next_z, log_prob._replace(state=())

    def evaluate(self, kernel: Kernel, sample: Sample) -> Evaluation:
        stored: NoisyState = sample.decision.state
        x = jax.vmap(kernel.embed)(sample.obs)
        z, eta = kernel.unroll(x, sample.z, restarts(sample.first, sample.valid), stored.noise)

        def one(x: PyTree, eta: State, action: Array, mean: Array) -> tuple[Step, Decision, Decision, Array]:
            now = kernel.emit(x, eta)
            state = now.state
            assert isinstance(state, Normal), "a drawn state is a normal one"
            drift = jnp.sum(((state.mean - mean) * jnp.exp(-state.log_std)) ** 2)
            entropy = Decision(now.action.entropy(), state.entropy())
            return now, Decision(now.action.log_prob(action)), entropy, drift

        now, log_prob, entropy, drift = jax.vmap(one)(x, eta, sample.decision.action, stored.mean)
        next_z = shielded(now.state.mode() + stored.noise, ends(sample.first, sample.valid))
        return Evaluation(now, jax.lax.stop_gradient(z), next_z, log_prob, entropy, drift, sample.valid)


def ends(first: Array, valid: Array) -> Array:
    """Steps of a sample [n] that nothing in it follows: its last, and the last of every episode."""
    follows = valid[1:] & ~first[1:]
    return valid & ~jnp.append(follows, False)


def shielded(leaf: Array, open: Array) -> Array:
    """Values [n, ...] that hand a gradient on where `open` is set."""
    return jnp.where(open.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, jax.lax.stop_gradient(leaf))
