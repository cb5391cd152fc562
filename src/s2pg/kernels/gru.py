"""A GRU whose output is the mean of z' and, beside a skip path from the observation, feeds the action head."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from s2pg.heads import ActionHead, Heads, StateHead
from s2pg.kernel import Kernel, Step
from s2pg.networks import GRU, Linear


class Embedded(NamedTuple):
    gates: Array
    skip: Array


class GRUKernel(Kernel):
    """eta = GRU(relu(W o), z); a ~ head(relu(W' [relu(W'' o), eta])); z' ~ N(eta, Upsilon)."""

    encoder: Linear
    cell: GRU
    skip: Linear
    body: Linear
    action_head: ActionHead
    state_head: StateHead

    def __init__(
        self, inputs: int, heads: Heads, key: PRNGKeyArray, *, size: int = 64, width: int = 64, encoder_width: int = 0
    ):
        encoder, cell, skip, body, action = jax.random.split(key, 5)
        gain, encoded = 2.0**0.5, encoder_width or width
        self.encoder = Linear(inputs, encoded, key=encoder, gain=gain)
        self.cell = GRU(encoded, size, key=cell)
        self.skip = Linear(inputs, width, key=skip, gain=gain)
        self.body = Linear(width + size, width, key=body, gain=gain)
        self.action_head = heads.action(width, action)
        self.state_head = heads.state(size, width, jax.random.fold_in(action, 0))

    def initial(self) -> Float[Array, " size"]:
        return jnp.zeros(self.cell.size)

    def embed(self, obs: Array) -> Embedded:
        return Embedded(self.cell.project(jax.nn.relu(self.encoder(obs))), jax.nn.relu(self.skip(obs)))

    def advance(self, x: Embedded, z: Array) -> Array:
        return self.cell.advance(x.gates, z)

    def emit(self, x: Embedded, eta: Array) -> Step:
        hidden = jax.nn.relu(self.body(jnp.concatenate([x.skip, eta])))
        return Step(self.action_head(hidden), self.state_head(eta, hidden))
