"""Behaviour cloning: the log-likelihood of an expert's actions, with a memory that is unrolled through its episodes.

    L = - E_expert log pi(a | o, z),   z from our own policy that watches the episode

An update is `epochs` passes over the demonstrations, before each of which z is computed anew. The environment serves to
evaluate: of it nothing is learned.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from s2pg.algorithms.base import (
    Metrics,
    Plan,
    Policy,
    PolicyAlgorithm,
    TrainState,
    Traits,
    build_kernel,
    normalised,
    plain_heads,
)
from s2pg.algorithms.expert import as_batch, learn_by_heart, rolled
from s2pg.errors import UserError
from s2pg.kernel import Kernel
from s2pg.normalise import initial, merge
from s2pg.optimise import adam, norm
from s2pg.options import option
from s2pg.types import Expert, Spec, Transition


class Learner(NamedTuple):
    """What cloning keeps beside the policy."""

    optimiser: Any


class Cloning(PolicyAlgorithm):
    """Behaviour cloning: an expert's actions, by heart.

    `shared` is an `Expert` with actions.
    """

    epochs: int = option(1, "passes over the demonstrations per update", low=1)
    batch_size: int = option(256, "rows of a gradient step, in whole segments", low=1)
    learning_rate: float = option(1e-3, "of Adam", above=0)
    anneal_updates: int = option(0, "updates over which the learning rate falls to 0; 0: it stays", low=0)
    max_grad_norm: float = option(0.5, "longer gradients are scaled down to this; 0: never", low=0)

    traits: ClassVar[Traits] = Traits(has_critic=False, teaches_draws=False, cuts_rollouts=False)

    @property
    def plan(self) -> Plan:
        return Plan(self.lanes, self.steps)

    def views_of_expert(self, spec: Spec, known: Collection[str]) -> list[str]:
        """The views that demonstrations must have: those that the actor reads."""
        return list(self.reads)

    def init_policy(self, spec: Spec, *, key: PRNGKeyArray) -> Policy:
        kernel = build_kernel(self.kernel, spec, self.reads, plain_heads(self.memory, spec, self.action_log_std), key)
        return Policy(kernel, initial({name: spec.views[name] for name in self.reads} if self.normalise_obs else {}))

    def init(self, spec: Spec, shared: Expert, *, key: PRNGKeyArray) -> TrainState:
        if shared.action.shape[1:] == (0,):
            raise UserError("bc needs demonstrations with actions, and these have none; use gail")
        policy = self.init_policy(spec, key=key)
        policy = policy._replace(normaliser=merge(policy.normaliser, shared.obs))
        rows = shared.first.shape[0]
        return TrainState(policy, Learner(self.optimiser(rows).init(policy.kernel)), (), jnp.zeros((), jnp.int32))

    def optimiser(self, rows: int) -> Any:
        """Adam, for demonstrations of so many rows."""
        return adam(self.learning_rate, self.max_grad_norm, self.anneal_updates * self.epochs * self._minibatches(rows))

    def _minibatches(self, rows: int) -> int:
        samples, length = self.memory.segments(rows, 1).time.shape
        return min(samples, max(1, samples * length // self.batch_size))

    def store(self, state: TrainState, batch: Transition) -> TrainState:
        return state

    def update(
        self, state: TrainState, batch: Transition, shared: Expert, key: PRNGKeyArray
    ) -> tuple[TrainState, Metrics]:
        rows = shared.first.shape[0]
        optimiser, minibatches = self.optimiser(rows), self._minibatches(rows)

        def epoch(carry: tuple[Kernel, Any], key: PRNGKeyArray) -> tuple[tuple[Kernel, Any], Metrics]:
            watch_key, order_key = jax.random.split(key)
            policy = state.policy._replace(kernel=carry[0])
            watched = as_batch(shared, *rolled(self.actor(policy, explore=False), shared, watch_key))
            seen = normalised(policy.normaliser, watched)
            return learn_by_heart(carry, self.memory, self.reads, optimiser, seen, 1, minibatches, order_key)

        begun = (state.policy.kernel, state.learner.optimiser)
        (kernel, kept), metrics = jax.lax.scan(epoch, begun, jax.random.split(key, self.epochs))
        state = state._replace(
            policy=state.policy._replace(kernel=kernel), learner=Learner(kept), updates=state.updates + 1
        )
        return state, jax.tree.map(jnp.mean, metrics) | {"parameter_norm": norm(kernel)}
