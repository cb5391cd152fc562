"""What PPO and TRPO share: generalised advantages from V(s, z), minibatches of whole samples, and terms of losses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from s2pg.algorithms.base import (
    Metrics,
    Plan,
    Policy,
    PolicyAlgorithm,
    TrainState,
    Traits,
    build_kernel,
    normalised,
    over,
    plain_heads,
    samples,
)
from s2pg.critics import NOTHING, Critic, Values, state_value, unroll
from s2pg.errors import UserError
from s2pg.heads import quieter
from s2pg.kernel import Kernel
from s2pg.memory import Evaluation, Memory, restarts
from s2pg.normalise import initial, merge
from s2pg.optimise import norm
from s2pg.options import option
from s2pg.returns import gae
from s2pg.sharding import spread
from s2pg.types import Decision, Spec, State, Transition, total


class Learning(NamedTuple):
    """A piece of experience with what the losses need beside it."""

    transition: Transition
    advantage: Array
    target: Array
    h: State


class Networks(NamedTuple):
    """What learns."""

    kernel: Kernel
    critic: Critic


class Learner(NamedTuple):
    """What an on-policy algorithm keeps beside the policy."""

    critic: Critic
    optimiser: Any
    critic_memory: State  # h of every lane at the start of the next batch


class OnPolicy(PolicyAlgorithm):
    """Learns from each batch once, with the advantages that a critic gives it."""

    epochs: int = option(4, "passes over a batch", low=1)
    minibatches: int = option(8, "gradient steps per pass", low=1)
    learning_rate: float = option(5e-4, "of Adam", above=0)
    anneal_updates: int = option(0, "updates over which the learning rate falls to 0; 0: it stays", low=0)
    trace: float = option(0.95, "lambda of the advantages", low=0, high=1)
    entropy_action: float = option(0.0, "weight of the action's entropy")
    entropy_state: float = option(0.0, "weight of the internal state's entropy")
    max_grad_norm: float = option(0.5, "longer gradients are scaled down to this; 0: never", low=0)
    pathwise_weight: float = option(1.0, "weight of dV/dz' under s2pg-pathwise and s2pg-N")  # w
    state_noise_fall: float = option(
        0.0, "how far log sigma of z' falls over anneal_updates, under s2pg-pathwise and s2pg-N", low=0
    )
    critic_trust: bool = option(True, "follow dV/dz' only as far as V explains its targets")

    traits: ClassVar[Traits] = Traits()

    def __check_init__(self) -> None:
        if self.state_noise_fall and not self.anneal_updates:
            raise UserError("state_noise_fall: the noise falls over anneal_updates, which is 0; set both")

    @abstractmethod
    def init_optimiser(self, networks: Networks) -> Any:
        """The state of the optimisers before any training."""

    @abstractmethod
    def learn(
        self, networks: Networks, optimiser: Any, learning: Learning, updates: Array, key: PRNGKeyArray
    ) -> tuple[Networks, Any, Metrics]:
        """What a batch [T, N] makes of the networks and of their optimisers."""

    @property
    def plan(self) -> Plan:
        return Plan(self.lanes, self.steps)

    @property
    def anneal_steps(self) -> int:
        """Gradient steps over which learning rates fall to 0; 0: never."""
        count = len(self.memory.segments(self.steps, self.lanes).time)
        return self.anneal_updates * self.epochs * min(self.minibatches, count)

    def slope(self, learning: Learning) -> Array:
        """What V(s', z') weighs beside standardised advantages: w trust / std(A)."""
        trusted = trust(learning) if self.critic_trust else 1.0
        return self.pathwise_weight * trusted / _deviation(learning)

    def init_policy(self, spec: Spec, *, key: PRNGKeyArray) -> Policy:
        heads = plain_heads(self.memory, spec, self.action_log_std)
        kernel = build_kernel(self.kernel, spec, self.reads, heads, key)
        return Policy(kernel, initial(spec.views if self.normalise_obs else {}))

    def init(self, spec: Spec, shared: PyTree, *, key: PRNGKeyArray) -> TrainState:
        policy_key, critic_key = jax.random.split(key)
        policy = self.init_policy(spec, key=policy_key)
        features = policy.kernel.features(policy.kernel.initial()).shape[0]
        critic = self.critic(spec.views, features, NOTHING, critic_key)
        optimiser = self.init_optimiser(Networks(policy.kernel, critic))
        memory = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.lanes, *leaf.shape)), critic.initial())
        return TrainState(policy, Learner(critic, optimiser, memory), (), jnp.zeros((), jnp.int32))

    def store(self, state: TrainState, batch: Transition) -> TrainState:
        return state

    def update(
        self, state: TrainState, batch: Transition, shared: PyTree, key: PRNGKeyArray
    ) -> tuple[TrainState, Metrics]:
        (kernel, normaliser), learner = state.policy, state.learner
        raw, batch = batch, normalised(normaliser, batch)
        networks = Networks(kernel, learner.critic)
        values, next_value = batch_values(networks, learner.critic_memory, batch)
        advantage = jax.vmap(gae, in_axes=(1, 1, 1, 1, 1, None, None), out_axes=1)(
            batch.reward, values.value, next_value, batch.terminated, batch.truncated, self.discount, self.trace
        )
        learning = Learning(batch, advantage, advantage + values.value, values.h)
        networks, optimiser, metrics = self.learn(networks, learner.optimiser, learning, state.updates, key)
        last_h = jax.tree.map(lambda leaf: leaf[-1], values.next_h)
        left, next_left = (annealed(state.updates + i, self.anneal_updates) for i in (0, 1))
        # Networks that no longer learn could not follow statistics that still move.
        stats = merge(normaliser, raw.obs, left)
        kernel = quieter(networks.kernel, self.state_noise_fall * (left - next_left))
        state = state._replace(
            policy=Policy(kernel, stats),
            learner=Learner(networks.critic, optimiser, last_h),
            updates=state.updates + 1,
        )
        told = {
            "explained_variance": explained_variance(learning),
            "value": jnp.mean(values.value),
            "parameter_norm": norm(networks),
        }
        return state, metrics | told


def annealed(updates: Array, anneal_updates: int) -> Array:
    """What is left of a rate after so many updates, between 1 and 0."""
    return jnp.clip(1.0 - updates / anneal_updates, 0.0, 1.0) if anneal_updates else jnp.ones(())


def batch_values(networks: Networks, memory: State, batch: Transition) -> tuple[Values, Array]:
    """V(s, z) and V(s', z') of a batch [T, N]; s' and z' are those before a reset."""
    kernel, critic = networks
    features = over(kernel.features, batch.reward.shape)
    # Within a batch only an episode's start restarts a recurrent critic; its stored memory is then the initial one.
    fresh = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*batch.reward.shape, *leaf.shape)), critic.initial())
    over_lanes = jax.vmap(unroll, in_axes=(None, 1, 1, 0, 1, 1), out_axes=1)
    values = over_lanes(critic, batch.obs, features(batch.z), memory, fresh, batch.first)
    ahead = jax.vmap(jax.vmap(lambda obs, z, h: state_value(critic, obs, z, h)[0]))
    return values, ahead(batch.next_obs, features(batch.next_z), values.next_h)


def over_minibatches(
    body: Callable,
    carry: Any,
    take: Callable,
    samples: int,
    epochs: int,
    minibatches: int,
    key: PRNGKeyArray,
    at_once: bool = True,
) -> tuple[Any, Metrics]:
    """Runs `body(carry, minibatch)` over minibatches of whole samples, shuffled anew each epoch.

    `take` gets samples by their numbers, as arrays of which each row is one; the metrics that return are means. With
    `at_once` all of an epoch are taken together, which is faster on a GPU and needs room for a copy of them. Several
    devices share each minibatch.
    """
    minibatches = min(minibatches, samples)
    size = samples // minibatches
    shared = lambda carry, part: body(carry, spread(part))  # noqa: E731

    def epoch(carry: Any, key: PRNGKeyArray) -> tuple[Any, Metrics]:
        order = jax.random.permutation(key, samples)[: minibatches * size]
        if not at_once:
            return jax.lax.scan(
                lambda carry, chosen: shared(carry, take(chosen)), carry, order.reshape(minibatches, size)
            )
        parts = jax.tree.map(lambda leaf: leaf.reshape(minibatches, size, *leaf.shape[1:]), take(order))
        return jax.lax.scan(shared, carry, parts)

    carry, metrics = jax.lax.scan(epoch, carry, jax.random.split(key, epochs))
    return carry, jax.tree.map(jnp.mean, metrics)


# Terms of losses, over samples [B, n] --------------------------------------------------------------------------------


def evaluations(memory: Memory, kernel: Kernel, row: Transition, reads: tuple[str, ...], valid: Array) -> Evaluation:
    """Stored decisions under the present parameters."""
    return jax.vmap(memory.evaluate, in_axes=(None, 0))(kernel, samples(row, reads, valid))


def values(networks: Networks, z: State, piece: Learning, valid: Array) -> Values:
    """V(s, z), from the critic's own memory at the head of each sample; teaches the kernel nothing."""
    row = piece.transition
    features = over(networks.kernel.features, row.reward.shape)
    head = jax.tree.map(lambda leaf: leaf[:, 0], piece.h)
    restart = jax.vmap(restarts)(row.first, valid)
    return jax.vmap(unroll, in_axes=(None, 0, 0, 0, 0, 0))(
        networks.critic, row.obs, jax.lax.stop_gradient(features(z)), head, piece.h, restart
    )


