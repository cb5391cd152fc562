"""What algorithms that imitate share: demonstrations as experience, and learning its actions by heart."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.actor import Actor
from s2pg.algorithms.base import Metrics
from s2pg.algorithms.onpolicy import evaluations, masked_mean, over_minibatches
from s2pg.kernel import Kernel
from s2pg.memory import Memory
from s2pg.optimise import step
from s2pg.types import Decision, Expert, State, Transition, total


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


def learn_by_heart(
    networks: tuple[Kernel, Any],
    memory: Memory,
    reads: tuple[str, ...],
    optimiser: Any,
    shown: Transition,
    epochs: int,
    minibatches: int,
    key: PRNGKeyArray,
) -> tuple[tuple[Kernel, Any], Metrics]:
    """Takes gradient steps on - E log pi(a | o, z) over a batch [T, N], observations already normalised."""
    segments = memory.segments(*shown.first.shape)

    def take(chosen: Array) -> tuple[Transition, Array]:
        time, lane, valid = (jnp.asarray(column)[chosen] for column in segments)
        return jax.tree.map(lambda leaf: leaf[time, lane], shown), valid

    def loss(kernel: Kernel, row: Transition, valid: Array) -> Array:
        found = evaluations(memory, kernel, row, reads, valid)
        return -masked_mean(found.mask)(total(found.log_prob))

    def minibatch(carry: tuple[Kernel, Any], cut: tuple[Transition, Array]) -> tuple[tuple[Kernel, Any], Metrics]:
        kernel, kept = carry
        cost, gradient = jax.value_and_grad(loss)(kernel, *cut)
        stepped = step(optimiser, gradient, kept, kernel)
        return (stepped.network, stepped.state), {"clone_loss": cost}

    return over_minibatches(minibatch, networks, take, len(segments.time), epochs, minibatches, key)
