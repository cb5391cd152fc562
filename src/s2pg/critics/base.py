"""What a critic is: Q(s, z, u), one example per call. V(s, z) is Q of the empty decision, `NOTHING`.

A critic with a memory h of its own is cut like a kernel: `advance` needs h and runs in sequence, the value does not.
"""

# No postponed annotations here: Equinox knows an AbstractVar only by its value, not by its name.
import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.types import Decision, Obs, State

NOTHING = Decision((), ())


class Critic(eqx.Module):
    """Q(s, z, u). `features` are what kernels show of z; `decision` is (a, features of z') or a part of it."""

    reads: eqx.AbstractVar[tuple[str, ...]]  # the views it looks at

    @abstractmethod
    def initial(self) -> State:
        """h_0, `()` for a critic without a memory of its own."""

    @abstractmethod
    def advance(self, obs: Obs, h: State) -> State:
        """h with an observation taken in."""

    @abstractmethod
    def __call__(self, obs: Obs, h: State, features: Array, decision: Decision) -> Array:
        """The value; h has taken `obs` in already."""


@runtime_checkable
class CriticBuilder(Protocol):
    """Makes a critic from the sizes of the views, of what kernels show of z, and of the decision as critics see it."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The views its critics look at."""
        ...

    def __call__(self, views: dict[str, int], features: int, decision: Decision, key: PRNGKeyArray) -> Critic: ...


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A `CriticBuilder`: a class of critics and what to build it with."""

    kind: Callable[..., Critic]
    reads: tuple[str, ...]
    options: tuple[tuple[str, int], ...] = ()

    def __call__(self, views: dict[str, int], features: int, decision: Decision, key: PRNGKeyArray) -> Critic:
        return self.kind(views, features, decision, key, reads=self.reads, **dict(self.options))


class Values(NamedTuple):
    """V at every step, with the critic's memory before (`h`) and after (`next_h`) it."""

    value: Array
    h: State
    next_h: State


def state_value(critic: Critic, obs: Obs, features: Array, h: State) -> tuple[Array, State]:
    """(V(s, z), h'), from the memory h before `obs` is taken in."""
    h = critic.advance(obs, h)
    return critic(obs, h, features, NOTHING), h


def unroll(critic: Critic, obs: Obs, features: Array, head: State, stored: State, restart: Array) -> Values:
    """Values along one trajectory [T]; where `restart` is set, the `stored` memory replaces the running one.

    A plain critic has no memory and runs over all steps at once.
    """
    if not jax.tree.leaves(head):
        value = jax.vmap(lambda obs, features: critic(obs, (), features, NOTHING))(obs, features)
        return Values(value, (), ())

    def step(h: State, inputs: tuple) -> tuple[State, Values]:
        obs, features, stored, restart = inputs
        h = jax.tree.map(lambda kept, new: jnp.where(restart, kept, new), stored, h)
        value, next_h = state_value(critic, obs, features, h)
        return next_h, Values(value, h, next_h)

    _, values = jax.lax.scan(step, head, (obs, features, stored, restart))
    return values


def histories(critic: Critic, obs: Obs, valid: Array) -> State:
    """The critic's memory with each observation [n] taken in, from its initial one; padding passes it on."""
    start = critic.initial()
    if not jax.tree.leaves(start):
        return ()

    def step(h: State, inputs: tuple) -> tuple[State, State]:
        obs, valid = inputs
        new = jax.tree.map(lambda new, old: jnp.where(valid, new, old), critic.advance(obs, h), h)
        return new, new

    return jax.lax.scan(step, start, (obs, valid))[1]
