"""Stochastic latent actor-critic: SAC whose critics read latents of a learned model, and whose actor reads a window.

    J_M    = - E [lower bound of log p(x_{1:K+1}, r_{1:K} | a_{1:K})] per observation (docs/slac.md)
    y      = r + gamma (1 - terminated) (min_i Q_i'(z', a') - alpha log pi(a' | w')),     a' ~ pi(. | w')
    L_Q    = 1/2 E sum_i (Q_i(z, a) - y)^2
    L_pi   = E [alpha log pi(a~ | w) - min_i Q_i(z, a~)],                                 a~ ~ pi(. | w)

A replayed segment of K rows is one sample: the latents z and z' of its last row are drawn from the posterior over the
segment, w and w' are the windows of K observations, and of the actions between them, that end there. The model learns
from segments of its own, `pretraining` times before the first update and once in every gradient step; critics and actor
hand no gradient to it. No segment crosses the border of an episode. To act, the window is all there is: a policy holds
no latents and no model.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from s2pg.actor import Actor
from s2pg.algorithms import sac
from s2pg.algorithms.base import Algorithm, Metrics, Plan, Policy, TrainState, Traits
from s2pg.algorithms.latents import LatentModel, Segment, Sizes
from s2pg.algorithms.offpolicy import Batch, in_turns
from s2pg.algorithms.sac import SAC
from s2pg.critics import Critic
from s2pg.optimise import adam, step
from s2pg.options import option
from s2pg.replay import Buffer, ReplayBatch
from s2pg.types import PREVIOUS_ACTION, Spec, Transition, read

LATENTS = "latents"  # the view that critics read


class Learner(NamedTuple):
    """What SLAC keeps beside the policy."""

    inner: sac.Learner
    model: LatentModel
    optimiser: Any  # the model's

    @property
    def critic(self) -> Critic:
        """SAC's."""
        return self.inner.critic


