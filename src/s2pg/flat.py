"""A policy as one pure function of flat vectors: what sessions compile and what files for robots hold.

    (obs [N], state [M], first) -> (action, next state [M])

`obs` is the views that the policy reads, side by side; `state` is z and, behind it, the previous action as the policy
reads it; where `first` is set an episode begins, and whatever `state` holds is forgotten.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from s2pg.actor import Actor
from s2pg.types import POLICY, PREVIOUS_ACTION, Spec, State


@dataclasses.dataclass(frozen=True)
class FlatPolicy:
    """A policy between flat vectors, for one example."""

    actor: Actor
    spec: Spec
    hide: tuple[int, ...] = ()  # entries of the view `policy` that it does not look at

    @functools.cached_property
    def views(self) -> dict[str, int]:
        """Names and sizes of the parts of `obs`, in their order."""
        return {name: self.spec.views[name] for name in self.actor.reads if name != PREVIOUS_ACTION}

    @functools.cached_property
    def size(self) -> int:
        """Numbers in `obs`."""
        return sum(self.views.values())

    @functools.cached_property
    def initial(self) -> np.ndarray:
        """The state in which an episode begins: z_0, and no action before."""
        return np.asarray(self.join(self.actor.initial(), jnp.zeros(self.spec.action.size)))

    def join(self, z: State, previous: Array) -> Float[Array, " M"]:
        """z and the previous action as one vector."""
        parts = [jnp.ravel(leaf) for leaf in (*jax.tree.leaves(z), previous)]
        return jnp.concatenate([part.astype(jnp.result_type(float)) for part in parts])

    def split(self, state: Float[Array, " M"]) -> tuple[State, Array]:
        """Undoes `join`: (z, previous action)."""
        leaves, form = jax.tree.flatten(jax.eval_shape(self.actor.initial))
        *parts, previous = jnp.split(state, np.cumsum([math.prod(leaf.shape) for leaf in leaves], dtype=int).tolist())
        parts = [part.reshape(leaf.shape).astype(leaf.dtype) for leaf, part in zip(leaves, parts, strict=True)]
        return jax.tree.unflatten(form, parts), previous

    def step(
        self, obs: Float[Array, " N"], state: Float[Array, " M"], first: Any, key: PRNGKeyArray | None = None
    ) -> tuple[Array, Float[Array, " M"]]:
        """(action in the environment's own units, next state): drawn with a key, the mode without."""
        actor = dataclasses.replace(self.actor, explore=key is not None)
        first, (z, previous) = jnp.asarray(first) > 0.5, self.split(state)
        seen = {PREVIOUS_ACTION: jnp.where(first, 0.0, previous)}
        ends = np.cumsum(list(self.views.values())).tolist()
        for (name, size), end in zip(self.views.items(), ends, strict=True):
            seen[name] = obs[end - size : end]
        if self.hide and POLICY in seen:
            hidden = np.isin(np.arange(self.views[POLICY]), self.hide)
            seen[POLICY] = jnp.where(hidden, 0.0, seen[POLICY])
        unused = jax.random.key(0)  # nothing is drawn with it: the actor does not explore
        decision, z, _ = actor(seen, actor.fresh(first, z), unused if key is None else key)
        space = self.spec.action
        return space.execute(decision.action), self.join(z, space.encode(decision.action))
