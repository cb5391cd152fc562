"""Distillation: a student learns what its teacher would do, in the states that the student itself comes to (DAgger).

    L = - E_student log pi(a* | o, z),   a* the teacher's action there

The teacher may see what the student does not, and may have a memory of its own, which is carried along beside the
student's. No batch is kept: the student learns from it in `epochs` passes, and the next one comes from where it is by
then. On point masses many small batches with more passes taught far more than few large ones (the presets say which).
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.actor import Actor
from s2pg.algorithms.base import (
    Metrics,
    Plan,
    Policy,
    PolicyAlgorithm,
    TrainState,
    Traits,
    build_kernel,
    normalised,
    plain_heads,
)
from s2pg.algorithms.expert import learn_by_heart
from s2pg.algorithms.onpolicy import annealed
from s2pg.normalise import initial, merge
from s2pg.optimise import adam, norm
from s2pg.options import option
from s2pg.types import Decision, Obs, Spec, State, Transition


class Learner(NamedTuple):
    """What distillation keeps beside the policy."""

    optimiser: Any
    taught: State  # what the teacher remembers, [lanes, ...]


class Distillation(PolicyAlgorithm):
    """A student asks its teacher what to do, wherever it comes to.

    `shared` is the teacher, an `Actor`.
    """

    epochs: int = option(4, "passes over a batch", low=1)
    minibatches: int = option(8, "gradient steps per pass", low=1)
    learning_rate: float = option(1e-3, "of Adam", above=0)
    anneal_updates: int = option(0, "updates over which the learning rate falls to 0; 0: it stays", low=0)
    max_grad_norm: float = option(0.5, "longer gradients are scaled down to this; 0: never", low=0)

    traits: ClassVar[Traits] = Traits(has_critic=False, teaches_draws=False)

    @property
    def plan(self) -> Plan:
        return Plan(self.lanes, self.steps)

    @property
    def optimiser(self) -> Any:
        """Adam."""
        count = len(self.memory.segments(self.steps, self.lanes).time)
        gradient_steps = self.epochs * min(self.minibatches, count)
        return adam(self.learning_rate, self.max_grad_norm, self.anneal_updates * gradient_steps)

    def init_policy(self, spec: Spec, *, key: PRNGKeyArray) -> Policy:
        kernel = build_kernel(self.kernel, spec, self.reads, plain_heads(self.memory, spec, self.action_log_std), key)
        return Policy(kernel, initial({name: spec.views[name] for name in self.reads} if self.normalise_obs else {}))

    def init(self, spec: Spec, shared: Actor, *, key: PRNGKeyArray) -> TrainState:
        policy = self.init_policy(spec, key=key)
        taught = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.lanes, *leaf.shape)), shared.initial())
        return TrainState(policy, Learner(self.optimiser.init(policy.kernel), taught), (), jnp.zeros((), jnp.int32))

    def store(self, state: TrainState, batch: Transition) -> TrainState:
        return state

    def lessons(self, teacher: Actor, z: State, batch: Transition, key: PRNGKeyArray) -> tuple[State, Array]:
        """(what the teacher remembers afterwards [N, ...], its actions [T, N, ...]) in the states of a batch."""

        def ask(z: State, obs: Obs, first: Array, key: PRNGKeyArray) -> tuple[State, Array]:
            decision, next_z, _ = teacher(obs, teacher.fresh(first, z), key)
            return next_z, decision.action

        def at(z: State, row: tuple[Obs, Array, PRNGKeyArray]) -> tuple[State, Array]:
            obs, first, key = row
            return jax.vmap(ask, axis_size=len(first))(z, obs, first, jax.random.split(key, len(first)))

        return jax.lax.scan(at, z, (batch.obs, batch.first, jax.random.split(key, len(batch.first))))

    def update(
        self, state: TrainState, batch: Transition, shared: Actor, key: PRNGKeyArray
    ) -> tuple[TrainState, Metrics]:
        ask_key, order_key = jax.random.split(key)
        policy, learner, optimiser = state.policy, state.learner, self.optimiser
        taught, actions = self.lessons(shared, learner.taught, batch, ask_key)
        lesson = normalised(policy.normaliser, batch)._replace(decision=Decision(actions))
        (kernel, kept), metrics = learn_by_heart(
            (policy.kernel, learner.optimiser), self.memory, self.reads, optimiser, lesson, self.epochs,
            self.minibatches, order_key,
        )  # fmt: skip
        # As under PPO: networks that no longer learn could not follow statistics that still move.
        stats = merge(policy.normaliser, batch.obs, annealed(state.updates, self.anneal_updates))
        state = state._replace(policy=Policy(kernel, stats), learner=Learner(kept, taught), updates=state.updates + 1)
        return state, metrics | {"parameter_norm": norm(kernel)}
