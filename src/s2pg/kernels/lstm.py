"""A long short-term memory; z holds its output h and its cell c, the latter as tanh(c)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.kernels.recurrent import RecurrentKernel
from s2pg.networks import Cell, Linear

FORGET_BIAS = 1.0  # the usual one: cells keep what they hold until they learn otherwise
MOST = 0.999  # of |tanh(c)|


class LSTM(Cell):
    """i, f, o = sigmoid(gates), g = tanh(...): c' = f c + i g, h' = o tanh(c'), z = (h, tanh(c)).

    c itself has no bounds. Held as tanh(c) it lies within [-1, 1] like the rest of z, and the noise of z' means
    the same at every height. What is read back lies within 3.8, wherever noise has carried z.
    """

    inputs: Linear
    recurrent: Linear

    def __init__(self, inputs: int, size: int, *, key: PRNGKeyArray):
        input_key, recurrent_key = jax.random.split(key)
        self.inputs = Linear(inputs, 4 * size, key=input_key)
        self.recurrent = Linear(size, 4 * size, key=recurrent_key)

    @property
    def size(self) -> int:
        return 2 * self.recurrent.weight.shape[0]

    def project(self, x: Array) -> Array:
        return self.inputs(x)

    def advance(self, projected: Array, z: Array) -> Array:
        h, held = jnp.split(z, 2)
        c = jnp.arctanh(jnp.clip(held, -MOST, MOST))
        i, f, o, g = jnp.split(projected + self.recurrent(h), 4)
        c = jax.nn.sigmoid(f + FORGET_BIAS) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        held = jnp.tanh(c)
        return jnp.concatenate([jax.nn.sigmoid(o) * held, held])


class LSTMKernel(RecurrentKernel):
    """A long short-term memory: z = (h, tanh c).

    eta = LSTM(relu(W o), z), 2 x `size` numbers. The action reads all of them: h alone learns later."""

    cell_type: ClassVar[Callable[..., Cell]] = LSTM
