"""A plain recurrent network: z passes one layer and a tanh at every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.kernels.recurrent import RecurrentKernel
from s2pg.networks import Cell, Linear


class RNN(Cell):
    """eta = tanh(U x + W z), W orthogonal at the start: what passes through it is neither shrunk nor blown up."""

    inputs: Linear
    recurrent: Array

    def __init__(self, inputs: int, size: int, *, key: PRNGKeyArray):
        input_key, recurrent_key = jax.random.split(key)
        self.inputs = Linear(inputs, size, key=input_key)
        self.recurrent = jax.random.orthogonal(recurrent_key, size)

    @property
    def size(self) -> int:
        return self.recurrent.shape[0]

    def project(self, x: Array) -> Array:
        return self.inputs(x)

    def advance(self, projected: Array, z: Array) -> Array:
        return jnp.tanh(projected + z @ self.recurrent)


class RNNKernel(RecurrentKernel):
    """A plain recurrent network: eta = tanh(U relu(W o) + V z)."""

    cell_type: ClassVar[Callable[..., Cell]] = RNN
