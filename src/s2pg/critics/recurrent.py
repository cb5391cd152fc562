"""A critic with a memory of its own: the unprivileged critic of unrolled policies.

It does not know the state, so what V says of another z' is mostly what z' tells of the state, not what it would do
(docs/concept.md): z is an input to it that hands no gradient back.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.critics.base import Critic
from s2pg.networks import GRU, MLP, Linear
from s2pg.types import Decision, Obs, read


class RecurrentCritic(Critic):
    """A GRU over the views it reads, and a perceptron over views, h, decision and, if `reads_state`, features of z."""

    encoder: Linear
    cell: GRU
    body: MLP
    reads: tuple[str, ...] = eqx.field(static=True)
    reads_state: bool = eqx.field(static=True)

    def __init__(
        self,
        views: dict[str, int],
        features: int,
        decision: Decision,
        key: PRNGKeyArray,
        *,
        reads: tuple[str, ...],
        reads_state: bool,
        size: int,
        width: int,
        layers: int,  # hidden ones of the perceptron
    ):
        encoder, cell, body = jax.random.split(key, 3)
        self.reads, self.reads_state = reads, reads_state
        inputs = sum(views[name] for name in reads)
        self.encoder = Linear(inputs, width, key=encoder, gain=2.0**0.5)
        self.cell = GRU(width, size, key=cell)
        total = inputs + size + features * reads_state + sum(jax.tree.leaves(decision))
        self.body = MLP([total, *[width] * layers, 1], key=body, last_gain=0.1)

    def initial(self) -> Array:
        return jnp.zeros(self.cell.size)

    def advance(self, obs: Obs, h: Array) -> Array:
        return self.cell.advance(self.cell.project(jax.nn.relu(self.encoder(read(obs, self.reads)))), h)

    def __call__(self, obs: Obs, h: Array, features: Array, decision: Decision) -> Array:
        seen = [jax.lax.stop_gradient(features)] if self.reads_state else []
        return self.body(jnp.concatenate([read(obs, self.reads), h, *seen, *jax.tree.leaves(decision)]))[0]
