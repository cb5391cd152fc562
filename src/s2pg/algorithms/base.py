"""What an algorithm is: hyper-parameters in, a training state threaded through `update`, and one way to act.

A method is abstract or final. What algorithms share is in functions over plain data, here and in `onpolicy`, `episodic`
and `offpolicy`; an algorithm that wraps another one holds it and calls it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from s2pg.actor import Actor
from s2pg.critics import CriticBuilder
from s2pg.heads import Heads, plain_action_head, plain_state_head
from s2pg.kernel import Kernel, KernelBuilder
from s2pg.memory import Memory, Sample
from s2pg.normalise import Normaliser, normalise
from s2pg.options import option, required
from s2pg.types import Spec, State, Transition, read, total

Metrics = dict[str, Array]


class Policy(NamedTuple):
    """All that acting needs."""

    kernel: Kernel
    normaliser: Normaliser


class TrainState(NamedTuple):
    """All that training carries from update to update; loops look at everything but the learner."""

    policy: Policy
    learner: Any  # the algorithm's own: critics, optimisers, targets, temperatures, discriminators, models ...
    replay: Any  # stored experience, () where an algorithm keeps none
    updates: Array  # how many there have been; off policy, gradient steps of the critics


class Traits(NamedTuple):
    """What is known of an algorithm before its hyper-parameters are."""

    replays: bool = False  # learns from stored experience
    whole_episodes: bool = False  # gets batches in which every lane starts a new episode
    has_critic: bool = True  # without one, nothing carries the pathwise half of a decision's gradient
    teaches_draws: bool = True  # a z' that is drawn learns something; otherwise a memory has to be unrolled
    cuts_rollouts: bool = True  # what is learned from are pieces of fresh batches, which these must be long enough for
    acts_on_window: bool = False  # its actor reads the last observations, and the actions between them
    critic_reads: tuple[str, ...] = ()  # views of the algorithm's own that its critics read in place of the task's


class Plan(NamedTuple):
    """What a loop must know of an algorithm."""

    lanes: int  # environments side by side
    steps: int  # of each lane per update
    warmup: int = 0  # steps of each lane that are stored before the first update
    uniform_warmup: bool = False  # whether those are taken at random
    whole_episodes: bool = False
    may_lag: bool = False  # on the host it may act one update behind, so that stepping and learning overlap


class Algorithm(eqx.Module):
    """Learns a policy from batches of experience.

    `shared` is what all seeds read and nobody writes, such as demonstrations: it is handed to every seed as it is,
    never copied, donated or saved.
    """

    @property
    @abstractmethod
    def plan(self) -> Plan:
        """What a loop must know."""

    @abstractmethod
    def init_policy(self, spec: Spec, *, key: PRNGKeyArray) -> Policy:
        """A policy before any training."""

    @abstractmethod
    def init(self, spec: Spec, shared: PyTree, *, key: PRNGKeyArray) -> TrainState:
        """The state before any training."""

    @abstractmethod
    def actor(self, policy: Policy, explore: bool = True) -> Actor:
        """The policy ready to act."""

    @abstractmethod
    def store(self, state: TrainState, batch: Transition) -> TrainState:
        """Keeps a batch [T, N] without learning from it: those of the warm-up come this way."""

    @abstractmethod
    def update(
        self, state: TrainState, batch: Transition, shared: PyTree, key: PRNGKeyArray
    ) -> tuple[TrainState, Metrics]:
        """Learns from a fresh batch [T, N]; pure, knows no environment. Metrics are finite scalars."""


@runtime_checkable
class Imitator(Protocol):
    """An algorithm whose `shared` data is an `Expert`."""

    def views_of_expert(self, spec: Spec, known: Collection[str]) -> list[str]:
        """The views that demonstrations must have, given the names of those that they have."""
        ...


@runtime_checkable
class Student(Protocol):
    """An algorithm whose `shared` data is a teacher, the `Actor` of another run."""

    def lessons(self, teacher: Actor, z: State, batch: Transition, key: PRNGKeyArray) -> tuple[State, Array]:
        """(what the teacher remembers afterwards, its actions) in the states of a batch."""
        ...


class PolicyAlgorithm(Algorithm):
    """An algorithm that holds the parts of a policy itself, rather than wrapping another algorithm."""

    memory: Memory
    kernel: KernelBuilder = eqx.field(static=True)
    critic: CriticBuilder = eqx.field(static=True)
    reads: tuple[str, ...] = eqx.field(static=True)  # the views the actor reads
    lanes: int = required("environments side by side", low=1)
    steps: int = required("steps of each lane per update", low=1)
    discount: float = option(0.99, "gamma", low=0, high=1)
    action_log_std: float = option(-0.5, "log standard deviation of continuous actions at the start")
    normalise_obs: bool = option(True, "scale observations by their running mean and deviation")

    traits: ClassVar[Traits]

    def actor(self, policy: Policy, explore: bool = True) -> Actor:
        return Actor(policy.kernel, policy.normaliser, self.memory, self.reads, explore)


def plain_heads(memory: Memory, spec: Spec, log_std: float) -> Heads:
    """Unsquashed output heads, for on-policy algorithms."""
    return Heads(plain_action_head(spec.action, log_std), memory.state_head(plain_state_head))


def build_kernel(builder: KernelBuilder, spec: Spec, reads: tuple[str, ...], heads: Heads, key: PRNGKeyArray) -> Kernel:
    """A kernel that reads these views."""
    return builder(sum(spec.views[name] for name in reads), heads, key)


def samples(batch: Transition, reads: tuple[str, ...], valid: Array) -> Sample:
    """What the memory rule needs of a piece of experience, observations already normalised."""
    return Sample(read(batch.obs, reads), batch.z, batch.decision, batch.next_z, batch.first, valid)


def step_log_probs(memory: Memory, kernel: Kernel, lane: Transition, reads: tuple[str, ...]) -> Float[Array, " T"]:
    """log pi(u_t | x_t) along one lane [T] under the memory rule, each step once."""
    steps = lane.reward.shape[0]
    time, _, valid = memory.segments(steps, 1)
    pieces = samples(jax.tree.map(lambda leaf: leaf[time], lane), reads, jnp.asarray(valid))
    now = jax.vmap(memory.evaluate, in_axes=(None, 0))(kernel, pieces)
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
