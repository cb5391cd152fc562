"""Running mean and variance of every view; frozen while a batch is collected, and merged between updates."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from s2pg.types import PREVIOUS_ACTION, Obs

CLIP = 10.0


class Stats(NamedTuple):
    """Number of observations, mean and sum of squared deviations of one view."""

    number: Float[Array, ""]
    mean: Float[Array, " size"]
    squares: Float[Array, " size"]


Normaliser = dict[str, Stats]  # the previous action is in policy units already and has no entry


def initial(views: dict[str, int]) -> Normaliser:
    """Statistics before any data, of all views but the previous action."""
    return {
        name: Stats(jnp.zeros(()), jnp.zeros(size), jnp.zeros(size))
        for name, size in views.items()
        if name != PREVIOUS_ACTION
    }


def normalise(stats: Normaliser, obs: Obs) -> Obs:
    """(o - mean) / std of one example, clipped to +-10; as it is before any data came and without statistics."""

    def one(name: str, value: Array) -> Array:
        if name not in stats:
            return value
        s = stats[name]
        std = jnp.sqrt(jnp.where(s.number > 0, s.squares / jnp.maximum(s.number, 1.0) + 1e-6, 1.0))
        return jnp.clip((value - s.mean) / std, -CLIP, CLIP)

    return {name: one(name, value) for name, value in obs.items()}


def merge(stats: Normaliser, obs: Obs, weight: Array | float = 1.0) -> Normaliser:
    """Adds a batch of observations, any leading axes, by the parallel form of Welford's recursion.

    `weight` is what each of them counts, against 1 for those of before; with 0 the statistics rest.
    """

    def one(s: Stats, value: Array) -> Stats:
        value = value.reshape(-1, value.shape[-1])
        number = jnp.asarray(value.shape[0] * weight, s.number.dtype)
        mean = jnp.mean(value, axis=0)
        squares = weight * jnp.sum((value - mean[None]) ** 2, axis=0)
        whole = jnp.maximum(s.number + number, 1e-8)
        shift = mean - s.mean
        return Stats(
            whole, s.mean + shift * (number / whole), s.squares + squares + shift**2 * (s.number * number / whole)
        )

    return {name: one(s, obs[name]) for name, s in stats.items()}
