"""A trained policy for use: it keeps z and the previous action for the caller."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from s2pg.actor import Actor
from s2pg.errors import UserError
from s2pg.types import POLICY, PREVIOUS_ACTION, Spec


class Session:
    """`a = session(obs)` with the raw observation, `session.reset()` at the start of an episode.

    `obs` is the policy view as one vector, or a dict of the views the policy reads. Actions come back in the
    environment's own units, clipped to its bounds. Deterministic unless made with `explore`.
    """

    def __init__(self, actor: Actor, spec: Spec, seed: int = 0):
        self.spec, self._actor = spec, actor
        self._key = jax.random.key(seed)
        self._step = eqx.filter_jit(self._decide)
        self.reset()

    def reset(self) -> None:
        """Forgets: the next observation is the first of an episode."""
        self.z: PyTree = self._actor.initial()
        self._first, self._previous = True, np.zeros(self.spec.action.size, np.float32)

    def _decide(self, obs: Any, z: PyTree, first: Any, key: Any) -> tuple:
        key, act_key = jax.random.split(key)
        decision, z, _ = self._actor(obs, self._actor.fresh(first, z), act_key)
        space = self.spec.action
        return space.execute(decision.action), space.encode(decision.action), z, key

    def __call__(self, obs: Any) -> np.ndarray:
        views = dict(obs) if isinstance(obs, dict) else {POLICY: obs}
        views[PREVIOUS_ACTION] = self._previous
        seen = {}
        for name in self._actor.reads:
            if name not in views:
                raise UserError(f"this policy reads the view '{name}': call it with a dict that has it")
            seen[name] = jnp.ravel(jnp.asarray(views[name], jnp.float32))
            if seen[name].shape[0] != (size := self.spec.views[name]):
                raise UserError(f"view '{name}' has {seen[name].shape[0]} entries, the policy was trained on {size}")
        action, self._previous, self.z, self._key = self._step(seen, self.z, jnp.asarray(self._first), self._key)
        self._first = False
        return np.asarray(action)
