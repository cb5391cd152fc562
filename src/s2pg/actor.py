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
    """Kernel, memory rule and normaliser in one: collecting, evaluation, sessions and films all act through this."""

    kernel: Kernel
    normaliser: Normaliser
    memory: Memory
    reads: tuple[str, ...] = eqx.field(static=True)
    explore: bool = eqx.field(static=True, default=True)
    uniform: bool = eqx.field(static=True, default=False)  # actions uniformly within bounds, z' as the policy draws it

    def __call__(self, obs: Obs, z: State, key: PRNGKeyArray) -> tuple[Decision, State, Decision]:
        """(u, z', log pi(u | o, z)); the mode of a and of z' unless the actor explores."""
        key, uniform_key = jax.random.split(key) if self.uniform else (key, key)
        seen = read(normalise(self.normaliser, {name: obs[name] for name in self.reads}), self.reads)
        decision, next_z, log_prob = self.memory.act(self.kernel, seen, z, key if self.explore else None)
        if self.uniform:  # z' may stay: it is independent of a given (o, z)
            action = jax.random.uniform(uniform_key, decision.action.shape, decision.action.dtype, -1.0, 1.0)
            decision = decision._replace(action=action)
        return decision, next_z, log_prob

    def initial(self) -> State:
        """z_0."""
        return self.kernel.initial()

    def fresh(self, first: Array, z: State) -> State:
        """The one place where an internal state is reset: z_0 where an episode begins."""
        return jax.tree.map(lambda start, kept: jnp.where(first, start, kept), self.initial(), z)
