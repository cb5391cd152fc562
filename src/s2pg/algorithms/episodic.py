"""What REINFORCE and G(PO)MDP share: whole episodes, one per lane, and one step along the estimated gradient."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

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
from s2pg.kernel import Kernel
from s2pg.normalise import initial, merge
from s2pg.optimise import adam, norm, step
from s2pg.options import option
from s2pg.types import Spec, Transition


class Episodic(PolicyAlgorithm):
    """Climbs an estimate of grad J that needs whole episodes and no critic; the learner is Adam's state."""

    learning_rate: float = option(3e-3, "of Adam", above=0)
    max_grad_norm: float = option(10.0, "longer gradients are scaled down to this; 0: never", low=0)
    baseline: bool = option(True, "subtract the baseline of least variance")

    traits: ClassVar[Traits] = Traits(whole_episodes=True, has_critic=False)

    @abstractmethod
    def gradient(self, kernel: Kernel, batch: Transition) -> Kernel:
        """The estimate of grad J, shaped like the kernel; only the first episode of each lane counts."""

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Adam behind a clip."""
        return adam(self.learning_rate, self.max_grad_norm)

    @property
    def plan(self) -> Plan:
        return Plan(self.lanes, self.steps, whole_episodes=self.traits.whole_episodes)

    def init_policy(self, spec: Spec, *, key: PRNGKeyArray) -> Policy:
        heads = plain_heads(self.memory, spec, self.action_log_std)
        kernel = build_kernel(self.kernel, spec, self.reads, heads, key)
        return Policy(kernel, initial(spec.views if self.normalise_obs else {}))

    def init(self, spec: Spec, shared: PyTree, *, key: PRNGKeyArray) -> TrainState:
        policy = self.init_policy(spec, key=key)
        kernel: Any = policy.kernel
        return TrainState(policy, self.optimiser.init(kernel), (), jnp.zeros((), jnp.int32))

    def store(self, state: TrainState, batch: Transition) -> TrainState:
        return state

    def update(
        self, state: TrainState, batch: Transition, shared: PyTree, key: PRNGKeyArray
    ) -> tuple[TrainState, Metrics]:
        kernel, normaliser = state.policy
        gradient = self.gradient(kernel, normalised(normaliser, batch))
        downhill = jax.tree.map(jnp.negative, gradient)
        kernel, optimiser = step(self.optimiser, downhill, state.learner, kernel)
        policy = Policy(kernel, merge(normaliser, batch.obs))
        state = state._replace(policy=policy, learner=optimiser, updates=state.updates + 1)
        return state, {"actor_gradient": norm(gradient), "parameter_norm": norm(kernel)}


def optimal_baseline(score: Float[Array, "N ..."], outcome: Float[Array, "N ..."]) -> Array:
    """E[S^2 J] / E[S^2], component by component; 0 where the score vanishes."""
    square = score**2
    weight = jnp.mean(square, axis=0)
    return jnp.where(weight > 0, jnp.mean(square * outcome, axis=0) / jnp.where(weight > 0, weight, 1.0), 0.0)
