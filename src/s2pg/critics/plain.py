"""A critic without a memory: a perceptron over everything it sees."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.critics.base import Critic
from s2pg.networks import MLP
from s2pg.types import Decision, Obs, read


class PlainCritic(Critic):
    """A perceptron over the views it reads, the decision and, if `reads_state`, the features of z."""

    body: MLP
    reads: tuple[str, ...] = eqx.field(static=True)
    reads_state: bool = eqx.field(static=True)

    def __init__(
        self,
        views: dict[str, int],
        features: int,
        decision: Decision,
        key: PRNGKeyArray,
        *,
        reads: tuple[str, ...],
        reads_state: bool,
        width: int,
    ):
        self.reads, self.reads_state = reads, reads_state
        inputs = sum(views[name] for name in reads) + features * reads_state + sum(jax.tree.leaves(decision))
        self.body = MLP([inputs, width, width, 1], key=key, last_gain=0.1)

    def initial(self) -> tuple[()]:
        return ()

    def advance(self, obs: Obs, h: tuple[()]) -> tuple[()]:
        return ()

    def __call__(self, obs: Obs, h: tuple[()], features: Array, decision: Decision) -> Array:
        seen = [features] if self.reads_state else []
        return self.body(jnp.concatenate([read(obs, self.reads), *seen, *jax.tree.leaves(decision)]))[0]
