"""What off-policy algorithms share: a replay buffer, slow copies of networks, and Q(s, z, u) over samples from it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from s2pg import replay
from s2pg.algorithms.base import (
    Metrics,
    Plan,
    Policy,
    PolicyAlgorithm,
    TrainState,
    Traits,
    build_kernel,
    over,
)
from s2pg.critics import Critic, histories
from s2pg.heads import Heads
from s2pg.kernel import Kernel, Step
from s2pg.memory import Memory, ReplayEvaluation, ReplaySample
from s2pg.normalise import initial, merge, normalise
from s2pg.optimise import norm
from s2pg.options import option, redefine
from s2pg.sharding import spread
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


class OffPolicy(PolicyAlgorithm):
    """Learns from stored experience, `gradient_steps` times per update. Its learner has critics, under `critic`."""

    normalise_obs: bool = redefine(PolicyAlgorithm, "normalise_obs", False)
    batch_size: int = option(256, "samples of a gradient step: transitions, or segments under bptt", low=1)
    capacity: int = option(500_000, "rows of the replay buffer, all lanes together", low=1)
    learning_starts: int = option(5_000, "environment steps stored before the first update", low=1)
    uniform_warmup: bool = option(False, "act uniformly at random until then, instead of with the policy")
    gradient_steps: int = option(1, "per update, for which each lane makes `steps` steps", low=1)
    learning_rate: float = option(3e-4, "of Adam", above=0)
    critic_learning_rate: float = option(0.0, "of the critic's Adam; 0: the same", low=0)
    critic_first: int = option(0, "gradient steps before the actor begins to learn", low=0)
    anneal_updates: int = option(0, "updates over which the learning rate falls to 0; 0: it stays", low=0)
    max_grad_norm: float = option(0.0, "longer gradients are scaled down to this; 0: never", low=0)
    target_rate: float = option(0.005, "tau: how fast slow copies of networks follow", low=0, high=1)
    reward_scale: float = option(1.0, "rewards are multiplied with this before they are learned from")
    critics: int = option(2, "how many; targets take the least of their values", low=1)
    actor_value: Literal["min", "mean", "first"] = option(
        "min", "which value the actor maximises: min, mean or first of the critics", choices=("min", "mean", "first")
    )

    traits: ClassVar[Traits] = Traits(replays=True, cuts_rollouts=False)

    @abstractmethod
    def heads(self, spec: Spec) -> Heads:
        """The output heads this algorithm gives its kernels."""

    @abstractmethod
    def init_learner(self, kernel: Kernel, critic: Critic) -> Any:
        """What the algorithm keeps beside the policy, from networks before any training."""

    @property
    @abstractmethod
    def steps_per_turn(self) -> int:
        """Gradient steps that `learn` makes."""

    @abstractmethod
    def learn(self, state: TrainState, key: PRNGKeyArray) -> tuple[TrainState, Metrics]:
        """One turn of gradient steps on samples out of the buffer."""

    @property
    def plan(self) -> Plan:
        warmup = -(-self.learning_starts // self.lanes)
        return Plan(self.lanes, self.steps, warmup, self.uniform_warmup, may_lag=True)

    @property
    def anneal_steps(self) -> int:
        """Gradient steps over which learning rates fall to 0; 0: never."""
        return self.anneal_updates * self.gradient_steps

    def views(self, spec: Spec) -> dict[str, int]:
        """Sizes of the views that actor or critics read: what is stored and normalised."""
        read_by = {*self.reads, *self.critic.reads}
        return {name: size for name, size in spec.views.items() if name in read_by}

    def init_policy(self, spec: Spec, *, key: PRNGKeyArray) -> Policy:
        kernel = build_kernel(self.kernel, spec, self.reads, self.heads(spec), key)
        return Policy(kernel, initial(self.views(spec) if self.normalise_obs else {}))

    def init(self, spec: Spec, shared: PyTree, *, key: PRNGKeyArray) -> TrainState:
        return self.begin(spec, spec.views, key=key)

    def begin(self, spec: Spec, shown: dict[str, int], *, key: PRNGKeyArray) -> TrainState:
        """The state before any training; `shown` are the sizes of the views that critics may read."""
        policy_key, critic_key = jax.random.split(key)
        policy = self.init_policy(spec, key=policy_key)
        z, features = policy.kernel.initial(), policy.kernel.features(policy.kernel.initial()).shape[0]
        sizes = self.memory.halves(spec.action.size, features)
        make = lambda key: self.critic(shown, features, sizes, key)  # noqa: E731
        critic = jax.vmap(make)(jax.random.split(critic_key, self.critics))
        rows = self.capacity // self.lanes
        empty = replay.create(rows, self.lanes, self.views(spec), spec.action.size, self.memory.stored(z))
        return TrainState(policy, self.init_learner(policy.kernel, critic), empty, jnp.zeros((), jnp.int32))

    def store(self, state: TrainState, batch: Transition) -> TrainState:
        added = replay.add(state.replay, batch, self.memory.stored(batch.next_z))
        # Networks that no longer learn could not follow statistics that still move.
        rate = jnp.clip(1.0 - state.updates / self.anneal_steps, 0.0, 1.0) if self.anneal_steps else 1.0
        stats = merge(state.policy.normaliser, batch.obs, rate)
        return state._replace(replay=added, policy=state.policy._replace(normaliser=stats))

    def update(
        self, state: TrainState, batch: Transition, shared: PyTree, key: PRNGKeyArray
    ) -> tuple[TrainState, Metrics]:
        return in_turns(self.learn, self.store(state, batch), self.gradient_steps // self.steps_per_turn, key)

    def sample_batch(
        self, stored: replay.Buffer, policy: Policy, key: PRNGKeyArray
    ) -> tuple[replay.ReplayBatch, Batch]:
        """Draws a batch from a buffer, observations normalised; and where in the buffer it was found."""
        start, (rows, graded) = self.memory.stored(policy.kernel.initial()), self.memory.spans
        found = spread(replay.sample(stored, key, self.batch_size, rows, graded, start))  # which several devices share
        obs = jax.vmap(jax.vmap(normalise, (None, 0)), (None, 0))(policy.normaliser, found.obs)
        samples = ReplaySample(read(obs, self.reads), found.valid, found.z, found.next_z)
        last = lambda leaf: leaf[:, -graded:]  # noqa: E731
        before = {name: last(view[:, :-1]) for name, view in obs.items()}
        after = {name: last(view[:, 1:]) for name, view in obs.items()}
        action, reward, terminated, mask = map(last, (found.action, found.reward, found.terminated, found.valid))
        row = found.time * self.lanes + found.lane
        scaled = self.reward_scale * reward
        return found, Batch(samples, obs, before, after, action, scaled, 1.0 - terminated, mask, row)


def in_turns(
    learn: Callable[[TrainState, PRNGKeyArray], tuple[TrainState, Metrics]],
    state: TrainState,
    turns: int,
    key: PRNGKeyArray,
) -> tuple[TrainState, Metrics]:
    """Learns so many times; metrics are means."""
    if turns == 1:
        state, metrics = learn(state, key)
    else:
        state, metrics = jax.lax.scan(learn, state, jax.random.split(key, turns))
        metrics = jax.tree.map(jnp.mean, metrics)
    return state, metrics | {"parameter_norm": norm((state.policy.kernel, state.learner.critic))}


def unfold(memory: Memory, kernel: Kernel, batch: Batch, key: PRNGKeyArray | None) -> ReplayEvaluation:
    """All samples under the memory rule, the noise of refreshed states keyed by their rows."""
    if key is None:
        return jax.vmap(lambda sample: memory.unfold(kernel, sample, None))(batch.samples)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, batch.row)
    return jax.vmap(memory.unfold, (None, 0, 0))(kernel, batch.samples, keys)


def draw(memory: Memory, steps: Step, key: PRNGKeyArray | None) -> tuple[Decision, Decision]:
    """(u, log pi(u | x)) for steps [B, m]; without a key, the modes."""
    if key is None:
        return jax.vmap(jax.vmap(lambda step: memory.draw(step, None)))(steps)
    shape = jax.tree.leaves(steps.action)[0].shape[:2]
    return jax.vmap(jax.vmap(memory.draw))(steps, jax.random.split(key, shape))


def decision_values(
    critic: Critic, kernel: Kernel, obs: Obs, h: State, z: State, decision: Decision
) -> Float[Array, "critics B m"]:
    """Q_i(s, z, u) of several critics, which lie along the first axis of `critic` and h."""
    shape = decision.action.shape[:2]
    features = over(kernel.features, shape)(z)
    seen = decision
    if jax.tree.leaves(decision.state):
        seen = decision._replace(state=over(kernel.features, shape)(decision.state))
    each = jax.vmap(jax.vmap(lambda critic, *inputs: critic(*inputs), (None, 0, 0, 0, 0)), (None, 0, 0, 0, 0))
    return jax.vmap(each, (0, None, 0, None, None))(critic, obs, h, features, seen)


def critic_histories(critic: Critic, batch: Batch) -> tuple[State, State]:
    """Memories of the critics' own at (o, o') of the graded rows, [critics, B, m]; () for plain ones."""
    valid = jnp.pad(batch.samples.valid, ((0, 0), (0, 1)), constant_values=True)
    each = jax.vmap(jax.vmap(histories, (None, 0, 0)), (0, None, None))
    h = each(critic, batch.history, valid)
    graded = batch.mask.shape[1]
    before, after = (lambda leaf: leaf[:, :, -graded - 1 : -1]), (lambda leaf: leaf[:, :, -graded:])
    return jax.tree.map(before, h), jax.tree.map(after, h)


def judged(values: Float[Array, "critics B m"], how: Literal["min", "mean", "first"]) -> Float[Array, "B m"]:
    """What the actor maximises of the critics' opinions."""
    if how == "first":
        return values[0]
    return jnp.min(values, axis=0) if how == "min" else jnp.mean(values, axis=0)


def regression(
    critic: Critic, kernel: Kernel, batch: Batch, z: State, decision: Decision, target: Float[Array, "B m"]
) -> Array:
    """1/2 E sum_i (Q_i(s, z, u) - y)^2."""
    values = decision_values(critic, kernel, batch.obs, critic_histories(critic, batch)[0], z, decision)
    return 0.5 * mean(jnp.sum((values - target[None]) ** 2, axis=0), batch.mask)


def mean(x: Array, mask: Array) -> Array:
    """The mean over the rows that are graded."""
    return jnp.sum(jnp.where(mask, x, 0.0)) / jnp.sum(mask)
