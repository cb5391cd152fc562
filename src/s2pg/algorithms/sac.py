"""Soft actor-critic over decisions (paper: SAC-RS), one file for every memory rule.

    y         = r + gamma (1 - terminated) (min_i Q_i'(s', z', u') - alpha . log pi(u' | x')),   u' ~ pi(. | x')
    L_Q       = 1/2 E sum_i (Q_i(s, z, u) - y)^2
    L_pi      = E [alpha . log pi(u~ | x) - min_i Q_i(s, z, u~)],                                u~ ~ pi(. | x)
    L_alpha   = - E log alpha (log pi(u~ | x) + H)        (or alpha itself in place of its logarithm)

The dot is a sum over the halves of a decision: S2PG has alpha^a and alpha^z, the other rules alpha^a alone.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PRNGKeyArray

from s2pg import replay
from s2pg.algorithms.base import Metrics, TrainState
from s2pg.algorithms.offpolicy import Batch, OffPolicy, mean
from s2pg.heads import Heads, squashed_action_head, squashed_state_head
from s2pg.kernel import Kernel
from s2pg.memory import ReplayEvaluation
from s2pg.optimise import adam, follow, norm, step
from s2pg.types import Decision, Spec, weighted


class Optimisers(NamedTuple):
    actor: Any
    critic: Any
    temperature: Any


class Foreseen(NamedTuple):
    """What the actor's loss finds on its way and the rest of an update uses."""

    unfolded: ReplayEvaluation
    log_prob: Decision  # means over the batch


