"""What both loops share: the state of training, its streams of random numbers, and what a loop can do."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray, PyTree

from s2pg.actor import Actor
from s2pg.algorithms.base import Algorithm, Plan, Policy, TrainState
from s2pg.rollout import Carry

# Streams of random numbers: none depends on how often another was used. 3 and 5 are for episodes after training.
INIT, TRAIN, EVALUATE, WARMUP = 0, 1, 2, 4


class Loop(NamedTuple):
    """Everything that training is, for every seed: what a checkpoint holds."""

    train: TrainState
    carry: Carry
    key: PRNGKeyArray
    update: Any  # how many there have been [seeds], an array of JAX on the device and of NumPy on the host
    acting: Any = ()  # the policy that steps the next batch, where that is the one from an update before


class Looper(Protocol):
    """Runs `chunk` updates at a time; arrays have a leading axis of seeds."""

    def init(self) -> Loop:
        """Training before its first step."""
        ...

    def shapes(self) -> Loop:
        """Like what `init` returns, without the memory that it takes: what to load a checkpoint into."""
        ...

    def prepare(self, loop: Loop, fresh: bool = False) -> None:
        """Compiles, what a fresh loop starts with too if this is one, so that time measured later is training."""
        ...

    def warm_up(self, loop: Loop) -> Loop:
        """A fresh loop with `Plan.warmup` steps of each lane stored (the one before is used up)."""
        ...

    def advance(self, loop: Loop) -> tuple[Loop, dict[str, np.ndarray]]:
        """`chunk` updates: the loop after them (the one before is used up), metrics [seeds, chunk]."""
        ...

    def evaluate(self, loop: Loop) -> dict[str, np.ndarray]:
        """Returns of the policies as they are, [seeds]."""
        ...

    def pack(self, loop: Loop) -> PyTree:
        """What a checkpoint keeps of the loop."""
        ...

    def unpack(self, packed: PyTree) -> tuple[Loop, bool]:
        """The loop again; False where the environments could not be brought back exactly."""
        ...

    def close(self) -> None:
        """Lets go of environments and threads."""
        ...


def stream(key: PRNGKeyArray, which: Array | int, update: Array | int = 0) -> PRNGKeyArray:
    """The key of one stream of random numbers at one update."""
    return jax.random.fold_in(jax.random.fold_in(key, which), update)


def seed_keys(seeds: Sequence[int]) -> Key[Array, " seeds"]:
    """The key of every seed."""
    return jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))


def settled(tree: PyTree) -> PyTree:
    """The same without weak types: the first update would lose them, and the second be compiled anew."""
    return jax.tree.map(lambda leaf: leaf.astype(leaf.dtype), tree)


def warmup_actor(algorithm: Algorithm, policy: Policy) -> Actor:
    """Who acts in the warm-up."""
    return dataclasses.replace(algorithm.actor(policy), uniform=algorithm.plan.uniform_warmup)


def warmup_pieces(plan: Plan) -> list[int]:
    """Steps of the batches that the warm-up is stored in: those of an update, however long it is, and what is left."""
    whole, rest = divmod(plan.warmup, plan.steps)
    return [plan.steps] * whole + [rest] * (rest > 0)
