"""A trained policy for use: it keeps z and the previous action for the caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from s2pg.actor import Actor
from s2pg.errors import UserError
from s2pg.types import POLICY, PREVIOUS_ACTION, Space, Spec


class Session:
    """`a = session(obs)` with the raw observation, `session.reset()` at the start of an episode.

    `obs` is the policy view as one vector, or a dict of the views the policy reads; entries `hide` of the policy
    view are not looked at. For a Gymnasium environment whose observations are no vectors, that dict is
    `task.read(obs)`. Actions come back in the environment's own units, clipped to its bounds. Deterministic
    unless made with `explore`.
    """

    def __init__(self, actor: Actor, spec: Spec, seed: int = 0, hide: Sequence[int] = ()):
        self.spec, self._actor, self._hide = spec, actor, list(hide)
        self._key = jax.random.key(seed)
        self.reset()

    def reset(self) -> None:
        """Forgets: the next observation is the first of an episode."""
        self.z: PyTree = self._actor.initial()
        self._first, self._previous = True, np.zeros(self.spec.action.size, np.float32)

    def __call__(self, obs: Any) -> np.ndarray:
        views = dict(obs) if isinstance(obs, dict) else {POLICY: obs}
        views[PREVIOUS_ACTION] = self._previous
        seen = {}
        for name in self._actor.reads:
            if name not in views:
                raise UserError(f"this policy reads the view '{name}': call it with a dict that has it")
            seen[name] = np.array(views[name], np.float32).reshape(-1)
            if seen[name].size != (size := self.spec.views[name]):
                raise UserError(f"view '{name}' has {seen[name].size} entries, the policy was trained on {size}")
        if POLICY in seen:
            seen[POLICY][self._hide] = 0.0
        action, self._previous, self.z, self._key = _decide(
            self._actor, self.spec.action, seen, self.z, np.asarray(self._first), self._key
        )
        self._first = False
        return np.asarray(action)


@eqx.filter_jit
def _decide(actor: Actor, space: Space, obs: Any, z: PyTree, first: Any, key: Any) -> tuple:
    """(the action, the same as the policy will read it, z', next key); compiled once for all sessions."""
    key, act_key = jax.random.split(key)
    decision, z, _ = actor(obs, actor.fresh(first, z), act_key)
    return space.execute(decision.action), space.encode(decision.action), z, key