class SAC(OffPolicy):
    """Soft actor-critic with a temperature for each half of a decision."""

    action_log_std: float = eqx.field(static=True, default=0.0)
    alpha_action: float = eqx.field(static=True, default=1.0)  # at the start
    alpha_state: float = eqx.field(static=True, default=0.01)
    alpha_learning_rate: float = eqx.field(static=True, default=3e-4)
    alpha_state_learning_rate: float = eqx.field(static=True, default=3e-4)
    entropy_per_action: float = eqx.field(static=True, default=-1.0)  # target entropy of each dimension of a ...
    entropy_per_state: float = eqx.field(static=True, default=-1.0)  # ... and of z'
    target_state_entropy: bool = eqx.field(static=True, default=False)  # count z's entropy as a reward
    log_alpha_loss: bool = eqx.field(static=True, default=True)  # descend on log alpha, or on alpha

    @property
    def optimisers(self) -> Optimisers:
        critic_rate = self.critic_learning_rate or self.learning_rate
        actor = adam(self.learning_rate, self.max_grad_norm, self.anneal_steps, rest=self.critic_first)
        critic = adam(critic_rate, self.max_grad_norm, self.anneal_steps)
        return Optimisers(actor, critic, optax.scale_by_adam())  # rates differ between the halves: see `_cool`

    def heads(self, spec: Spec) -> Heads:
        action = squashed_action_head(spec.action, self.action_log_std)
        return Heads(action, self.memory.state_head(squashed_state_head))

    def init(self, spec: Spec, *, key: PRNGKeyArray) -> TrainState:
        kernel, critic, views = self.build(spec, key)
        start = self.memory.halves(self.alpha_action, self.alpha_state)
        temperature = jax.tree.map(lambda alpha: jnp.asarray(math.log(alpha), jnp.float32), start)
        parts = (kernel, critic, temperature)
        optimiser = Optimisers(*(each.init(part) for each, part in zip(self.optimisers, parts, strict=True)))
        return TrainState(
            kernel, critic, optimiser, self.statistics(spec, views), (), jnp.zeros((), jnp.int32),
            target=critic, temperature=temperature, replay=self.empty(kernel, views, spec),
        )  # fmt: skip

    def learn(self, state: TrainState, key: PRNGKeyArray) -> tuple[TrainState, Metrics]:
        sample_key, fresh_key, now_key, ahead_key = jax.random.split(key, 4)
        found, batch = self.recall(state, sample_key)
        (actor_loss, seen), actor_gradient = jax.value_and_grad(self.actor_loss, has_aux=True)(
            state.kernel, state, batch, fresh_key, now_key
        )
        unfolded = seen.unfolded
        target = self.target(state, batch, unfolded, ahead_key)
        decision = self.memory.halves(batch.action, unfolded.next_z)
        critic_loss, critic_gradient = jax.value_and_grad(self.critic_loss)(
            state.critic, state.kernel, batch, unfolded.z, decision, target
        )
        optimisers = self.optimisers
        kernel, actor_state = step(optimisers.actor, actor_gradient, state.optimiser.actor, state.kernel)
        critic, critic_state = step(optimisers.critic, critic_gradient, state.optimiser.critic, state.critic)
        temperature, temperature_state = self._cool(state, seen.log_prob, self.wanted(batch, unfolded))
        metrics = {
            "actor_loss": actor_loss,
            "critic_loss": critic_loss,
            "value": mean(target, batch.mask),
            "actor_gradient": norm(actor_gradient),
            **_named("alpha", jax.tree.map(jnp.exp, state.temperature)),
            **_named("entropy", jax.tree.map(jnp.negative, seen.log_prob)),
        }
        return state._replace(
            kernel=kernel,
            critic=critic,
            optimiser=Optimisers(actor_state, critic_state, temperature_state),
            target=follow(state.target, critic, self.target_rate),
            temperature=temperature,
            replay=replay.write(state.replay, found, unfolded.fresh),
            updates=state.updates + 1,
        ), metrics

    def actor_loss(
        self, kernel: Kernel, state: TrainState, batch: Batch, fresh_key: PRNGKeyArray, now_key: PRNGKeyArray
    ) -> tuple[Array, Foreseen]:
        unfolded = self.unfold(kernel, batch, fresh_key)
        decision, log_prob = self.draw(unfolded.now, now_key)
        h, _ = self.histories(state.critic, batch)
        values = self.values(state.critic, state.kernel, batch.obs, h, unfolded.z, decision)
        cost = weighted(jax.tree.map(jnp.exp, state.temperature), log_prob)
        seen = Foreseen(unfolded, jax.tree.map(lambda x: mean(x, batch.mask), log_prob))
        return mean(cost - self.judged(values), batch.mask), jax.lax.stop_gradient(seen)

    def target(self, state: TrainState, batch: Batch, unfolded: ReplayEvaluation, key: PRNGKeyArray) -> Array:
        """y [B, m]."""
        decision, log_prob = self.draw(unfolded.ahead, key)
        _, h = self.histories(state.target, batch)
        values = self.values(state.target, state.kernel, batch.next_obs, h, unfolded.next_z, decision)
        counted = self.memory.halves(1.0, float(self.target_state_entropy))
        weights = jax.tree.map(lambda count, log_alpha: count * jnp.exp(log_alpha), counted, state.temperature)
        return batch.reward + self.discount * batch.alive * (jnp.min(values, axis=0) - weighted(weights, log_prob))

    def wanted(self, batch: Batch, unfolded: ReplayEvaluation) -> Decision:
        """The entropies H that temperatures are to bring about."""
        size = sum(leaf[0, 0].size for leaf in jax.tree.leaves(unfolded.z))
        action = self.entropy_per_action * batch.action.shape[-1]
        return jax.tree.map(jnp.asarray, self.memory.halves(action, self.entropy_per_state * size))

    def temperature_loss(self, log_alpha: Decision, log_prob: Decision, wanted: Decision) -> Array:
        scale = (lambda x: x) if self.log_alpha_loss else jnp.exp
        return -weighted(jax.tree.map(scale, log_alpha), jax.tree.map(jnp.add, log_prob, wanted))

    def _cool(self, state: TrainState, log_prob: Decision, wanted: Decision) -> tuple[Decision, Any]:
        gradient = jax.grad(self.temperature_loss)(state.temperature, log_prob, wanted)
        direction, optimiser = self.optimisers.temperature.update(gradient, state.optimiser.temperature)
        rates = self.memory.halves(self.alpha_learning_rate, self.alpha_state_learning_rate)
        begun = (state.updates >= self.critic_first).astype(jnp.float32)  # temperatures rest with the actor
        return jax.tree.map(lambda x, d, rate: x - begun * rate * d, state.temperature, direction, rates), optimiser


def _named(name: str, decision: Decision) -> Metrics:
    """`name_action`, and `name_state` where there is such a half."""
    return {f"{name}_{half}": part for half, part in decision._asdict().items() if jax.tree.leaves(part)}