class SLAC(Algorithm):
    """Soft actor-critic on the latents of a learned model."""

    inner: SAC
    first_latents: int = option(32, "numbers in z1, the latents that the posterior infers", low=1)
    second_latents: int = option(128, "numbers in z2, the latents that carry the past", low=1)
    model_width: int = option(256, "units of the model's layers, two in each of its networks", low=1)
    model_rate: float = option(3e-4, "learning rate of the model", above=0)
    model_batch: int = option(32, "segments of a gradient step of the model", low=1)
    pretraining: int = option(10_000, "gradient steps of the model before actor and critics learn", low=0)
    least_std: float = option(
        0.03, "what the learned deviations of observations and rewards, given the latents, stay above", above=0
    )

    traits: ClassVar[Traits] = SAC.traits._replace(acts_on_window=True, critic_reads=(LATENTS,))

    @property
    def plan(self) -> Plan:
        return self.inner.plan

    @property
    def observed(self) -> tuple[str, ...]:
        """The views that the model explains; actions it is given."""
        return tuple(name for name in self.inner.reads if name != PREVIOUS_ACTION)

    @property
    def optimiser(self) -> Any:
        """The model's."""
        steps = self.inner.anneal_steps + self.pretraining if self.inner.anneal_steps else 0
        return adam(self.model_rate, self.inner.max_grad_norm, steps)

    def init_policy(self, spec: Spec, *, key: PRNGKeyArray) -> Policy:
        return self.inner.init_policy(spec, key=key)

    def actor(self, policy: Policy, explore: bool = True) -> Actor:
        return self.inner.actor(policy, explore)

    def init(self, spec: Spec, shared: PyTree, *, key: PRNGKeyArray) -> TrainState:
        inner_key, model_key = jax.random.split(key)
        hidden = (self.model_width, self.model_width)
        observed = sum(spec.views[name] for name in self.observed)
        sizes = Sizes(observed, spec.action.size, self.first_latents, self.second_latents, hidden)
        model = LatentModel(sizes, self.least_std, key=model_key)
        state = self.inner.begin(spec, {LATENTS: sizes.latents}, key=inner_key)
        return state._replace(learner=Learner(state.learner, model, self.optimiser.init(model)))

    def store(self, state: TrainState, batch: Transition) -> TrainState:
        return self.inner.store(state, batch)

    def update(
        self, state: TrainState, batch: Transition, shared: PyTree, key: PRNGKeyArray
    ) -> tuple[TrainState, Metrics]:
        state = self.pretrain(self.store(state, batch), jax.random.fold_in(key, 1))
        return in_turns(self.learn, state, self.inner.gradient_steps, key)

    def pretrain(self, state: TrainState, key: PRNGKeyArray) -> TrainState:
        """The first steps of the model, all in the first update: nothing else moves, the environment neither."""
        if not self.pretraining:
            return state
        steps = jnp.where(state.updates == 0, self.pretraining, 0)

        def one(count: Array, learner: Learner) -> Learner:
            return self.learn_model(state._replace(learner=learner), jax.random.fold_in(key, count))[0]

        return state._replace(learner=jax.lax.fori_loop(0, steps, one, state.learner))

    def learn(self, state: TrainState, key: PRNGKeyArray) -> tuple[TrainState, Metrics]:
        """One gradient step of the model, then one of actor, critics and temperature on other segments."""
        model_key, sample_key, latent_key, *keys = jax.random.split(key, 6)
        learner, told = self.learn_model(state, model_key)
        found, batch = self.inner.sample_batch(state.replay, state.policy, sample_key)
        batch = self.with_latents(learner.model, found, batch, latent_key)
        inner = state._replace(learner=learner.inner)
        inner, _, metrics = self.inner.descend(inner, batch, keys, self.inner.critic_gradient)
        return inner._replace(learner=learner._replace(inner=inner.learner)), metrics | told

    def learn_model(self, state: TrainState, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        """One gradient step of the model on segments of its own."""
        sample_key, latent_key = jax.random.split(key)
        found, batch = self._sample(state.replay, state.policy, sample_key)
        segments, learner = self.segments(found, batch), state.learner
        (loss, told), gradient = jax.value_and_grad(model_loss, has_aux=True)(learner.model, segments, latent_key)
        model, optimiser = step(self.optimiser, gradient, learner.optimiser, learner.model)
        return learner._replace(model=model, optimiser=optimiser), {"model_loss": loss, **told}

    def with_latents(self, model: LatentModel, found: ReplayBatch, batch: Batch, key: PRNGKeyArray) -> Batch:
        """A batch as the critics see it: in place of observations, latents drawn from the posterior over segments."""
        segments, samples = self.segments(found, batch), batch.row.shape[0]
        latents = jax.vmap(model.infer)(segments, jax.random.split(key, samples)).latents
        before, after = ({LATENTS: latents[:, at, None]} for at in (-2, -1))
        return batch._replace(history={}, obs=before, next_obs=after)

    def segments(self, found: ReplayBatch, batch: Batch) -> Segment:
        """All rows of the samples as the model reads them."""
        reward = self.inner.reward_scale * found.reward
        return Segment(read(batch.history, self.observed), found.action, reward, found.valid)

    def _sample(self, stored: Buffer, policy: Policy, key: PRNGKeyArray) -> tuple[ReplayBatch, Batch]:
        """Samples for the model."""
        return dataclasses.replace(self.inner, batch_size=self.model_batch).sample_batch(stored, policy, key)


def model_loss(model: LatentModel, segments: Segment, key: PRNGKeyArray) -> tuple[Array, Metrics]:
    """J_M of segments [B, ...], and what it is made of."""
    keys = jax.random.split(key, segments.reward.shape[0])
    bounds = jax.vmap(model.bound)(segments, keys)
    whole = jax.tree.map(jnp.sum, bounds)
    parts = {"obs_log_prob": whole.obs, "reward_log_prob": whole.reward, "divergence": whole.divergence}
    return -whole.total / whole.number, {name: part / whole.number for name, part in parts.items()}
