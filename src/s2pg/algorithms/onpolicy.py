"""What PPO and TRPO share: generalised advantages from V(s, z), minibatches of whole samples, and terms of losses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.algorithms.base import Algorithm, Metrics, TrainState, normalised, over
from s2pg.critics import Critic, Values, unroll
from s2pg.kernel import Kernel
from s2pg.memory import Evaluation, restarts
from s2pg.normalise import initial, merge
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


class OnPolicy(Algorithm):
    """Learns from each batch once, with the advantages that a critic gives it."""

    epochs: int = eqx.field(static=True, default=4)
    minibatches: int = eqx.field(static=True, default=8)
    learning_rate: float = eqx.field(static=True, default=5e-4)
    anneal_updates: int = eqx.field(static=True, default=0)  # 0: constant; else the rate falls to 0 over so many
    trace: float = eqx.field(static=True, default=0.95)  # lambda of the advantages
    entropy_action: float = eqx.field(static=True, default=0.0)
    entropy_state: float = eqx.field(static=True, default=0.0)
    max_grad_norm: float = eqx.field(static=True, default=0.5)

    @abstractmethod
    def init_optimiser(self, networks: Networks) -> Any: ...

    @abstractmethod
    def _epochs(self, state: TrainState, learning: Learning, key: PRNGKeyArray) -> tuple[Networks, Any, Metrics]:
        """What a batch [T, N] makes of the networks and of their optimisers."""

    @property
    def anneal_steps(self) -> int:
        """Gradient steps over which learning rates fall to 0; 0: never."""
        return (
            self.anneal_updates * self.epochs * self._minibatches(len(self.memory.segments(self.steps, self.lanes)[0]))
        )

    def _minibatches(self, samples: int) -> int:
        return min(self.minibatches, samples)

    def annealed(self, updates: Array) -> Array:
        """What is left of a rate after so many updates, between 1 and 0."""
        return jnp.clip(1.0 - updates / self.anneal_updates, 0.0, 1.0) if self.anneal_updates else jnp.ones(())

    def init(self, spec: Spec, *, key: PRNGKeyArray) -> TrainState:
        kernel_key, critic_key = jax.random.split(key)
        kernel = self.build_kernel(spec, kernel_key)
        features = kernel.features(kernel.initial()).shape[0]
        critic = self.critic(spec.views, features, critic_key)
        optimiser = self.init_optimiser(Networks(kernel, critic))
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
        stats = merge(state.normaliser, raw.obs, self.annealed(state.updates))
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

    def over_minibatches(self, body: Callable, carry: Any, samples: int, key: PRNGKeyArray) -> tuple[Any, Metrics]:
        """`body(carry, chosen)` over minibatches of whole samples, shuffled anew each epoch; and its mean metrics."""
        minibatches = self._minibatches(samples)
        size = samples // minibatches

        def epoch(carry: Any, key: PRNGKeyArray) -> tuple[Any, Metrics]:
            order = jax.random.permutation(key, samples)[: minibatches * size]
            return jax.lax.scan(body, carry, order.reshape(minibatches, size))

        carry, metrics = jax.lax.scan(epoch, carry, jax.random.split(key, self.epochs))
        return carry, jax.tree.map(jnp.mean, metrics)

    # Terms of losses, over samples [B, n] --------------------------------------------------------------------------

    def evaluated(self, kernel: Kernel, row: Transition, valid: Array) -> Evaluation:
        return jax.vmap(self.memory.evaluate, in_axes=(None, 0))(kernel, self.sample(row, valid))

    def valued(self, networks: Networks, z: State, piece: Learning, valid: Array) -> Values:
        """V(s, z), from the critic's own memory at the head of each sample; teaches the kernel nothing."""
        row = piece.transition
        features = over(networks.kernel.features, row.reward.shape)
        head = jax.tree.map(lambda leaf: leaf[:, 0], piece.h)
        restart = jax.vmap(restarts)(row.first, valid)
        return jax.vmap(unroll, in_axes=(None, 0, 0, 0, 0, 0))(
            networks.critic, row.obs, jax.lax.stop_gradient(features(z)), head, piece.h, restart
        )

    def future(self, networks: Networks, next_z: State, next_h: State, row: Transition) -> Array:
        """(1 - terminated) gamma V_sg(s', z'_theta): teaches the kernel alone, and that only through z'."""
        features = over(networks.kernel.features, row.reward.shape)
        shielded = jax.lax.stop_gradient(networks.critic)
        ahead = jax.vmap(jax.vmap(lambda obs, z, h: shielded(obs, z, h)[0]))
        value = ahead(row.next_obs, features(next_z), jax.lax.stop_gradient(next_h))
        return (1.0 - row.terminated) * self.discount * value

    def bonus(self, entropy: Decision) -> Array:
        return self.entropy_action * entropy.action + self.entropy_state * total(Decision((), entropy.state))


def masked_mean(mask: Array) -> Callable[[Array], Array]:
    """The mean over the steps that enter a loss."""
    return lambda x: jnp.sum(jnp.where(mask, x, 0.0)) / jnp.sum(mask)


def scaled(learning: Learning) -> tuple[Learning, Array]:
    """With advantages of mean 0 and standard deviation 1, and what that was before."""
    mean, std = jnp.mean(learning.advantage), jnp.std(learning.advantage) + 1e-8
    return learning._replace(advantage=(learning.advantage - mean) / std), std
