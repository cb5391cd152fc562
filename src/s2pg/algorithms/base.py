"""What an algorithm is: hyper-parameters in, a training state threaded through `update`, and one way to act."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from s2pg.actor import Actor
from s2pg.heads import Heads, plain_action_head, plain_state_head
from s2pg.kernel import Kernel, KernelBuilder
from s2pg.memory import Memory, Sample
from s2pg.normalise import Normaliser, normalise
from s2pg.types import Decision, Spec, State, Transition, read, total

Metrics = dict[str, Array]


class TrainState(NamedTuple):
    kernel: Kernel
    critic: Any
    optimiser: Any
    normaliser: Normaliser
    critic_memory: State  # h of every lane at the start of the next batch
    updates: Array  # how many there have been
    target: Any = ()  # slow copies of networks, where an algorithm bootstraps from such
    temperature: Decision = Decision((), ())  # log alpha, one for each half of a decision
    replay: Any = ()  # stored experience, where an algorithm learns from such


class Algorithm(eqx.Module):
    """An algorithm over decisions; every subclass is one file."""

    memory: Memory
    kernel: KernelBuilder = eqx.field(static=True)
    critic: Any = eqx.field(static=True)  # a builder: CriticBuilder of V on policy, ActionValueBuilder of Q off policy
    reads: tuple[str, ...] = eqx.field(static=True)  # the views the actor reads
    lanes: int = eqx.field(static=True)  # environments side by side
    steps: int = eqx.field(static=True)  # steps of each per update
    discount: float = eqx.field(static=True, default=0.99)
    action_log_std: float = eqx.field(static=True, default=-0.5)
    normalise_obs: bool = eqx.field(static=True, default=True)

    # Episodic algorithms get a batch in which every lane starts a new episode.
    whole_episodes: ClassVar[bool] = False
    # Without a critic nothing carries the pathwise half of a decision's gradient.
    has_critic: ClassVar[bool] = True
    # Learns from stored experience: on the host it may act one update behind, so that stepping and learning overlap.
    off_policy: ClassVar[bool] = False

    @abstractmethod
    def init(self, spec: Spec, *, key: PRNGKeyArray) -> TrainState: ...

    @abstractmethod
    def update(self, state: TrainState, batch: Transition, key: PRNGKeyArray) -> tuple[TrainState, Metrics]:
        """Learns from a fresh batch [T, N]; pure, knows no environment."""

    def actor(self, state: TrainState, explore: bool = True) -> Actor:
        return Actor(state.kernel, state.normaliser, self.memory, self.reads, explore)

    @property
    def warmup(self) -> int:
        """Steps of each lane that are stored before the first update."""
        return 0

    def warmup_actor(self, state: TrainState) -> Actor:
        """Who acts in the warm-up."""
        return self.actor(state)

    def remember(self, state: TrainState, batch: Transition) -> TrainState:
        """Stores a batch [T, N] without learning from it."""
        return state

    def heads(self, spec: Spec) -> Heads:
        """The output heads this algorithm gives its kernels."""
        return Heads(plain_action_head(spec.action, self.action_log_std), self.memory.state_head(plain_state_head))

    def build_kernel(self, spec: Spec, key: PRNGKeyArray) -> Kernel:
        return self.kernel(sum(spec.views[name] for name in self.reads), self.heads(spec), key)

    def sample(self, batch: Transition, valid: Array) -> Sample:
        """What the memory rule needs of a piece of experience, observations already normalised."""
        obs = read(batch.obs, self.reads)
        return Sample(obs, batch.z, batch.decision, batch.next_z, batch.first, valid)

    def step_log_probs(self, kernel: Kernel, lane: Transition) -> Float[Array, " T"]:
        """log pi(u_t | x_t) along one lane [T] under the memory rule, each step once."""
        steps = lane.reward.shape[0]
        time, _, valid = self.memory.segments(steps, 1)
        samples = self.sample(jax.tree.map(lambda leaf: leaf[time], lane), jnp.asarray(valid))
        now = jax.vmap(self.memory.evaluate, in_axes=(None, 0))(kernel, samples)
        return jnp.zeros(steps).at[time].add(jnp.where(now.mask, total(now.log_prob), 0.0))


def normalised(normaliser: Normaliser, batch: Transition) -> Transition:
    """A batch [T, N] as the networks see it."""
    every = jax.vmap(jax.vmap(normalise, in_axes=(None, 0)), in_axes=(None, 0))
    return batch._replace(obs=every(normaliser, batch.obs), next_obs=every(normaliser, batch.next_obs))


def over(function: Callable[[State], Array], shape: tuple[int, ...]) -> Callable[[State], Array]:
    """`function` under vmap over axes that a state without leaves cannot show."""
    for size in reversed(shape):
        function = jax.vmap(function, axis_size=size)
    return function