def future(networks: Networks, next_z: State, next_h: State, row: Transition, discount: float) -> Array:
    """(1 - terminated) gamma V_sg(s', z'_theta): teaches the kernel alone, and that only through z'."""
    features = over(networks.kernel.features, row.reward.shape)
    shielded = jax.lax.stop_gradient(networks.critic)
    ahead = jax.vmap(jax.vmap(lambda obs, z, h: state_value(shielded, obs, z, h)[0]))
    value = ahead(row.next_obs, features(next_z), jax.lax.stop_gradient(next_h))
    return (1.0 - row.terminated) * discount * value


def entropy_bonus(entropy: Decision, action_weight: float, state_weight: float) -> Array:
    """What a loss gives for the entropies of a decision's halves."""
    return action_weight * entropy.action + state_weight * total(Decision((), entropy.state))


def masked_mean(mask: Array) -> Callable[[Array], Array]:
    """The mean over the steps that enter a loss."""
    return lambda x: jnp.sum(jnp.where(mask, x, 0.0)) / jnp.sum(mask)


def explained_variance(learning: Learning) -> Array:
    """The share of its targets' variance that V told before it learned from them: 1 of a perfect V, 0 of a constant."""
    return 1.0 - (jnp.var(learning.advantage) + 1e-8) / (jnp.var(learning.target) + 1e-8)


def trust(learning: Learning) -> Array:
    """How far dV/dz' is followed, between 0 and 1: as far as V foresaw its targets, which hold V itself further on."""
    return jnp.clip(explained_variance(learning), 0.0, 1.0)


def standardise(learning: Learning) -> Learning:
    """The same with advantages of mean 0 and standard deviation 1."""
    return learning._replace(advantage=(learning.advantage - jnp.mean(learning.advantage)) / _deviation(learning))


def _deviation(learning: Learning) -> Array:
    return jnp.std(learning.advantage) + 1e-8
