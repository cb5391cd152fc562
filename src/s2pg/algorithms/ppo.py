"""Proximal policy optimisation over decisions (paper: PPO-RS), one file for every memory rule.

    ratio = pi(u | x) / pi_old(u | x),  log pi = sum of the decision's halves
    L = - min(ratio A, clip(ratio, 1 - eps, 1 + eps) A)                         likelihood ratio
        - w (1 - terminated) gamma V_sg(s', z'_theta) / std(A) + kappa drift    pathwise half
        - c_H . entropy

The second line differentiates through z' alone. Only the pathwise estimator hands out a z' with a gradient;
for every other rule the line is a constant and costs nothing after compilation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PRNGKeyArray

from s2pg.algorithms.base import Algorithm, Metrics, TrainState, normalised, over
from s2pg.critics import Critic, Values, unroll
from s2pg.kernel import Kernel
from s2pg.memory import restarts
from s2pg.normalise import initial, merge
from s2pg.optimise import adam, norm, step
from s2pg.returns import gae
from s2pg.types import Decision, Spec, State, Transition, total


class Learning(NamedTuple):
    """A piece of experience with what the losses need beside it."""

    transition: Transition
    advantage: Array
    target: Array
    h: State


class Networks(NamedTuple):
    kernel: Kernel
    critic: Critic


class PPO(Algorithm):
    """Clipped policy optimisation with generalised advantages."""

    epochs: int = eqx.field(static=True, default=4)
    minibatches: int = eqx.field(static=True, default=8)
    learning_rate: float = eqx.field(static=True, default=5e-4)
    critic_learning_rate: float = eqx.field(static=True, default=0.0)  # 0: the actor's
    anneal_updates: int = eqx.field(static=True, default=0)  # 0: constant; else the rate falls to 0 over so many
    trace: float = eqx.field(static=True, default=0.95)  # lambda of the advantages
    clip: float = eqx.field(static=True, default=0.2)
    entropy_action: float = eqx.field(static=True, default=0.0)
    entropy_state: float = eqx.field(static=True, default=0.0)
    max_grad_norm: float = eqx.field(static=True, default=0.5)
    kl_stop: float = eqx.field(static=True, default=0.0)  # 0: off; else an update stops beyond this divergence
    pathwise_weight: float = eqx.field(static=True, default=0.3)  # w
    drift_cost: float = eqx.field(static=True, default=1e-3)  # kappa

    @property
    def optimisers(self) -> tuple[optax.GradientTransformation, optax.GradientTransformation]:
        """Those of actor and critic, which share no parameter and are clipped and stepped apart."""
        minibatches = self._minibatches(len(self.memory.segments(self.steps, self.lanes).time))
        anneal_steps = self.anneal_updates * self.epochs * minibatches
        rates = (self.learning_rate, self.critic_learning_rate or self.learning_rate)
        actor, critic = (adam(rate, self.max_grad_norm, anneal_steps) for rate in rates)
        return actor, critic

    def _minibatches(self, samples: int) -> int:
        return min(self.minibatches, samples)

    def init(self, spec: Spec, *, key: PRNGKeyArray) -> TrainState:
        kernel_key, critic_key = jax.random.split(key)
        kernel = self.build_kernel(spec, kernel_key)
        features = kernel.features(kernel.initial()).shape[0]
        critic = self.critic(spec.views, features, critic_key)
        parts: tuple[Any, ...] = (kernel, critic)
        optimiser = tuple(each.init(network) for each, network in zip(self.optimisers, parts, strict=True))
        memory = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.lanes, *leaf.shape)), critic.initial())
        views = spec.views if self.normalise_obs else {}
        return TrainState(kernel, critic, optimiser, initial(views), memory, jnp.zeros((), jnp.int32))

    def update(self, state: TrainState, batch: Transition, key: PRNGKeyArray) -> tuple[TrainState, Metrics]:
        raw, batch = batch, normalised(state.normaliser, batch)
        values, next_value = self._values(state, batch)
        advantage = jax.vmap(gae, in_axes=(1, 1, 1, 1, 1, None, None), out_axes=1)(
            batch.reward, values.value, next_value, batch.terminated, batch.truncated, self.discount, self.trace
        )
        learning = Learning(batch, advantage, advantage + values.value, values.h)
        networks, optimiser, metrics = self._epochs(state, learning, key)
        error = jnp.var(advantage) / (jnp.var(learning.target) + 1e-8)
        last_h = jax.tree.map(lambda leaf: leaf[-1], values.next_h)
        # Networks that no longer learn could not follow statistics that still move.
        rate = jnp.clip(1.0 - state.updates / self.anneal_updates, 0.0, 1.0) if self.anneal_updates else 1.0
        stats = merge(state.normaliser, raw.obs, rate)
        state = TrainState(*networks, optimiser, stats, last_h, state.updates + 1)
        return state, metrics | {"explained_variance": 1.0 - error, "value": jnp.mean(values.value)}

    def _values(self, state: TrainState, batch: Transition) -> tuple[Values, Array]:
        """V(s, z) and V(s', z') of a batch [T, N]; s' and z' are those before a reset."""
        features = over(state.kernel.features, batch.reward.shape)
        # Within a batch only an episode's start restarts a recurrent critic; its stored memory is then the initial one.
        fresh = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (*batch.reward.shape, *leaf.shape)), state.critic.initial()
        )
        over_lanes = jax.vmap(unroll, in_axes=(None, 1, 1, 0, 1, 1), out_axes=1)
        values = over_lanes(state.critic, batch.obs, features(batch.z), state.critic_memory, fresh, batch.first)
        ahead = jax.vmap(jax.vmap(lambda obs, z, h: state.critic(obs, z, h)[0]))
        return values, ahead(batch.next_obs, features(batch.next_z), values.next_h)

    def _epochs(self, state: TrainState, learning: Learning, key: PRNGKeyArray) -> tuple[Networks, Any, Metrics]:
        """Minibatches of whole samples, shuffled anew each epoch; after a KL stop they pass without effect."""
        segments = self.memory.segments(*learning.advantage.shape)
        samples = len(segments.time)
        minibatches = self._minibatches(samples)
        size = samples // minibatches
        table = jax.tree.map(jnp.asarray, segments)
        mean, std = jnp.mean(learning.advantage), jnp.std(learning.advantage) + 1e-8
        scaled = learning._replace(advantage=(learning.advantage - mean) / std)

        def minibatch(carry: tuple, chosen: Array) -> tuple[tuple, Metrics]:
            networks, optimiser, stopped = carry
            time, lane, valid = (column[chosen] for column in table)
            piece = jax.tree.map(lambda leaf: leaf[time, lane], scaled)
            grads, metrics = jax.grad(self._loss, has_aux=True)(networks, piece, valid, std)
            stepped = [step(*parts) for parts in zip(self.optimisers, grads, optimiser, networks, strict=True)]
            new = Networks(*(each.network for each in stepped)), tuple(each.state for each in stepped)
            if self.kl_stop > 0:
                # Seen before the step: the minibatch that finds the policy too far away does not push it further.
                stopped |= metrics["kl"] > self.kl_stop
                new = jax.tree.map(lambda old, fresh: jnp.where(stopped, old, fresh), (networks, optimiser), new)
            networks, optimiser = new
            metrics |= {"stopped": stopped.astype(jnp.float32), "actor_gradient": norm(grads.kernel)}
            return (networks, optimiser, stopped), metrics

        def epoch(carry: tuple, key: PRNGKeyArray) -> tuple[tuple, Metrics]:
            order = jax.random.permutation(key, samples)[: minibatches * size]
            return jax.lax.scan(minibatch, carry, order.reshape(minibatches, size))

        carry = (Networks(state.kernel, state.critic), state.optimiser, jnp.zeros((), bool))
        carry, metrics = jax.lax.scan(epoch, carry, jax.random.split(key, self.epochs))
        networks, optimiser, _ = carry
        return networks, optimiser, jax.tree.map(jnp.mean, metrics)

    def _loss(self, networks: Networks, piece: Learning, valid: Array, std: Array) -> tuple[Array, Metrics]:
        kernel, critic = networks
        row = piece.transition
        now = jax.vmap(self.memory.evaluate, in_axes=(None, 0))(kernel, self.sample(row, valid))

        def mean(x: Array) -> Array:
            return jnp.sum(jnp.where(now.mask, x, 0.0)) / jnp.sum(now.mask)

        log_ratio = total(now.log_prob) - total(row.log_prob)
        ratio = jnp.exp(log_ratio)
        clipped = jnp.clip(ratio, 1.0 - self.clip, 1.0 + self.clip)
        surrogate = mean(jnp.minimum(ratio * piece.advantage, clipped * piece.advantage))

        features = over(kernel.features, row.reward.shape)
        head = jax.tree.map(lambda leaf: leaf[:, 0], piece.h)
        restart = jax.vmap(restarts)(row.first, valid)
        values = jax.vmap(unroll, in_axes=(None, 0, 0, 0, 0, 0))(
            critic, row.obs, jax.lax.stop_gradient(features(now.z)), head, piece.h, restart
        )
        value_loss = 0.5 * mean((values.value - piece.target) ** 2)

        shielded = jax.lax.stop_gradient(critic)
        ahead = jax.vmap(jax.vmap(lambda obs, z, h: shielded(obs, z, h)[0]))
        future = ahead(row.next_obs, features(now.next_z), jax.lax.stop_gradient(values.next_h))
        pathwise = mean((1.0 - row.terminated) * self.discount * future) / std

        entropy = jax.tree.map(mean, now.entropy)
        bonus = self.entropy_action * entropy.action + self.entropy_state * total(Decision((), entropy.state))
        drift = mean(now.drift)
        loss = -surrogate - self.pathwise_weight * pathwise + self.drift_cost * drift - bonus + value_loss
        metrics = {
            "policy_loss": -surrogate,
            "value_loss": value_loss,
            "entropy": entropy.action,
            "kl": mean(ratio - 1.0 - log_ratio),
            "clipped": mean(jnp.abs(ratio - 1.0) > self.clip),
            "drift": drift,
        }
        return loss, metrics
