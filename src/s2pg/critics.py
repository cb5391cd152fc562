"""State-value critics V(s, z): one example per call, (obs, features of z, h) -> (value, h')."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.networks import GRU, MLP, Linear
from s2pg.types import Obs, State, read


class Critic(eqx.Module):
    """V(s, z); h is the critic's own memory, () for plain ones."""

    @abstractmethod
    def initial(self) -> State: ...

    @abstractmethod
    def __call__(self, obs: Obs, features: Array, h: State) -> tuple[Array, State]: ...


@runtime_checkable
class CriticBuilder(Protocol):
    """Makes a critic for the given view sizes; `features` is the size of what kernels show of z."""

    def __call__(self, views: dict[str, int], features: int, key: PRNGKeyArray) -> Critic: ...


class PlainCritic(Critic):
    """A perceptron over the views it reads and, if `reads_state`, the features of z."""

    body: MLP
    reads: tuple[str, ...] = eqx.field(static=True)
    reads_state: bool = eqx.field(static=True)

    def __init__(
        self,
        views: dict[str, int],
        features: int,
        key: PRNGKeyArray,
        *,
        reads: tuple[str, ...],
        reads_state: bool,
        width: int = 64,
    ):
        self.reads, self.reads_state = reads, reads_state
        inputs = sum(views[name] for name in reads) + features * reads_state
        self.body = MLP([inputs, width, width, 1], key=key, last_gain=0.1)

    def initial(self) -> tuple[()]:
        return ()

    def __call__(self, obs: Obs, features: Array, h: tuple[()]) -> tuple[Array, tuple[()]]:
        x = read(obs, self.reads)
        return self.body(jnp.concatenate([x, features]) if self.reads_state else x)[0], ()


class RecurrentCritic(Critic):
    """A critic with a GRU of its own: the unprivileged critic of unrolled policies."""

    encoder: Linear
    cell: GRU
    body: MLP
    reads: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        views: dict[str, int],
        features: int,
        key: PRNGKeyArray,
        *,
        reads: tuple[str, ...],
        size: int = 64,
        width: int = 64,
    ):
        encoder, cell, body = jax.random.split(key, 3)
        self.reads = reads
        inputs = sum(views[name] for name in reads)
        self.encoder = Linear(inputs, width, key=encoder, gain=2.0**0.5)
        self.cell = GRU(width, size, key=cell)
        self.body = MLP([inputs + size, width, 1], key=body, last_gain=0.1)

    def initial(self) -> Array:
        return jnp.zeros(self.cell.size)

    def __call__(self, obs: Obs, features: Array, h: Array) -> tuple[Array, Array]:
        x = read(obs, self.reads)
        h = self.cell.advance(self.cell.project(jax.nn.relu(self.encoder(x))), h)
        return self.body(jnp.concatenate([x, h]))[0], h


class Values(NamedTuple):
    """V at every step, with the critic's memory before (`h`) and after (`next_h`) it."""

    value: Array
    h: State
    next_h: State


def unroll(critic: Critic, obs: Obs, features: Array, head: State, stored: State, restart: Array) -> Values:
    """Values along one trajectory [T]; where `restart` is set, the `stored` memory replaces the running one.

    A plain critic has no memory and runs over all steps at once.
    """
    if not jax.tree.leaves(head):
        value, _ = jax.vmap(critic, in_axes=(0, 0, None))(obs, features, ())
        return Values(value, (), ())

    def step(h: State, inputs: tuple) -> tuple[State, Values]:
        obs, features, stored, restart = inputs
        h = jax.tree.map(lambda kept, new: jnp.where(restart, kept, new), stored, h)
        value, next_h = critic(obs, features, h)
        return next_h, Values(value, h, next_h)

    _, values = jax.lax.scan(step, head, (obs, features, stored, restart))
    return values
