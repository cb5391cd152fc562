"""Returns and advantages of one trajectory, as pure functions of arrays with a leading axis of time."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def gae(
    reward: Float[Array, " T"],
    value: Float[Array, " T"],
    next_value: Float[Array, " T"],
    terminated: Bool[Array, " T"],
    truncated: Bool[Array, " T"],
    discount: float,
    trace: float,
) -> Float[Array, " T"]:
    """A_t = delta_t + discount trace A_{t+1}, delta_t = r_t + discount V(s', z') - V(s, z).

    `next_value` is that of the observation and z' *before* a reset. Termination makes it 0; truncation keeps it.
    Neither lets the trace run on into the next episode.
    """
    delta = reward + discount * jnp.where(terminated, 0.0, next_value) - value
    carry_on = discount * trace * (1.0 - (terminated | truncated))

    def back(advantage: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, carry_on = step
        advantage = delta + carry_on * advantage
        return advantage, advantage

    _, advantages = jax.lax.scan(back, jnp.zeros(()), (delta, carry_on), reverse=True)
    return advantages


def first_episode(terminated: Bool[Array, " T"], truncated: Bool[Array, " T"]) -> Bool[Array, " T"]:
    """Marks the steps up to and with the first end of an episode."""
    ended = jnp.cumsum(terminated | truncated)
    return jnp.concatenate([jnp.zeros(1, ended.dtype), ended[:-1]]) == 0


def discounted(reward: Float[Array, " T"], discount: float) -> Float[Array, " T"]:
    """gamma^t r_t, so that J(tau) is the sum."""
    return reward * discount ** jnp.arange(reward.shape[0])
