"""Gradient steps: Adam behind a clip of the global norm, on any network."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array


class OptimiserStep(NamedTuple):
    """A network after a step, and the optimiser's state."""

    network: Any
    state: Any


def adam(
    rate: float, max_norm: float, anneal_steps: int = 0, eps: float = 1e-5, rest: int = 0
) -> optax.GradientTransformation:
    """Adam with clipped gradients; a `max_norm` of 0 clips nothing.

    With `anneal_steps` its rate falls linearly to 0 over so many; it is 0 for the first `rest` steps.
    """
    falling = optax.linear_schedule(rate, 0.0, anneal_steps) if anneal_steps else optax.constant_schedule(rate)
    schedule: Any = (lambda count: jnp.where(count < rest, 0.0, falling(count))) if rest else falling
    if not anneal_steps and not rest:
        schedule = rate
    clip = optax.clip_by_global_norm(max_norm) if max_norm else optax.identity()
    return optax.chain(clip, optax.adam(schedule, eps=eps))


def step(optimiser: optax.GradientTransformation, gradient: Any, state: Any, network: Any) -> OptimiserStep:
    """One step downhill."""
    updates, state = optimiser.update(gradient, state, network)
    return OptimiserStep(optax.apply_updates(network, updates), state)


def norm(tree: Any) -> Array:
    """The Euclidean norm over all leaves."""
    return jnp.asarray(optax.tree.norm(tree))


def follow(target: Any, network: Any, rate: float) -> Any:
    """Polyak's average: (1 - rate) target + rate network."""
    return jax.tree.map(lambda old, new: old + rate * (new - old), target, network)
