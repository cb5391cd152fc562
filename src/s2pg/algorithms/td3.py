"""Twin delayed deterministic policy gradient over decisions (paper: TD3-RS), one file for every memory rule.

    u'   = clip(mu'(x') + clip(noise, -c, c), -1, 1)
    y    = r + gamma (1 - terminated) min_i Q_i'(s', z', u')
    L_Q  = 1/2 E sum_i (Q_i(s, z, u) - y)^2
    L_mu = - E [Q_1(s, z, mu(x)) - k |arctanh mu^z(x)|^2],   every `policy_delay` steps

mu is the mode of the policy, (mu^a, mu^z) under S2PG: its gradient is the sum of the action's and the state's term of
the stateful deterministic policy gradient. Exploration and smoothing noise are decisions as well.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg import replay
from s2pg.algorithms.base import Metrics, TrainState
from s2pg.algorithms.offpolicy import Batch, OffPolicy, mean
from s2pg.heads import Heads, noisy_action_head, noisy_state_head
from s2pg.kernel import Kernel
from s2pg.optimise import adam, follow, norm, step
from s2pg.types import Decision, Spec


class Networks(NamedTuple):
    """Slow copies that targets are computed with, or the optimisers of the originals."""

    kernel: Any
    critic: Any


class TD3(OffPolicy):
    """Deterministic policies, explored around with noise of a fixed size: exp(action_log_std), exp(state_log_std)."""

    action_log_std: float = eqx.field(static=True, default=math.log(0.1))
    learning_rate: float = eqx.field(static=True, default=1e-3)
    batch_size: int = eqx.field(static=True, default=100)
    gradient_steps: int = eqx.field(static=True, default=2)
    actor_value: Literal["min", "mean", "first"] = eqx.field(static=True, default="first")
    policy_delay: int = eqx.field(static=True, default=2)  # steps of the critic for one of the actor
    smoothing_action: float = eqx.field(static=True, default=0.2)
    smoothing_action_clip: float = eqx.field(static=True, default=0.5)
    smoothing_state: float = eqx.field(static=True, default=0.05)
    smoothing_state_clip: float = eqx.field(static=True, default=0.125)
    saturation_cost: float = eqx.field(static=True, default=0.0)  # k

    @property
    def steps_per_turn(self) -> int:
        return self.policy_delay

    @property
    def optimisers(self) -> Networks:
        turns, rest = (steps // self.policy_delay for steps in (self.anneal_steps, self.critic_first))
        actor = adam(self.learning_rate, self.max_grad_norm, turns, rest=rest)
        critic_rate = self.critic_learning_rate or self.learning_rate
        return Networks(actor, adam(critic_rate, self.max_grad_norm, self.anneal_steps))

    def heads(self, spec: Spec) -> Heads:
        action = noisy_action_head(spec.action, self.action_log_std)
        return Heads(action, self.memory.state_head(noisy_state_head))

    def init(self, spec: Spec, *, key: PRNGKeyArray) -> TrainState:
        kernel, critic, views = self.build(spec, key)
        networks = Networks(kernel, critic)
        optimiser = Networks(*(each.init(part) for each, part in zip(self.optimisers, networks, strict=True)))
        return TrainState(
            kernel, critic, optimiser, self.statistics(spec, views), (), jnp.zeros((), jnp.int32),
            target=networks, replay=self.empty(kernel, views, spec),
        )  # fmt: skip

    def learn(self, state: TrainState, key: PRNGKeyArray) -> tuple[TrainState, Metrics]:
        """`policy_delay` steps of the critic, then one of the actor, on the batch of the last."""
        keys = jax.random.split(key, self.policy_delay)
        for each in keys[:-1]:
            state, _, _ = self._learn_values(state, each)
        state, batch, metrics = self._learn_values(state, keys[-1])
        loss, gradient = jax.value_and_grad(self.actor_loss)(state.kernel, state, batch)
        kernel, optimiser = step(self.optimisers.kernel, gradient, state.optimiser.kernel, state.kernel)
        target = state.target._replace(kernel=follow(state.target.kernel, kernel, self._actor_target_rate))
        state = state._replace(kernel=kernel, optimiser=state.optimiser._replace(kernel=optimiser), target=target)
        return state, metrics | {"actor_loss": loss, "actor_gradient": norm(gradient)}

    @property
    def _actor_target_rate(self) -> float:
        """The slow copy of the actor follows once a turn as far as it would in `policy_delay` steps."""
        return 1.0 - (1.0 - self.target_rate) ** self.policy_delay

    def _learn_values(self, state: TrainState, key: PRNGKeyArray) -> tuple[TrainState, Batch, Metrics]:
        sample_key, fresh_key, smooth_key = jax.random.split(key, 3)
        found, batch = self.recall(state, sample_key)
        unfolded = self.unfold(state.kernel, batch, fresh_key)
        latest = jax.tree.map(lambda leaf: leaf[:, -1], unfolded.next_z)
        target = self.target(state, batch, latest, smooth_key)
        decision = self.memory.halves(batch.action, unfolded.next_z)
        loss, gradient = jax.value_and_grad(self.critic_loss)(
            state.critic, state.kernel, batch, unfolded.z, decision, target
        )
        critic, optimiser = step(self.optimisers.critic, gradient, state.optimiser.critic, state.critic)
        followed = state.target._replace(critic=follow(state.target.critic, critic, self.target_rate))
        state = state._replace(
            critic=critic,
            optimiser=state.optimiser._replace(critic=optimiser),
            target=followed,
            replay=replay.write(state.replay, found, unfolded.fresh),
            updates=state.updates + 1,
        )
        return state, batch, {"critic_loss": loss, "value": mean(target, batch.mask)}

    def target(self, state: TrainState, batch: Batch, next_z: Any, key: PRNGKeyArray) -> Array:
        """y [B, m], with z' of the last rows as given."""
        slow: Networks = state.target
        batch = batch._replace(samples=batch.samples._replace(next_z=next_z))
        unfolded = self.unfold(slow.kernel, batch, None)
        decision = self.smooth(self.draw(unfolded.ahead, None)[0], key)
        _, h = self.histories(slow.critic, batch)
        values = self.values(slow.critic, slow.kernel, batch.next_obs, h, unfolded.next_z, decision)
        return batch.reward + self.discount * batch.alive * jnp.min(values, axis=0)

    def smooth(self, decision: Decision, key: PRNGKeyArray) -> Decision:
        """Clipped noise on every half of a decision, which stays within its bounds."""
        std = self.memory.halves(self.smoothing_action, self.smoothing_state)
        limit = self.memory.halves(self.smoothing_action_clip, self.smoothing_state_clip)
        keys = self.memory.halves(*jax.random.split(key))

        def one(std: float, limit: float, key: PRNGKeyArray, half: Any) -> Any:
            leaves, tree = jax.tree.flatten(half)
            keys = jax.random.split(key, len(leaves))
            noise = [std * jax.random.normal(key, x.shape) for key, x in zip(keys, leaves, strict=True)]
            moved = [x + jnp.clip(n, -limit, limit) for x, n in zip(leaves, noise, strict=True)]
            return jax.tree.unflatten(tree, [jnp.clip(x, -1.0, 1.0) for x in moved])

        return jax.tree.map(one, std, limit, keys, decision)

    def actor_loss(self, kernel: Kernel, state: TrainState, batch: Batch) -> Array:
        unfolded = self.unfold(kernel, batch, None)
        decision, _ = self.draw(unfolded.now, None)
        h, _ = self.histories(state.critic, batch)
        values = self.values(state.critic, state.kernel, batch.obs, h, unfolded.z, decision)
        return -mean(self.judged(values) - self.saturation_cost * saturation(decision), batch.mask)


def saturation(decision: Decision) -> Array:
    """|arctanh z'|^2 [B, m]: how deep z' is in the corners of [-1, 1], from where no gradient leads out of a tanh.

    A critic that is a little wrong about z' pushes it the same way at every step, and nothing pushes back. 0.999, as in
    SAC's head, keeps it finite at the bounds.
    """
    depth = lambda z: jnp.sum(jnp.arctanh(0.999 * jnp.clip(z, -1.0, 1.0)) ** 2, axis=-1)  # noqa: E731
    return sum(map(depth, jax.tree.leaves(decision.state)), start=jnp.zeros(decision.action.shape[:2]))
