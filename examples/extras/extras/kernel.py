"""A kernel of one's own: leaky units, the simplest memory there is.

eta = (1 - leak) z + leak tanh(W o),   a ~ head(relu(V [o, eta]))
"""

from __future__ import annotations

from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.heads import ActionHead, Heads, StateHead
from s2pg.kernel import Kernel, Step
from s2pg.networks import Linear
from s2pg.options import Option


class LeakyKernel(Kernel):
    """Leaky units: eta = (1 - leak) z + leak tanh(W o)."""

    write: Linear
    body: Linear
    action_head: ActionHead
    state_head: StateHead
    leak: float = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        heads: Heads,
        key: PRNGKeyArray,
        *,
        size: int,
        width: int,
        leak: Annotated[float, Option("share of z that is written anew in each step", above=0, high=1)] = 0.1,
    ):
        write, body, action, state = jax.random.split(key, 4)
        self.write = Linear(inputs, size, key=write)
        self.body = Linear(inputs + size, width, key=body, gain=2.0**0.5)
        self.action_head, self.state_head = heads.action(width, action), heads.state(size, width, state)
        self.leak = leak

    def initial(self) -> Array:
        return jnp.zeros(self.write.bias.shape)

    def embed(self, obs: Array) -> Array:
        return obs

    def advance(self, x: Array, z: Array) -> Array:
        return (1.0 - self.leak) * z + self.leak * jnp.tanh(self.write(x))

    def emit(self, x: Array, eta: Array) -> Step:
        hidden = jax.nn.relu(self.body(jnp.concatenate([x, eta])))
        return Step(self.action_head(hidden), self.state_head(eta, hidden))
