"""The kernel pi(a, z' | o, z): what every policy of this library is.

A kernel is three maps, so that a rule which unrolls time runs only the middle one in sequence:

    x   = embed(o)         what can be computed without z
    eta = advance(x, z)    the mean of the next internal state
    (a, z') ~ emit(x, eta) the action head may read eta, never the drawn z'

a and z' are conditionally independent given (o, z).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from s2pg.distributions import Distribution
from s2pg.heads import Heads
from s2pg.types import State


class Step(NamedTuple):
    """One call of a kernel: distributions over a and z'; z' is a plain pytree where it is no random variable."""

    action: Distribution
    state: Distribution | State


class Kernel(eqx.Module):
    """pi(a, z' | o, z) for one example, no batch axis."""

    # A stateful kernel has a z' worth drawing or unrolling; the others only carry the past along.
    stateful: ClassVar[bool] = True
    # Whether gradients may flow back through `advance` over many steps. S2PG never asks for it.
    unrolls: ClassVar[bool] = True
    # Whether eta lies in [-1, 1], where SAC, TD3 and DDPG keep z.
    bounded: ClassVar[bool] = True

    @abstractmethod
    def initial(self) -> State:
        """z_0."""

    @abstractmethod
    def embed(self, obs: Array) -> PyTree:
        """What can be computed without z."""

    @abstractmethod
    def advance(self, x: PyTree, z: State) -> State:
        """eta, the mean of z'."""

    @abstractmethod
    def emit(self, x: PyTree, eta: State) -> Step:
        """The distributions of a and z'."""

    def __call__(self, obs: Array, z: State) -> Step:
        x = self.embed(obs)
        return self.emit(x, self.advance(x, z))

    def unroll(self, x: PyTree, stored: State, restart: Array, noise: State | None = None) -> tuple[State, State]:
        """(z, eta) of n steps in sequence, from their embedded observations.

        z is `stored` where `restart` is set, at the first step always, and else eta of the step before, with its noise.
        """
        if restart.shape[0] == 1:
            return stored, jax.vmap(self.advance)(x, stored)

        def step(before: State, at: tuple) -> tuple[State, tuple[State, State]]:
            x, stored, restart, noise = at
            z = jax.tree.map(lambda kept, new: jnp.where(restart, kept, new), stored, before)
            eta = self.advance(x, z)
            after = eta if noise is None else jax.tree.map(jnp.add, eta, noise)
            return after, (z, eta)

        head = jax.tree.map(lambda leaf: leaf[0], stored)
        return jax.lax.scan(step, head, (x, stored, restart, noise))[1]

    def features(self, z: State) -> Float[Array, " features"]:
        """What critics see of z."""
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(z)] or [jnp.zeros(0)])

    def facts(self) -> dict[str, Array]:
        """What was learned that a person would want to be told, such as frequencies; nothing by default."""
        return {}


@runtime_checkable
class KernelBuilder(Protocol):
    """Makes a kernel that reads a vector of `inputs` numbers."""

    def __call__(self, inputs: int, heads: Heads, key: PRNGKeyArray) -> Kernel: ...
