"""What off-policy algorithms share: a replay buffer, slow copies of networks, and Q(s, z, u) over samples from it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from s2pg import replay
from s2pg.action_values import ActionValue, histories
from s2pg.actor import Actor, Wanderer
from s2pg.algorithms.base import Algorithm, Metrics, TrainState, over
from s2pg.kernel import Kernel
from s2pg.memory import ReplayEvaluation, ReplaySample
from s2pg.normalise import initial, merge, normalise
from s2pg.types import Decision, Obs, Spec, State, Transition, read


class Batch(NamedTuple):
    """B samples as an update sees them: all rows for the memory rule, those that are graded [B, m] for the losses."""

    samples: ReplaySample
    history: Obs  # [B, n + 1], what a critic with a memory of its own reads
    obs: Obs
    next_obs: Obs
    action: Float[Array, "B m size"]
    reward: Float[Array, "B m"]
    alive: Float[Array, "B m"]  # 1 - terminated
    mask: Bool[Array, "B m"]
    row: Array  # which row of the buffer each sample ends at


class OffPolicy(Algorithm):
    """Learns from stored experience, `gradient_steps` times per update."""

    normalise_obs: bool = eqx.field(static=True, default=False)
    batch_size: int = eqx.field(static=True, default=256)
    capacity: int = eqx.field(static=True, default=500_000)  # rows of all lanes together
    learning_starts: int = eqx.field(static=True, default=5_000)  # environment steps before the first update
    uniform_warmup: bool = eqx.field(static=True, default=False)
    gradient_steps: int = eqx.field(static=True, default=1)
    learning_rate: float = eqx.field(static=True, default=3e-4)
    critic_learning_rate: float = eqx.field(static=True, default=0.0)  # 0: the actor's
    critic_first: int = eqx.field(static=True, default=0)  # gradient steps before the actor begins to learn
    anneal_updates: int = eqx.field(static=True, default=0)  # 0: constant; else the rates fall to 0 over so many
    max_grad_norm: float = eqx.field(static=True, default=0.0)  # 0: no clipping
    target_rate: float = eqx.field(static=True, default=0.005)  # tau
    reward_scale: float = eqx.field(static=True, default=1.0)  # what rewards are multiplied with before learning
    critics: int = eqx.field(static=True, default=2)
    actor_value: Literal["min", "mean", "first"] = eqx.field(static=True, default="min")

    off_policy: ClassVar[bool] = True

    @property
    def anneal_steps(self) -> int:
        """Gradient steps over which learning rates fall to 0; 0: never."""
        return self.anneal_updates * self.gradient_steps

    @property
    def rows(self) -> int:
        """Rows of each lane that the buffer holds."""
        return self.capacity // self.lanes

    @property
    def warmup(self) -> int:
        return -(-self.learning_starts // self.lanes)

    def warmup_actor(self, state: TrainState) -> Actor:
        kind = Wanderer if self.uniform_warmup else Actor
        return kind(state.kernel, state.normaliser, self.memory, self.reads)

    def build(self, spec: Spec, key: PRNGKeyArray) -> tuple[Kernel, ActionValue, dict[str, int]]:
        """(kernel, critics with a leading axis, sizes of the views that either reads)."""
        kernel_key, critic_key = jax.random.split(key)
        kernel = self.build_kernel(spec, kernel_key)
        features = kernel.features(kernel.initial()).shape[0]
        sizes = self.memory.halves(spec.action.size, features)
        make = lambda key: self.critic(spec.views, features, sizes, key)  # noqa: E731
        critic = jax.vmap(make)(jax.random.split(critic_key, self.critics))
        read_by = {*self.reads, *critic.reads}
        return kernel, critic, {name: size for name, size in spec.views.items() if name in read_by}

    def empty(self, kernel: Kernel, views: dict[str, int], spec: Spec) -> replay.Replay:
        stored = self.memory.stored(kernel.initial())
        return replay.create(self.rows, self.lanes, views, spec.action.size, stored)

    def statistics(self, spec: Spec, views: dict[str, int]) -> Any:
        return initial(views if self.normalise_obs else {})

    def remember(self, state: TrainState, batch: Transition) -> TrainState:
        added = replay.add(state.replay, batch, self.memory.stored(batch.next_z))
        # Networks that no longer learn could not follow statistics that still move.
        rate = jnp.clip(1.0 - state.updates / self.anneal_steps, 0.0, 1.0) if self.anneal_steps else 1.0
        return state._replace(replay=added, normaliser=merge(state.normaliser, batch.obs, rate))

    def update(self, state: TrainState, batch: Transition, key: PRNGKeyArray) -> tuple[TrainState, Metrics]:
        state = self.remember(state, batch)
        turns = self.gradient_steps // self.steps_per_turn
        if turns == 1:
            return self.learn(state, key)
        state, metrics = jax.lax.scan(self.learn, state, jax.random.split(key, turns))
        return state, jax.tree.map(jnp.mean, metrics)

    @property
    def steps_per_turn(self) -> int:
        """Gradient steps that `learn` makes."""
        return 1

    @abstractmethod
    def learn(self, state: TrainState, key: PRNGKeyArray) -> tuple[TrainState, Metrics]: ...

    def recall(self, state: TrainState, key: PRNGKeyArray) -> tuple[replay.ReplayBatch, Batch]:
        """Draws a batch from the buffer, observations normalised."""
        start = self.memory.stored(state.kernel.initial())
        graded = self.memory.graded
        found = replay.sample(state.replay, key, self.batch_size, self.memory.rows, graded, start)
        obs = jax.vmap(jax.vmap(normalise, (None, 0)), (None, 0))(state.normaliser, found.obs)
        samples = ReplaySample(read(obs, self.reads), found.valid, found.z, found.next_z)
        last = lambda leaf: leaf[:, -graded:]  # noqa: E731
        before = {name: last(view[:, :-1]) for name, view in obs.items()}
        after = {name: last(view[:, 1:]) for name, view in obs.items()}
        action, reward, terminated, mask = map(last, (found.action, found.reward, found.terminated, found.valid))
        row = found.time * self.lanes + found.lane
        scaled = self.reward_scale * reward
        return found, Batch(samples, obs, before, after, action, scaled, 1.0 - terminated, mask, row)

    def unfold(self, kernel: Kernel, batch: Batch, key: PRNGKeyArray | None) -> ReplayEvaluation:
        """All samples under the memory rule, the noise of refreshed states keyed by their rows."""
        if key is None:
            return jax.vmap(lambda sample: self.memory.unfold(kernel, sample, None))(batch.samples)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, batch.row)
        return jax.vmap(self.memory.unfold, (None, 0, 0))(kernel, batch.samples, keys)

    def draw(self, steps: Any, key: PRNGKeyArray | None) -> tuple[Decision, Decision]:
        """(u, log pi(u | x)) for steps [B, m]; without a key, the modes."""
        if key is None:
            return jax.vmap(jax.vmap(lambda step: self.memory.draw(step, None)))(steps)
        shape = jax.tree.leaves(steps.action)[0].shape[:2]
        return jax.vmap(jax.vmap(self.memory.draw))(steps, jax.random.split(key, shape))

    def values(self, critic: Any, kernel: Kernel, obs: Obs, h: State, z: State, decision: Decision) -> Array:
        """Q_i(s, z, u) [critics, B, m]."""
        shape = decision.action.shape[:2]
        features = over(kernel.features, shape)(z)
        seen = decision
        if jax.tree.leaves(decision.state):
            seen = decision._replace(state=over(kernel.features, shape)(decision.state))
        each = jax.vmap(jax.vmap(lambda critic, *inputs: critic(*inputs), (None, 0, 0, 0, 0)), (None, 0, 0, 0, 0))
        return jax.vmap(each, (0, None, 0, None, None))(critic, obs, h, features, seen)

    def histories(self, critic: Any, batch: Batch) -> tuple[State, State]:
        """Memories of the critics' own at (o, o') of the graded rows, [critics, B, m]; () for plain ones."""
        valid = jnp.pad(batch.samples.valid, ((0, 0), (0, 1)), constant_values=True)
        each = jax.vmap(jax.vmap(histories, (None, 0, 0)), (0, None, None))
        h = each(critic, batch.history, valid)
        graded = self.memory.graded
        before, after = (lambda leaf: leaf[:, :, -graded - 1 : -1]), (lambda leaf: leaf[:, :, -graded:])
        return jax.tree.map(before, h), jax.tree.map(after, h)

    def judged(self, values: Float[Array, "critics B m"]) -> Float[Array, "B m"]:
        """What the actor maximises of the critics' opinions."""
        if self.actor_value == "first":
            return values[0]
        return jnp.min(values, axis=0) if self.actor_value == "min" else jnp.mean(values, axis=0)

    def critic_loss(
        self, critic: Any, kernel: Kernel, batch: Batch, z: State, decision: Decision, target: Array
    ) -> Array:
        """1/2 E sum_i (Q_i(s, z, u) - y)^2."""
        values = self.values(critic, kernel, batch.obs, self.histories(critic, batch)[0], z, decision)
        return 0.5 * mean(jnp.sum((values - target[None]) ** 2, axis=0), batch.mask)


def mean(x: Array, mask: Array) -> Array:
    return jnp.sum(jnp.where(mask, x, 0.0)) / jnp.sum(mask)
