"""A minimal gated unit whose gates read no z: linear in z, so that it unrolls in parallel (an associative scan)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.kernels.recurrent import Embedding, RecurrentKernel
from s2pg.networks import Cell, Linear, spread


class Affine(NamedTuple):
    """z' = keep z + add: what a step does to z."""

    keep: Array
    add: Array


def after(first: Affine, second: Affine) -> Affine:
    """One step after another is a step of the same kind, whichever two are joined first."""
    return Affine(first.keep * second.keep, second.keep * first.add + second.add)


class MinGRU(Cell):
    """u = sigmoid(W_u x + spread), n = tanh(W_n x), eta = (1 - u) z + u n."""

    gate: Linear
    candidate: Linear

    def __init__(self, inputs: int, size: int, *, key: PRNGKeyArray):
        gate_key, candidate_key = jax.random.split(key)
        self.gate = Linear(inputs, size, key=gate_key)
        self.candidate = Linear(inputs, size, key=candidate_key)

    @property
    def size(self) -> int:
        return self.gate.bias.shape[0]

    def project(self, x: Array) -> Affine:
        update = jax.nn.sigmoid(self.gate(x) + spread(self.size))
        return Affine(1.0 - update, update * jnp.tanh(self.candidate(x)))

    def advance(self, projected: Affine, z: Array) -> Array:
        return projected.keep * z + projected.add


class MinGRUKernel(RecurrentKernel):
    """A minimal gated unit, linear in z: unrolls in parallel.

    eta = (1 - u) z + u n with u, n of the observation alone; n steps unroll in log n."""

    cell_type: ClassVar[Callable[..., Cell]] = MinGRU

    def unroll(self, x: Embedding, stored: Array, restart: Array, noise: Array | None = None) -> tuple[Array, Array]:
        keep, add = x.gates
        begins = (restart | (jnp.arange(restart.shape[0]) == 0))[:, None]
        before = jnp.zeros_like(stored) if noise is None else jnp.roll(noise, 1, axis=0)
        # A step that begins from the stored state forgets whatever came before it.
        steps = Affine(jnp.where(begins, 0.0, keep), keep * jnp.where(begins, stored, before) + add)
        eta = jax.lax.associative_scan(after, steps).add
        return jnp.where(begins, stored, jnp.roll(eta, 1, axis=0) + before), eta
