"""Collecting experience: the same transitions from environments on the device and on the host."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.actor import Actor
from s2pg.envs.base import Env
from s2pg.types import State, Timestep, Transition


class EpisodeEnds(NamedTuple):
    """What there is to say of episodes that ended, step by step."""

    score: Any  # the return of each that did, NaN elsewhere
    faults: dict[str, Any]  # what may go wrong in a simulation, and whether it did


class Carry(NamedTuple):
    """Where N lanes stand between two batches."""

    env_state: Any
    timestep: Timestep
    z: State
    score: Any  # undiscounted return of the open episode; NaN for one that was cut short by staggering


def initial_state(actor: Actor, lanes: int) -> State:
    """z_0 in every lane."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (lanes, *leaf.shape)), actor.initial())


def start(env: Env, actor: Actor, lanes: int, key: PRNGKeyArray, *, stagger: bool = True) -> Carry:
    """Fresh episodes in all lanes; where the task staggers, of random age, so that they do not all end together."""
    reset_key, age_key = jax.random.split(key)
    env_state, timestep = jax.vmap(env.reset)(jax.random.split(reset_key, lanes))
    score = jnp.zeros(lanes)
    if stagger and env.stagger:
        age = jax.random.randint(age_key, (lanes,), 0, env.horizon)
        env_state, score = env_state._replace(elapsed=age), jnp.where(age > 0, jnp.nan, score)
    return Carry(env_state, timestep, initial_state(actor, lanes), score)


def transition(actor: Actor, timestep: Timestep, z: State, key: PRNGKeyArray) -> Transition:
    """One decision for one lane, with the reset of z before it; the outcome is filled in by `outcome`."""
    z = actor.fresh(timestep.first, z)
    decision, next_z, log_prob = actor(timestep.obs, z, key)
    nothing = jnp.zeros(())
    return Transition(
        timestep.obs, z, decision, log_prob, nothing, nothing, nothing, timestep.obs, next_z, timestep.first
    )


def outcome(row: Transition, after: Timestep) -> Transition:
    """A transition with what came of its decision."""
    return row._replace(
        reward=after.reward, terminated=after.terminated, truncated=after.truncated, next_obs=after.last_obs
    )


def episodes_seen(ended: EpisodeEnds) -> dict[str, Any]:
    """Metrics of a batch on the device: the mean return of episodes, and in how many steps something went wrong."""
    counts = {name: jnp.sum(flags, dtype=jnp.float32) for name, flags in ended.faults.items()}
    return {"train_return": jnp.nanmean(ended.score)} | counts


# What `experience_seen` tells of: for checks, not for logs.
OBSERVATIONS, REWARDS = "an observation", "a reward"


def experience_seen(batch: Transition) -> dict[str, Array]:
    """Zero for the observations and for the rewards of a batch, NaN where one of them is not finite.

    Replayed experience may be drawn much later: nobody could tell then where such a number came from.
    """
    parts = {OBSERVATIONS: jax.tree.leaves((batch.obs, batch.next_obs)), REWARDS: [batch.reward]}
    finite = {name: jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in part]).all() for name, part in parts.items()}
    return {name: jnp.where(fine, 0.0, jnp.nan) for name, fine in finite.items()}


def add_score(score: Array, after: Timestep) -> tuple[Array, Array]:
    """(running return, return of an episode that ended now, else NaN)."""
    score = score + after.reward
    return jnp.where(after.first, 0.0, score), jnp.where(after.first, score, jnp.nan)


def collect(
    env: Env, actor: Actor, carry: Carry, steps: int, key: PRNGKeyArray
) -> tuple[Carry, Transition, EpisodeEnds]:
    """Runs N lanes for T steps on the device: the carry, a batch [T, N], and what episodes ended."""
    lanes = carry.score.shape[0]

    def step(carry: Carry, key: PRNGKeyArray) -> tuple[Carry, tuple[Transition, EpisodeEnds]]:
        act_key, env_key = jax.random.split(key)
        rows = jax.vmap(transition, in_axes=(None, 0, 0, 0))(
            actor, carry.timestep, carry.z, jax.random.split(act_key, lanes)
        )
        env_state, after = jax.vmap(env.step)(carry.env_state, rows.decision.action, jax.random.split(env_key, lanes))
        score, ended = add_score(carry.score, after)
        return Carry(env_state, after, rows.next_z, score), (outcome(rows, after), EpisodeEnds(ended, after.faults()))

    carry, (batch, ended) = jax.lax.scan(step, carry, jax.random.split(key, steps))
    return carry, batch, ended
