"""REINFORCE over decisions: the stochastic stateful policy gradient in its plainest form (paper: Lemma 1).

    g = E_tau [ sum_t grad log pi(a_t, z_{t+1} | o_t, z_t) (J(tau) - b) ],   J(tau) = sum_t gamma^t r_t

with the baseline of least variance for each parameter, b = E[S^2 J] / E[S^2], S = sum_t grad log pi.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from s2pg.algorithms.base import Algorithm, Metrics, TrainState, normalised
from s2pg.kernel import Kernel
from s2pg.normalise import initial, merge
from s2pg.optimise import adam, norm, step
from s2pg.returns import discounted, first_episode
from s2pg.types import Spec, Transition


def optimal_baseline(score: Float[Array, "N ..."], outcome: Float[Array, "N ..."]) -> Array:
    """E[S^2 J] / E[S^2], component by component; 0 where the score vanishes."""
    square = score**2
    weight = jnp.mean(square, axis=0)
    return jnp.where(weight > 0, jnp.mean(square * outcome, axis=0) / jnp.where(weight > 0, weight, 1.0), 0.0)


class REINFORCE(Algorithm):
    """Whole episodes, one per lane; no critic."""

    learning_rate: float = eqx.field(static=True, default=3e-3)
    max_grad_norm: float = eqx.field(static=True, default=10.0)
    baseline: bool = eqx.field(static=True, default=True)

    whole_episodes: ClassVar[bool] = True
    has_critic: ClassVar[bool] = False

    @property
    def optimiser(self) -> optax.GradientTransformation:
        return adam(self.learning_rate, self.max_grad_norm)

    def init(self, spec: Spec, *, key: PRNGKeyArray) -> TrainState:
        kernel: Any = self.build_kernel(spec, key)
        views = spec.views if self.normalise_obs else {}
        return TrainState(kernel, (), self.optimiser.init(kernel), initial(views), (), jnp.zeros((), jnp.int32))

    def update(self, state: TrainState, batch: Transition, key: PRNGKeyArray) -> tuple[TrainState, Metrics]:
        gradient = self.gradient(state.kernel, normalised(state.normaliser, batch))
        downhill = jax.tree.map(jnp.negative, gradient)
        kernel, optimiser = step(self.optimiser, downhill, state.optimiser, state.kernel)
        stats = merge(state.normaliser, batch.obs)
        return TrainState(kernel, (), optimiser, stats, (), state.updates + 1), {"actor_gradient": norm(gradient)}

    def gradient(self, kernel: Kernel, batch: Transition) -> Kernel:
        """The estimate of grad J, shaped like the kernel; only the first episode of each lane counts."""

        def lane(lane: Transition) -> tuple[Kernel, Array]:
            alive = first_episode(lane.terminated, lane.truncated)
            score = jax.grad(lambda k: jnp.sum(alive * self.step_log_probs(k, lane)))(kernel)
            return score, jnp.sum(alive * discounted(lane.reward, self.discount))

        scores, outcomes = jax.vmap(lane, in_axes=1)(batch)

        def estimate(score: Array) -> Array:
            outcome = outcomes.reshape(-1, *[1] * (score.ndim - 1))
            base = optimal_baseline(score, outcome)[None] if self.baseline else 0.0
            return jnp.mean(score * (outcome - base), axis=0)

        return jax.tree.map(estimate, scores)
