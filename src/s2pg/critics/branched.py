"""The authors' critic of (s, z, a, z'): a branch for each kind of input."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.critics.base import Critic
from s2pg.networks import MLP, Linear
from s2pg.types import PREVIOUS_ACTION, Decision, Obs, read


class BranchedCritic(Critic):
    """Encoders of (z, z'), (s, a) and a, added up before the last layers.

    Where the previous action is read, it goes with a.
    """

    memory: Linear
    context: Linear
    action: Linear
    merge: Linear  # of the three side by side, which adds up what each would give on its own
    body: MLP
    reads: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        views: dict[str, int],
        features: int,
        decision: Decision,
        key: PRNGKeyArray,
        *,
        reads: tuple[str, ...],
        width: int,
    ):
        memory, context, action, merge, body = jax.random.split(key, 5)
        self.reads = reads
        acted = decision.action + sum(views[name] for name in reads if name == PREVIOUS_ACTION)
        half, gain = max(width // 2, 1), 2.0**0.5
        self.memory = Linear(features + sum(jax.tree.leaves(decision.state)), width, key=memory, gain=gain)
        self.context = Linear(sum(views[name] for name in reads) + decision.action, width, key=context, gain=gain)
        self.action = Linear(acted, width, key=action, gain=gain)
        self.merge = Linear(3 * width, half, key=merge, gain=3.0**0.5)
        self.body = MLP([half, half, 1], key=body, last_gain=0.1)

    def initial(self) -> tuple[()]:
        return ()

    def advance(self, obs: Obs, h: tuple[()]) -> tuple[()]:
        return ()

    def __call__(self, obs: Obs, h: tuple[()], features: Array, decision: Decision) -> Array:
        previous = [obs[name] for name in self.reads if name == PREVIOUS_ACTION]
        memory = self.memory(jnp.concatenate([features, *jax.tree.leaves(decision.state)]))
        context = self.context(jnp.concatenate([read(obs, self.reads), decision.action]))
        action = self.action(jnp.concatenate([decision.action, *previous]))
        merged = self.merge(jax.nn.relu(jnp.concatenate([memory, context, action])))
        return self.body(jax.nn.relu(merged))[0]
