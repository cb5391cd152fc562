"""Output heads: from a kernel's last hidden layer and eta to distributions of a and z'.

An algorithm chooses them: unsquashed normals on policy, normals behind a tanh for SAC, noisy points for TD3.
A head of z' reads (eta, hidden); eta is its mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from s2pg.distributions import (
    NEVER,
    Categorical,
    Categoricals,
    ClippedNormal,
    Distribution,
    Normal,
    PointMass,
    TanhNormal,
)
from s2pg.networks import Linear
from s2pg.types import Discrete, MultiDiscrete, Space, State

ActionHead = Callable[[Array], Distribution]
StateHead = Callable[[State, Array], Distribution]
ActionHeadBuilder = Callable[[int, PRNGKeyArray], ActionHead]  # (size of the hidden layer, key)
StateHeadBuilder = Callable[[int, int, PRNGKeyArray], StateHead]  # (size of z, size of the hidden layer, key)
Drawn = Callable[[float, bool], StateHeadBuilder]  # (log standard deviation, whether it is learned)

LOG_STD_RANGE = (-20.0, 2.0)  # of standard deviations that depend on the context


class Heads(NamedTuple):
    """What an algorithm and a memory rule ask of a kernel: builders of its two output heads."""

    action: ActionHeadBuilder
    state: StateHeadBuilder


# On policy -----------------------------------------------------------------------------------------------------------


class NormalHead(eqx.Module):
    """Diagonal normal over actions with a learned standard deviation that does not depend on the context."""

    mean: Linear
    log_std: Float[Array, " size"]

    def __call__(self, hidden: Array) -> Normal:
        return Normal(self.mean(hidden), self.log_std)


class CategoricalHead(eqx.Module):
    """Logits of a discrete action."""

    logits: Linear

    def __call__(self, hidden: Array) -> Categorical:
        return Categorical(self.logits(hidden))


class CategoricalsHead(eqx.Module):
    """Logits of the axes of a discrete action, one axis behind the other."""

    logits: Linear
    sizes: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, hidden: Array) -> Categoricals:
        # In rows of one length: one softmax serves all axes, however many there are.
        there = np.arange(max(self.sizes)) < np.asarray(self.sizes)[:, None]
        place = np.cumsum(there).reshape(there.shape) - 1
        return Categoricals(Categorical(jnp.where(there, self.logits(hidden)[place], NEVER)))


def plain_action_head(space: Space, log_std: float) -> ActionHeadBuilder:
    """The unsquashed action head; its mean starts near 0 so that first ratios are tame."""

    def build(inputs: int, key: PRNGKeyArray) -> ActionHead:
        last = Linear(inputs, space.size, key=key, gain=0.01)
        match space:
            case Discrete():
                return CategoricalHead(last)
            case MultiDiscrete():
                return CategoricalsHead(last, space.sizes)
        return NormalHead(last, jnp.full(space.size, log_std))

    return build


class StateNoise(eqx.Module):
    """z' ~ N(eta, Upsilon), Upsilon = diag(exp(2 log_std)); `learned` decides whether Upsilon is trained."""

    log_std: Float[Array, " size"]
    learned: bool = eqx.field(static=True)

    def __call__(self, eta: Array, hidden: Array) -> Normal:
        return Normal(eta, self.log_std if self.learned else jax.lax.stop_gradient(self.log_std))


def plain_state_head(log_std: float, learned: bool) -> StateHeadBuilder:
    """The head of a state drawn around eta, on policy."""
    return lambda size, inputs, key: StateNoise(jnp.full(size, log_std), learned)


def quieter(network: PyTree, fall: Array) -> PyTree:
    """The same with the noise of every z' whose Upsilon is not trained smaller by exp(-fall)."""
    fixed = lambda part: isinstance(part, StateNoise) and not part.learned  # noqa: E731
    lower = lambda part: StateNoise(part.log_std - fall, part.learned) if fixed(part) else part  # noqa: E731
    return jax.tree.map(lower, network, is_leaf=fixed)


class NoNoise(eqx.Module):
    """z' = eta: no parameters, for rules that recompute the state."""

    def __call__(self, eta: State, hidden: Array) -> PointMass:
        return PointMass(eta)


def no_noise(size: int, inputs: int, key: PRNGKeyArray) -> NoNoise:
    """The head of a state that is not drawn."""
    return NoNoise()


# SAC -----------------------------------------------------------------------------------------------------------------


def _bounded(log_std: Array) -> Array:
    return jnp.clip(log_std, *LOG_STD_RANGE)


class SquashedHead(eqx.Module):
    """a = tanh(N(mean, std)), both from the context."""

    last: Linear
    start: float = eqx.field(static=True)  # log standard deviation before any training

    def __call__(self, hidden: Array) -> TanhNormal:
        mean, log_std = jnp.split(self.last(hidden), 2)
        return TanhNormal(Normal(mean, _bounded(self.start + log_std)))


class SquashedStateHead(eqx.Module):
    """z' = tanh(N(arctanh(0.999 eta), std)): within [-1, 1], and eta again where there is no noise.

    Without the arctanh, z would pass a second tanh at every step, and be forgotten.
    """

    log_std: Linear
    start: float = eqx.field(static=True)

    def __call__(self, eta: Array, hidden: Array) -> TanhNormal:
        mean = jnp.arctanh(0.999 * jnp.clip(eta, -1.0, 1.0))
        return TanhNormal(Normal(mean, _bounded(self.start + self.log_std(hidden))))


def squashed_action_head(space: Space, log_std: float) -> ActionHeadBuilder:
    """The head of actions behind a tanh."""
    return lambda inputs, key: SquashedHead(Linear(inputs, 2 * space.size, key=key, gain=0.01), log_std)


def squashed_state_head(log_std: float, learned: bool) -> StateHeadBuilder:
    """The head of a state drawn behind a tanh."""
    return lambda size, inputs, key: SquashedStateHead(Linear(inputs, size, key=key, gain=0.01), log_std)


# TD3 and DDPG --------------------------------------------------------------------------------------------------------


class NoisyHead(eqx.Module):
    """a = tanh(W x), explored around with normal noise of a fixed size."""

    last: Linear
    std: float = eqx.field(static=True)

    def __call__(self, hidden: Array) -> ClippedNormal:
        return ClippedNormal(jnp.tanh(self.last(hidden)), self.std)


class NoisyStateHead(eqx.Module):
    """z' = eta, explored around with normal noise of a fixed size."""

    std: float = eqx.field(static=True)

    def __call__(self, eta: Array, hidden: Array) -> ClippedNormal:
        return ClippedNormal(eta, self.std)


def noisy_action_head(space: Space, log_std: float) -> ActionHeadBuilder:
    """The head of deterministic actions."""
    return lambda inputs, key: NoisyHead(Linear(inputs, space.size, key=key, gain=0.01), math.exp(log_std))


def noisy_state_head(log_std: float, learned: bool) -> StateHeadBuilder:
    """The head of deterministic states."""
    return lambda size, inputs, key: NoisyStateHead(math.exp(log_std))
