"""What recurrent kernels share: layers around a cell, which alone tells them apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from s2pg.heads import ActionHead, Heads, StateHead
from s2pg.kernel import Kernel, Step
from s2pg.networks import Cell, Linear


class Embedding(NamedTuple):
    """What a recurrent kernel makes of an observation without z."""

    gates: PyTree
    skip: Array


class RecurrentKernel(Kernel):
    """eta = cell(relu(W o), z); a ~ head(relu(W' [relu(W'' o), eta])); z' ~ N(eta, Upsilon)."""

    cell_type: ClassVar[Callable[..., Cell]]  # made with (inputs, size, key=) and what a kernel adds

    encoder: Linear
    cell: Cell
    skip: Linear
    body: Linear
    action_head: ActionHead
    state_head: StateHead

    def __init__(
        self,
        inputs: int,
        heads: Heads,
        key: PRNGKeyArray,
        *,
        size: int,
        width: int,
        encoder_width: int,
        **cell_options: Any,
    ):
        encoder, cell, skip, body, action = jax.random.split(key, 5)
        gain, encoded = 2.0**0.5, encoder_width or width
        self.encoder = Linear(inputs, encoded, key=encoder, gain=gain)
        self.cell = self.cell_type(encoded, size, key=cell, **cell_options)
        self.skip = Linear(inputs, width, key=skip, gain=gain)
        self.body = Linear(width + self.cell.size, width, key=body, gain=gain)
        self.action_head = heads.action(width, action)
        self.state_head = heads.state(self.cell.size, width, jax.random.fold_in(action, 0))

    def initial(self) -> Float[Array, " size"]:
        return jnp.zeros(self.cell.size)

    def embed(self, obs: Array) -> Embedding:
        return Embedding(self.cell.project(jax.nn.relu(self.encoder(obs))), jax.nn.relu(self.skip(obs)))

    def advance(self, x: Embedding, z: Array) -> Array:
        return self.cell.advance(x.gates, z)

    def emit(self, x: Embedding, eta: Array) -> Step:
        hidden = jax.nn.relu(self.body(jnp.concatenate([x.skip, eta])))
        return Step(self.action_head(hidden), self.state_head(eta, hidden))
