"""Linear layers, perceptrons and recurrent cells with array leaves only: they ride through scan and vmap unsplit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree


class Linear(eqx.Module):
    """x W + b; W normal with variance gain^2 / inputs, b zero."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, *, key: PRNGKeyArray, gain: float = 1.0):
        self.weight = jax.random.normal(key, (inputs, outputs)) * (gain / max(inputs, 1) ** 0.5)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: Array) -> Array:
        return x @ self.weight + self.bias


class MLP(eqx.Module):
    """Perceptron with an activation after every layer but the last."""

    layers: list[Linear]

    def __init__(self, sizes: Sequence[int], *, key: PRNGKeyArray, last_gain: float = 1.0):
        keys = jax.random.split(key, len(sizes) - 1)
        gains = [2.0**0.5] * (len(sizes) - 2) + [last_gain]
        self.layers = [
            Linear(inputs, outputs, key=k, gain=gain)
            for inputs, outputs, k, gain in zip(sizes[:-1], sizes[1:], keys, gains, strict=True)
        ]

    def __call__(self, x: Array) -> Array:
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return self.layers[-1](x)


def spread(size: int) -> Float[Array, " size"]:
    """What is added to gates so that units begin with time constants from 2 to 21 steps: some follow, some keep."""
    return jnp.linspace(0.0, -3.0, size)


class Cell(eqx.Module):
    """The transition eta(x, z), cut in two so that only what needs z is sequential. z lies in [-1, 1]."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Numbers in z."""

    @abstractmethod
    def project(self, x: Array) -> PyTree:
        """What can be computed without z."""

    @abstractmethod
    def advance(self, projected: PyTree, z: Array) -> Array: ...


class GRU(Cell):
    """Gated recurrent unit.

    r, u = sigmoid(gates), n = tanh(x_n + r * (W_n z + b_n)), z' = (1 - u) n + u z.
    """

    inputs: Linear
    recurrent: Linear

    def __init__(self, inputs: int, size: int, *, key: PRNGKeyArray):
        input_key, recurrent_key = jax.random.split(key)
        self.inputs = Linear(inputs, 3 * size, key=input_key)
        self.recurrent = Linear(size, 3 * size, key=recurrent_key)

    @property
    def size(self) -> int:
        return self.recurrent.weight.shape[0]

    def project(self, x: Array) -> Array:
        """The input's share of the gates."""
        return self.inputs(x)

    def advance(self, projected: Array, z: Array) -> Array:
        xr, xu, xn = jnp.split(projected, 3)
        zr, zu, zn = jnp.split(self.recurrent(z), 3)
        update = jax.nn.sigmoid(xu + zu)
        candidate = jnp.tanh(xn + jax.nn.sigmoid(xr + zr) * zn)
        return (1.0 - update) * candidate + update * z
