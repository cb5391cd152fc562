"""Twin delayed deterministic policy gradient over decisions (paper: TD3-RS), one file for every memory rule.

    u'   = clip(mu'(x') + clip(noise, -c, c), -1, 1)
    y    = r + gamma (1 - terminated) min_i Q_i'(s', z', u')
    L_Q  = 1/2 E sum_i (Q_i(s, z, u) - y)^2
    L_mu = - E [Q_1(s, z, mu(x)) - k c |arctanh mu^z(x)|^2],   every `policy_delay` steps; c = 1 or E |Q_1|

mu is the mode of the policy, (mu^a, mu^z) under S2PG: its gradient is the sum of the action's and the state's term of
the stateful deterministic policy gradient. Exploration and smoothing noise are decisions as well.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

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
from s2pg.heads import Heads, noisy_action_head, noisy_state_head
from s2pg.kernel import Kernel
from s2pg.optimise import adam, follow, norm, step
from s2pg.options import option, redefine
from s2pg.types import Decision, Spec, State


class Networks(NamedTuple):
    """Slow copies that targets are computed with, or the optimisers of the originals."""

    kernel: Any
    critic: Any


class Learner(NamedTuple):
    """What TD3 keeps beside the policy."""

    critic: Critic
    target: Networks
    optimiser: Networks


class TD3(OffPolicy):
    """Twin delayed deterministic policy gradient.

    Policies are deterministic, explored around with noise of a fixed size: exp(action_log_std), exp(state_log_std)."""

    action_log_std: float = redefine(OffPolicy, "action_log_std", math.log(0.1))
    learning_rate: float = redefine(OffPolicy, "learning_rate", 1e-3)
    batch_size: int = redefine(OffPolicy, "batch_size", 100)
    gradient_steps: int = redefine(OffPolicy, "gradient_steps", 2)
    actor_value: Literal["min", "mean", "first"] = redefine(OffPolicy, "actor_value", "first")
    policy_delay: int = option(2, "gradient steps of the critic for one of the actor", low=1)
    smoothing_action: float = option(0.2, "noise on the actions of targets ...", low=0)
    smoothing_action_clip: float = option(0.5, "... and how far it may go", low=0)
    smoothing_state: float = option(0.05, "noise on z' of targets ...", low=0)
    smoothing_state_clip: float = option(0.125, "... and how far it may go", low=0)
    saturation_cost: float = option(
        0.0, "keeps z' of the actor out of the corners of [-1, 1], where its gradient vanishes, under s2pg", low=0
    )  # k
    saturation_unit: Literal["one", "value"] = option(
        "one", "what that cost is measured in: one (the reward's own unit), or value (the mean |Q| of the batch)"
    )

    @property
    def steps_per_turn(self) -> int:
        return self.policy_delay

    @property
    def optimisers(self) -> Networks:
        """Those of actor and critics."""
        turns, rest = (steps // self.policy_delay for steps in (self.anneal_steps, self.critic_first))
        actor = adam(self.learning_rate, self.max_grad_norm, turns, rest=rest)
        critic_rate = self.critic_learning_rate or self.learning_rate
        return Networks(actor, adam(critic_rate, self.max_grad_norm, self.anneal_steps))

    def heads(self, spec: Spec) -> Heads:
        action = noisy_action_head(spec.action, self.action_log_std)
        return Heads(action, self.memory.state_head(noisy_state_head))

    def init_learner(self, kernel: Kernel, critic: Critic) -> Learner:
        networks = Networks(kernel, critic)
        optimiser = Networks(*(each.init(part) for each, part in zip(self.optimisers, networks, strict=True)))
        return Learner(critic, networks, optimiser)

    def learn(self, state: TrainState, key: PRNGKeyArray) -> tuple[TrainState, Metrics]:
        """`policy_delay` steps of the critic, then one of the actor, on the batch of the last."""
        keys = jax.random.split(key, self.policy_delay)
        for each in keys[:-1]:
            state, _, _ = self.learn_values(state, each)
        state, batch, metrics = self.learn_values(state, keys[-1])
        learner, kernel = state.learner, state.policy.kernel
        loss, gradient = jax.value_and_grad(self.actor_loss)(kernel, state, batch)
        kernel, optimiser = step(self.optimisers.kernel, gradient, learner.optimiser.kernel, kernel)
        # The slow copy of the actor follows once a turn as far as it would in `policy_delay` steps.
        rate = 1.0 - (1.0 - self.target_rate) ** self.policy_delay
        learner = learner._replace(
            target=learner.target._replace(kernel=follow(learner.target.kernel, kernel, rate)),
            optimiser=learner.optimiser._replace(kernel=optimiser),
        )
        state = state._replace(policy=state.policy._replace(kernel=kernel), learner=learner)
        return state, metrics | {"actor_loss": loss, "actor_gradient": norm(gradient)}

    def learn_values(self, state: TrainState, key: PRNGKeyArray) -> tuple[TrainState, Batch, Metrics]:
        """One step of the critics, and the batch it was made on."""
        sample_key, refresh_key, smooth_key = jax.random.split(key, 3)
        learner, kernel = state.learner, state.policy.kernel
        found, batch = self.sample_batch(state.replay, state.policy, sample_key)
        unfolded = unfold(self.memory, kernel, batch, refresh_key)
        target = self.target(learner.target, batch, unfolded.next_z, smooth_key)
        decision = self.memory.halves(batch.action, unfolded.next_z)
        loss, gradient = jax.value_and_grad(regression)(learner.critic, kernel, batch, unfolded.z, decision, target)
        critic, optimiser = step(self.optimisers.critic, gradient, learner.optimiser.critic, learner.critic)
        learner = Learner(
            critic,
            learner.target._replace(critic=follow(learner.target.critic, critic, self.target_rate)),
            learner.optimiser._replace(critic=optimiser),
        )
        written = replay.write(state.replay, found, unfolded.fresh)
        state = state._replace(learner=learner, replay=written, updates=state.updates + 1)
        return state, batch, {"critic_loss": loss, "value": mean(target, batch.mask)}

    def target(self, slow: Networks, batch: Batch, next_z: State, key: PRNGKeyArray) -> Float[Array, "B m"]:
        """y, with z' as given."""
        batch = batch._replace(samples=batch.samples._replace(next_z=next_z))
        unfolded = unfold(self.memory, slow.kernel, batch, None)
        decision = self.smooth(draw(self.memory, unfolded.ahead, None)[0], key)
        _, h = critic_histories(slow.critic, batch)
        values = decision_values(slow.critic, slow.kernel, batch.next_obs, h, unfolded.next_z, decision)
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
        """L_mu."""
        unfolded = unfold(self.memory, kernel, batch, None)
        decision, _ = draw(self.memory, unfolded.now, None)
        critic = state.learner.critic
        h, _ = critic_histories(critic, batch)
        values = decision_values(critic, state.policy.kernel, batch.obs, h, unfolded.z, decision)
        value = judged(values, self.actor_value)
        unit = jax.lax.stop_gradient(mean(jnp.abs(value), batch.mask)) if self.saturation_unit == "value" else 1.0
        return -mean(value - self.saturation_cost * unit * saturation(decision), batch.mask)


def saturation(decision: Decision) -> Array:
    """|arctanh z'|^2 [B, m]: how deep z' is in the corners of [-1, 1], from where no gradient leads out of a tanh.

    A critic that is a little wrong about z' pushes it the same way at every step, and nothing pushes back. 0.999, as in
    SAC's head, keeps it finite at the bounds.
    """
    depth = lambda z: jnp.sum(jnp.arctanh(0.999 * jnp.clip(z, -1.0, 1.0)) ** 2, axis=-1)  # noqa: E731
    return sum(map(depth, jax.tree.leaves(decision.state)), start=jnp.zeros(decision.action.shape[:2]))
