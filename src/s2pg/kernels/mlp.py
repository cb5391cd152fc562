"""A perceptron without memory: z is (), the action depends on the observation alone."""

from __future__ import annotations

from typing import ClassVar

import jax
from jaxtyping import Array, PRNGKeyArray

from s2pg.heads import ActionHead, Heads
from s2pg.kernel import Kernel, Step
from s2pg.networks import MLP


class MLPKernel(Kernel):
    """a ~ head(mlp(o))."""

    stateful: ClassVar[bool] = False
    body: MLP
    action_head: ActionHead

    def __init__(self, inputs: int, heads: Heads, key: PRNGKeyArray, *, width: int = 64):
        body, action = jax.random.split(key)
        self.body = MLP([inputs, width, width], key=body, last_gain=2.0**0.5)
        self.action_head = heads.action(width, action)

    def initial(self) -> tuple[()]:
        return ()

    def embed(self, obs: Array) -> Array:
        return jax.nn.relu(self.body(obs))

    def advance(self, x: Array, z: tuple[()]) -> tuple[()]:
        return ()

    def emit(self, x: Array, eta: tuple[()]) -> Step:
        return Step(self.action_head(x), ())
