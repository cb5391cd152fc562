"""A policy ready to act on raw observations."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.kernel import Kernel
from s2pg.memory import Memory
from s2pg.normalise import Normaliser, normalise
from s2pg.types import Decision, Obs, State, read


class Actor(eqx.Module):
    """Kernel, memory rule and normaliser in one: collect, evaluate, session, video and export all act through this."""

    kernel: Kernel
    normaliser: Normaliser
    memory: Memory
    reads: tuple[str, ...] = eqx.field(static=True)
    explore: bool = eqx.field(static=True, default=True)

    def __call__(self, obs: Obs, z: State, key: PRNGKeyArray) -> tuple[Decision, State, Decision]:
        """(u, z', log pi(u | o, z)); the mode of a and of z' unless the actor explores."""
        seen = read(normalise(self.normaliser, {name: obs[name] for name in self.reads}), self.reads)
        return self.memory.act(self.kernel, seen, z, key if self.explore else None)

    def initial(self) -> State:
        return self.kernel.initial()

    def fresh(self, first: Array, z: State) -> State:
        """The one place where an internal state is reset: z_0 where an episode begins."""
        return jax.tree.map(lambda start, kept: jnp.where(first, start, kept), self.initial(), z)


class Wanderer(Actor):
    """Acts at random, uniformly within bounds; its internal state goes on as the policy's does."""

    def __call__(self, obs: Obs, z: State, key: PRNGKeyArray) -> tuple[Decision, State, Decision]:
        key, own_key = jax.random.split(key)
        decision, next_z, log_prob = super().__call__(obs, z, key)
        # z' may stay: it is independent of a given (o, z).
        action = jax.random.uniform(own_key, decision.action.shape, decision.action.dtype, -1.0, 1.0)
        return decision._replace(action=action), next_z, log_prob
