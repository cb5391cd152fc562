"""A perceptron over the last K observations: z is the window itself, a parameter-free function of the past."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from s2pg.heads import ActionHead, Heads
from s2pg.kernel import Kernel, Step
from s2pg.networks import MLP


class WindowKernel(Kernel):
    """A perceptron over the last K observations.

    z_t = (o_{t-K}, ..., o_{t-1}), newest last, each with a flag that tells an observation from an empty slot."""

    stateful: ClassVar[bool] = False
    body: MLP
    action_head: ActionHead
    length: int = eqx.field(static=True)
    slot: int = eqx.field(static=True)

    def __init__(self, inputs: int, heads: Heads, key: PRNGKeyArray, *, length: int, width: int):
        body, action = jax.random.split(key)
        self.length, self.slot = length, inputs + 1
        self.body = MLP([length * self.slot, width, width], key=body, last_gain=2.0**0.5)
        self.action_head = heads.action(width, action)

    def initial(self) -> Float[Array, "length slot"]:
        return jnp.zeros((self.length, self.slot))

    def embed(self, obs: Array) -> Array:
        return jnp.append(obs, 1.0)

    def advance(self, x: Array, z: Array) -> Array:
        return jnp.concatenate([z[1:], x[None]])

    def emit(self, x: Array, eta: Array) -> Step:
        hidden = jax.nn.relu(self.body(jnp.ravel(eta)))
        return Step(self.action_head(hidden), eta)

    def features(self, z: Array) -> Array:
        """The oldest slot leaves the window as the current observation enters: a critic sees what the actor sees."""
        return jnp.ravel(z[1:])
