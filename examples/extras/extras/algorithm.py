"""PPO with a bonus for observations that look like given ones: imitation in miniature.

    r' = r + weight log sigmoid D(o),   D descends on  - E_given log sigmoid D - E_seen log (1 - sigmoid D)

The given observations are shared data: one copy for all seeds, in no checkpoint.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from s2pg.actor import Actor
from s2pg.algorithms import Algorithm, Metrics, Plan, Policy, TrainState
from s2pg.networks import MLP
from s2pg.optimise import adam, step
from s2pg.options import option
from s2pg.types import POLICY, Spec, Transition

Given = Float[Array, "count size"]  # observations to look like


class Own(NamedTuple):
    """What this algorithm keeps beside what PPO keeps."""

    inner: Any  # PPO's learner
    judge: MLP  # D
    optimiser: Any
    seen: Array  # how many observations it has judged


class Lookalike(Algorithm):
    """PPO that is paid for observations that look like given ones."""

    inner: Algorithm
    bonus_weight: float = option(0.1, "weight of the bonus", low=0)
    judge_rate: float = option(1e-3, "learning rate of the judge", above=0)
    judge_width: int = option(16, "units of the judge's layer", low=1)

    @property
    def plan(self) -> Plan:
        return self.inner.plan

    def init_policy(self, spec: Spec, *, key: PRNGKeyArray) -> Policy:
        return self.inner.init_policy(spec, key=key)

    def actor(self, policy: Policy, explore: bool = True) -> Actor:
        return self.inner.actor(policy, explore)

    def store(self, state: TrainState, batch: Transition) -> TrainState:
        return self._outside(state, self.inner.store(self._inside(state), self._paid(state.learner.judge, batch)))

    def init(self, spec: Spec, shared: Given, *, key: PRNGKeyArray) -> TrainState:
        inner_key, judge_key = jax.random.split(key)
        state = self.inner.init(spec, shared, key=inner_key)
        judge: Any = MLP([spec.views[POLICY], self.judge_width, 1], key=judge_key, last_gain=0.1)
        own = Own(state.learner, judge, adam(self.judge_rate, 0.5).init(judge), jnp.zeros((), jnp.int32))
        return state._replace(learner=own)

    def update(
        self, state: TrainState, batch: Transition, shared: Given, key: PRNGKeyArray
    ) -> tuple[TrainState, Metrics]:
        own, seen = state.learner, batch.next_obs[POLICY]
        loss, gradient = jax.value_and_grad(judge_loss)(own.judge, shared, seen.reshape(-1, seen.shape[-1]))
        judge, optimiser = step(adam(self.judge_rate, 0.5), gradient, own.optimiser, own.judge)
        after, metrics = self.inner.update(self._inside(state), self._paid(judge, batch), shared, key)
        own = own._replace(judge=judge, optimiser=optimiser, seen=own.seen + batch.reward.size)
        told = {"judge_loss": loss, "judged": own.seen.astype(jnp.float32)}
        return self._outside(state._replace(learner=own), after), metrics | told

    def _paid(self, judge: MLP, batch: Transition) -> Transition:
        """The batch with the bonus in its rewards."""
        bonus = jax.nn.log_sigmoid(jax.vmap(jax.vmap(judge))(batch.next_obs[POLICY])[..., 0])
        return batch._replace(reward=batch.reward + self.bonus_weight * bonus)

    def _inside(self, state: TrainState) -> TrainState:
        """The state as PPO knows it."""
        return state._replace(learner=state.learner.inner)

    def _outside(self, before: TrainState, after: TrainState) -> TrainState:
        """PPO's new state with what is our own around it."""
        return after._replace(learner=before.learner._replace(inner=after.learner))


def judge_loss(judge: MLP, given: Given, seen: Float[Array, "batch size"]) -> Array:
    """The cross-entropy of telling given observations from seen ones."""
    real, fake = (jax.vmap(judge)(rows)[:, 0] for rows in (given, seen))
    return -jnp.mean(jax.nn.log_sigmoid(real)) - jnp.mean(jax.nn.log_sigmoid(-fake))
