"""Soft actor-critic over decisions (paper: SAC-RS), one file for every memory rule.

    y         = r + gamma (1 - terminated) (min_i Q_i'(s', z', u') - alpha . log pi(u' | x')),   u' ~ pi(. | x')
    L_Q       = 1/2 E sum_i (Q_i(s, z, u) - y)^2
    L_pi      = E [alpha . log pi(u~ | x) - min_i Q_i(s, z, u~)],                                u~ ~ pi(. | x)
    L_alpha   = - E log alpha (log pi(u~ | x) + H)        (or alpha itself in place of its logarithm)

The dot is a sum over the halves of a decision: S2PG has alpha^a and alpha^z, the other rules alpha^a alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from s2pg import replay
from s2pg.algorithms.base import Metrics, TrainState
from s2pg.algorithms.offpolicy import (
    Batch,
    OffPolicy,
    critic_histories,
    decision_values,
    draw,
    judged,
    mean,
    regression,
    unfold,
)
from s2pg.critics import Critic
from s2pg.heads import Heads, squashed_action_head, squashed_state_head
from s2pg.kernel import Kernel
from s2pg.memory import ReplayEvaluation
from s2pg.optimise import adam, follow, norm, step
from s2pg.options import option, redefine
from s2pg.types import Decision, Spec, weighted


class Optimisers(NamedTuple):
    """Optimisers, or their states."""

    actor: Any
    critic: Any
    temperature: Any


class Learner(NamedTuple):
    """What SAC keeps beside the policy."""

    critic: Critic
    target: Critic  # slow copies
    temperature: Decision  # log alpha, one for each half of a decision
    optimiser: Optimisers


# (gradient, metrics) of the critics' objective, from the state, a batch and what the policy makes of it.
CriticGradient = Callable[[TrainState, Batch, ReplayEvaluation, PRNGKeyArray], tuple[Critic, Metrics]]


class SAC(OffPolicy):
    """Soft actor-critic with a temperature for each half of u."""

    action_log_std: float = redefine(OffPolicy, "action_log_std", 0.0)
    alpha_action: float = option(1.0, "temperature of the action's entropy at the start", above=0)
    alpha_state: float = option(0.01, "temperature of the entropy of z' at the start, under s2pg", above=0)
    alpha_learning_rate: float = option(3e-4, "of the action's temperature", low=0)
    alpha_state_learning_rate: float = option(3e-4, "of the state's temperature", low=0)
    entropy_per_action: float = option(-1.0, "target entropy of each dimension of an action")
    entropy_per_state: float = option(-1.0, "target entropy of each dimension of z'")
    target_state_entropy: bool = option(
        False, "count the entropy of z' as a reward (the paper does, the authors' code does not)"
    )
    log_alpha_loss: bool = option(True, "temperatures descend on log alpha (the authors' code) or on alpha (the paper)")

    @property
    def steps_per_turn(self) -> int:
        return 1

    @property
    def optimisers(self) -> Optimisers:
        """Those of actor, critics and temperatures."""
        critic_rate = self.critic_learning_rate or self.learning_rate
        actor = adam(self.learning_rate, self.max_grad_norm, self.anneal_steps, rest=self.critic_first)
        critic = adam(critic_rate, self.max_grad_norm, self.anneal_steps)
        return Optimisers(actor, critic, optax.scale_by_adam())  # rates differ between the halves: see `cool`

    def heads(self, spec: Spec) -> Heads:
        action = squashed_action_head(spec.action, self.action_log_std)
        return Heads(action, self.memory.state_head(squashed_state_head))

    def init_learner(self, kernel: Kernel, critic: Critic) -> Learner:
        start = self.memory.halves(self.alpha_action, self.alpha_state)
        temperature = jax.tree.map(lambda alpha: jnp.asarray(math.log(alpha), jnp.float32), start)
        parts = (kernel, critic, temperature)
        optimiser = Optimisers(*(each.init(part) for each, part in zip(self.optimisers, parts, strict=True)))
        return Learner(critic, critic, temperature, optimiser)

    def learn(self, state: TrainState, key: PRNGKeyArray) -> tuple[TrainState, Metrics]:
        sample_key, *keys = jax.random.split(key, 4)
        found, batch = self.sample_batch(state.replay, state.policy, sample_key)
        state, unfolded, metrics = self.descend(state, batch, keys, self.critic_gradient)
        return state._replace(replay=replay.write(state.replay, found, unfolded.fresh)), metrics

    def descend(
        self,
        state: TrainState,
        batch: Batch,
        keys: list[PRNGKeyArray],
        critic_gradient: CriticGradient,
        cooling: Bool[Array, "B m"] | None = None,
    ) -> tuple[TrainState, ReplayEvaluation, Metrics]:
        """One step of actor, critics and temperatures, all from the same parameters; and the samples as they saw them.

        Another objective of the critics is another `critic_gradient`; temperatures follow the rows of `cooling`.
        """
        refresh_key, now_key, ahead_key = keys
        learner, kernel = state.learner, state.policy.kernel
        (actor_loss, (unfolded, log_prob)), actor_gradient = jax.value_and_grad(self.actor_loss, has_aux=True)(
            kernel, state, batch, refresh_key, now_key
        )
        gradient, metrics = critic_gradient(state, batch, unfolded, ahead_key)
        followed = batch.mask if cooling is None else batch.mask & cooling
        log_prob = jax.tree.map(lambda x: mean(x, followed), log_prob)
        optimisers, states = self.optimisers, learner.optimiser
        new_kernel, actor_state = step(optimisers.actor, actor_gradient, states.actor, kernel)
        critic, critic_state = step(optimisers.critic, gradient, states.critic, learner.critic)
        temperature, temperature_state = self.cool(state, log_prob, self.wanted(batch, unfolded))
        learned = Learner(
            critic,
            follow(learner.target, critic, self.target_rate),
            temperature,
            Optimisers(actor_state, critic_state, temperature_state),
        )
        metrics |= {
            "actor_loss": actor_loss,
            "actor_gradient": norm(actor_gradient),
            **_named("alpha", jax.tree.map(jnp.exp, learner.temperature)),
            **_named("entropy", jax.tree.map(jnp.negative, log_prob)),
        }
        policy = state.policy._replace(kernel=new_kernel)
        return state._replace(policy=policy, learner=learned, updates=state.updates + 1), unfolded, metrics

    def actor_loss(
        self, kernel: Kernel, state: TrainState, batch: Batch, refresh_key: PRNGKeyArray, now_key: PRNGKeyArray
    ) -> tuple[Array, tuple[ReplayEvaluation, Decision]]:
        """L_pi; and, for the rest of an update, the samples under the policy and log pi(u~ | x) of their rows."""
        learner = state.learner
        unfolded = unfold(self.memory, kernel, batch, refresh_key)
        decision, log_prob = draw(self.memory, unfolded.now, now_key)
        h, _ = critic_histories(learner.critic, batch)
        values = decision_values(learner.critic, state.policy.kernel, batch.obs, h, unfolded.z, decision)
        cost = weighted(jax.tree.map(jnp.exp, learner.temperature), log_prob)
        seen = jax.lax.stop_gradient((unfolded, log_prob))
        return mean(cost - judged(values, self.actor_value), batch.mask), seen

    def critic_gradient(
        self, state: TrainState, batch: Batch, unfolded: ReplayEvaluation, key: PRNGKeyArray
    ) -> tuple[Critic, Metrics]:
        """The gradient of L_Q."""
        target = self.target(state, batch, unfolded, key)
        decision = self.memory.halves(batch.action, unfolded.next_z)
        loss, gradient = jax.value_and_grad(regression)(
            state.learner.critic, state.policy.kernel, batch, unfolded.z, decision, target
        )
        return gradient, {"critic_loss": loss, "value": mean(target, batch.mask)}

    def target(
        self, state: TrainState, batch: Batch, unfolded: ReplayEvaluation, key: PRNGKeyArray
    ) -> Float[Array, "B m"]:
        """y."""
        return batch.reward + self.discount * batch.alive * self.future(state, batch, unfolded, key)

    def future(
        self, state: TrainState, batch: Batch, unfolded: ReplayEvaluation, key: PRNGKeyArray
    ) -> Float[Array, "B m"]:
        """min_i Q_i'(s', z', u') - alpha . log pi(u' | x')."""
        learner = state.learner
        decision, log_prob = draw(self.memory, unfolded.ahead, key)
        _, h = critic_histories(learner.target, batch)
        values = decision_values(learner.target, state.policy.kernel, batch.next_obs, h, unfolded.next_z, decision)
        return jnp.min(values, axis=0) - weighted(self.rewarded(learner), log_prob)

    def rewarded(self, learner: Learner) -> Decision:
        """Alpha of each half, as far as its entropy counts as a reward."""
        counted = self.memory.halves(1.0, float(self.target_state_entropy))
        return jax.tree.map(lambda count, log_alpha: count * jnp.exp(log_alpha), counted, learner.temperature)

    def wanted(self, batch: Batch, unfolded: ReplayEvaluation) -> Decision:
        """The entropies H that temperatures are to bring about."""
        size = sum(leaf[0, 0].size for leaf in jax.tree.leaves(unfolded.z))
        action = self.entropy_per_action * batch.action.shape[-1]
        return jax.tree.map(jnp.asarray, self.memory.halves(action, self.entropy_per_state * size))

    def temperature_loss(self, log_alpha: Decision, log_prob: Decision, wanted: Decision) -> Array:
        """L_alpha."""
        scale = (lambda x: x) if self.log_alpha_loss else jnp.exp
        return -weighted(jax.tree.map(scale, log_alpha), jax.tree.map(jnp.add, log_prob, wanted))

    def cool(self, state: TrainState, log_prob: Decision, wanted: Decision) -> tuple[Decision, Any]:
        """One step of the temperatures, each at its own rate."""
        learner = state.learner
        gradient = jax.grad(self.temperature_loss)(learner.temperature, log_prob, wanted)
        direction, optimiser = self.optimisers.temperature.update(gradient, learner.optimiser.temperature)
        rates = self.memory.halves(self.alpha_learning_rate, self.alpha_state_learning_rate)
        begun = (state.updates >= self.critic_first).astype(jnp.float32)  # temperatures rest with the actor
        return jax.tree.map(lambda x, d, rate: x - begun * rate * d, learner.temperature, direction, rates), optimiser


def _named(name: str, decision: Decision) -> Metrics:
    """`name_action`, and `name_state` where there is such a half."""
    return {f"{name}_{half}": part for half, part in decision._asdict().items() if jax.tree.leaves(part)}
