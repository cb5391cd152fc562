"""Evaluation on the device: exactly n episodes, one per lane, side by side."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from s2pg.actor import Actor
from s2pg.rollout import start, transition
from s2pg.types import State


def evaluate(env: Any, actor: Actor, episodes: int, key: PRNGKeyArray) -> Float[Array, " episodes"]:
    """Undiscounted returns of whole episodes. Deterministic if the actor does not explore: the mode of a and of z'."""
    start_key, run_key = jax.random.split(key)
    carry = start(env, actor, episodes, start_key, stagger=False)
    alive = jnp.ones(episodes, bool)

    def step(carry: tuple, key: PRNGKeyArray) -> tuple[tuple, Array]:
        (env_state, timestep, z), alive = carry
        act_key, env_key = jax.random.split(key)
        rows = jax.vmap(transition, in_axes=(None, 0, 0, 0))(actor, timestep, z, jax.random.split(act_key, episodes))
        env_state, after = jax.vmap(env.advance)(env_state, rows.decision.action, jax.random.split(env_key, episodes))
        reward = jnp.where(alive, after.reward, 0.0)
        return ((env_state, after, rows.next_z), alive & ~(after.terminated | after.truncated)), reward

    inner = (carry.env_state, carry.timestep, carry.z)
    _, rewards = jax.lax.scan(step, (inner, alive), jax.random.split(run_key, env.horizon))
    return jnp.sum(rewards, axis=0)


class Film(NamedTuple):
    """One episode as it happened: [T] of environment states, internal states and rewards, for pictures."""

    env_state: PyTree
    z: State
    reward: Array
    length: int


def film(env: Any, actor: Actor, key: PRNGKeyArray) -> Film:
    """Plays one episode and keeps every state on the way."""
    start_key, run_key = jax.random.split(key)
    env_state, timestep = env.reset(start_key)

    def step(carry: tuple, key: PRNGKeyArray) -> tuple[tuple, tuple]:
        env_state, timestep, z = carry
        act_key, env_key = jax.random.split(key)
        row = transition(actor, timestep, z, act_key)
        moved, after = env.advance(env_state, row.decision.action, env_key)
        kept = (env_state, row.next_z, after.reward, after.terminated | after.truncated)
        return (moved, after, row.next_z), kept

    _, (states, z, reward, done) = jax.jit(
        lambda: jax.lax.scan(step, (env_state, timestep, actor.initial()), jax.random.split(run_key, env.horizon))
    )()
    length = int(jnp.argmax(done)) + 1 if bool(jnp.any(done)) else env.horizon
    states, z, reward = jax.device_get((states, z, reward))
    return Film(states, z, reward, length)
