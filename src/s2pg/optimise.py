"""Gradient steps: Adam behind a clip of the global norm, on any network."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array


class Stepped(NamedTuple):
    network: Any
    state: Any


def adam(rate: float, max_norm: float, anneal_steps: int = 0, eps: float = 1e-5) -> optax.GradientTransformation:
    """Adam with clipped gradients; with `anneal_steps` its rate falls linearly to 0 over so many."""
    schedule: Any = optax.linear_schedule(rate, 0.0, anneal_steps) if anneal_steps else rate
    return optax.chain(optax.clip_by_global_norm(max_norm), optax.adam(schedule, eps=eps))


def step(optimiser: optax.GradientTransformation, gradient: Any, state: Any, network: Any) -> Stepped:
    """One step downhill."""
    updates, state = optimiser.update(gradient, state, network)
    return Stepped(optax.apply_updates(network, updates), state)


def norm(tree: Any) -> Array:
    """The Euclidean norm over all leaves."""
    return jnp.asarray(optax.tree.norm(tree))
