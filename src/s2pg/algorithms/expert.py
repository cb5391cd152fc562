"""What algorithms that imitate share: demonstrations as experience, with internal states of our own policy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from s2pg.actor import Actor
from s2pg.types import Decision, Expert, State, Transition


def rolled(actor: Actor, expert: Expert, key: PRNGKeyArray) -> tuple[State, State]:
    """(z, z') of a policy that watches the demonstrations, [rows, ...]; every episode begins with z_0."""

    def watch(z: State, row: tuple) -> tuple[State, tuple[State, State]]:
        obs, first, key = row
        z = actor.fresh(first, z)
        _, next_z, _ = actor(obs, z, key)
        return next_z, (z, next_z)

    keys = jax.random.split(key, expert.first.shape[0])
    _, states = jax.lax.scan(watch, actor.initial(), (expert.obs, expert.first, keys))
    return states


def as_batch(expert: Expert, z: State, next_z: State) -> Transition:
    """Demonstrations [rows] as a batch [rows, 1] of one lane; rewards, truncations and probabilities are not known."""
    obs, next_obs, action, terminated, first = jax.tree.map(lambda leaf: jnp.asarray(leaf)[:, None], expert)
    z, next_z = jax.tree.map(lambda leaf: leaf[:, None], (z, next_z))
    nothing = jnp.zeros(first.shape)
    unknown = Decision(nothing)
    return Transition(obs, z, Decision(action), unknown, nothing, terminated, first & False, next_obs, next_z, first)
