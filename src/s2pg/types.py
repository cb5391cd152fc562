"""The nouns of the library: decisions, transitions, time steps and the spaces they live in.

A stateful policy is one Markov kernel (a, z') ~ pi(. | o, z). The pair u = (a, z') is its *decision*.
Everything an algorithm weighs per half of a decision (log-probabilities, temperatures, noise, entropy
weights) is a `Decision` too; a half that does not exist is `()`, which has no leaves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

State = PyTree  # z, the internal state of a policy: any pytree of arrays, `()` if there is none
Obs = dict[str, Array]  # one flat vector per named view

POLICY, CRITIC, PREVIOUS_ACTION = "policy", "critic", "previous_action"


class Decision(NamedTuple):
    """u = (a, z'), or anything that has one part for each half of it."""

    action: Any
    state: Any = ()


def total(decision: Decision) -> Array:
    """Adds the leaves up: log pi(a, z' | x) from its two halves; a missing half counts nothing."""
    return sum(jax.tree.leaves(decision), start=jnp.zeros(()))


def weighted(weights: Decision, decision: Decision) -> Array:
    """The sum over the halves there are, each times its weight: alpha^a log pi(a | x) + alpha^z log pi(z' | x)."""
    return total(jax.tree.map(jnp.multiply, weights, decision))


class Timestep(NamedTuple):
    """What an environment returns: `obs` after an autoreset, `last_obs` before it."""

    obs: Obs
    last_obs: Obs
    reward: Array
    terminated: Array
    truncated: Array
    first: Array
    diverged: Any = ()  # whether a simulation broke down and ended the episode, where it can


class Transition(NamedTuple):
    """One step of experience; `next_obs` and `next_z` are those before a reset."""

    obs: Obs
    z: State
    decision: Decision
    log_prob: Decision
    reward: Array
    terminated: Array
    truncated: Array
    next_obs: Obs
    next_z: State
    first: Array


class Box(eqx.Module):
    """Continuous actions. Policies speak in units where the bounds are -1 and 1; axes without both are left alone."""

    low: tuple[float, ...] = eqx.field(static=True)
    high: tuple[float, ...] = eqx.field(static=True)
    shape: tuple[int, ...] | None = eqx.field(static=True, default=None)  # the environment's own; None: a vector

    @property
    def size(self) -> int:
        return len(self.low)

    def encode(self, action: Array) -> Array:
        """The executed action in policy units: what a recurrent policy reads as its previous action."""
        low, high = jnp.asarray(self.low), jnp.asarray(self.high)
        bounded = jnp.isfinite(low) & jnp.isfinite(high)
        return jnp.clip(action, jnp.where(bounded, -1.0, low), jnp.where(bounded, 1.0, high))

    def execute(self, action: Array) -> Array:
        """The action in the environment's own units, clipped to its bounds."""
        low, high = jnp.asarray(self.low), jnp.asarray(self.high)
        bounded = jnp.isfinite(low) & jnp.isfinite(high)
        middle, half = (low + high) / 2, (high - low) / 2
        action = self.encode(action)
        # Clipped again, since middle + half may round past a bound, which strict environments refuse.
        own = jnp.clip(jnp.where(bounded, middle + half * action, action), low, high)
        return own if self.shape is None else own.reshape(self.shape)


class Discrete(eqx.Module):
    """Actions 0 ... n-1, which the environment counts from `start`."""

    n: int = eqx.field(static=True)
    start: int = eqx.field(static=True, default=0)

    @property
    def size(self) -> int:
        return self.n

    def encode(self, action: Array) -> Array:
        return jax.nn.one_hot(action, self.n)

    def execute(self, action: Array) -> Array:
        return action + self.start


class Spec(eqx.Module):
    """What an algorithm must know of an environment: view sizes, action space, longest episode, seconds a step."""

    views: dict[str, int] = eqx.field(static=True)
    action: Box | Discrete
    horizon: int = eqx.field(static=True)
    dt: float = eqx.field(static=True, default=1.0)  # 1 where time has no unit


def read(obs: Obs, groups: tuple[str, ...]) -> Float[Array, "*batch size"]:
    """The views a network reads, side by side in one vector."""
    return jnp.concatenate([obs[group] for group in groups], axis=-1)
