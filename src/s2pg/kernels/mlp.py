"""A perceptron without memory: z is (), the action depends on the observation alone."""

from __future__ import annotations

from typing import Annotated, ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, PRNGKeyArray

from s2pg.heads import ActionHead, Heads
from s2pg.kernel import Kernel, Step
from s2pg.networks import MLP
from s2pg.options import Option


class MLPKernel(Kernel):
    """A perceptron without memory: a ~ head(mlp(o)).

    A `blind` one reads nothing, and so does the same at every step."""

    stateful: ClassVar[bool] = False
    body: MLP
    action_head: ActionHead

    blind: bool = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        heads: Heads,
        key: PRNGKeyArray,
        *,
        width: int,
        blind: Annotated[bool, Option("read no observation: nothing at all")] = False,
    ):
        body, action = jax.random.split(key)
        self.blind = blind
        self.body = MLP([inputs * (not blind), width, width], key=body, last_gain=2.0**0.5)
        self.action_head = heads.action(width, action)

    def initial(self) -> tuple[()]:
        return ()

    def embed(self, obs: Array) -> Array:
        return jax.nn.relu(self.body(obs[:0] if self.blind else obs))

    def advance(self, x: Array, z: tuple[()]) -> tuple[()]:
        return ()

    def emit(self, x: Array, eta: tuple[()]) -> Step:
        return Step(self.action_head(x), ())
