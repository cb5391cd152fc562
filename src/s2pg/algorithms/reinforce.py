"""REINFORCE over decisions: the stochastic stateful policy gradient in its plainest form (paper: Lemma 1).

    g = E_tau [ sum_t grad log pi(a_t, z_{t+1} | o_t, z_t) (J(tau) - b) ],   J(tau) = sum_t gamma^t r_t

with the baseline of least variance for each parameter, b = E[S^2 J] / E[S^2], S = sum_t grad log pi.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

from s2pg.algorithms.base import step_log_probs
from s2pg.algorithms.episodic import Episodic, optimal_baseline
from s2pg.kernel import Kernel
from s2pg.returns import discounted, first_episode
from s2pg.types import Transition


class REINFORCE(Episodic):
    """The score of a whole episode times its return."""

    def gradient(self, kernel: Kernel, batch: Transition) -> Kernel:
        def lane(lane: Transition) -> tuple[Kernel, Array]:
            alive = first_episode(lane.terminated, lane.truncated)
            score = jax.grad(lambda k: jnp.sum(alive * step_log_probs(self.memory, k, lane, self.reads)))(kernel)
            return score, jnp.sum(alive * discounted(lane.reward, self.discount))

        scores, outcomes = jax.vmap(lane, in_axes=1)(batch)

        def estimate(score: Array) -> Array:
            outcome = outcomes.reshape(-1, *[1] * (score.ndim - 1))
            base = optimal_baseline(score, outcome)[None] if self.baseline else 0.0
            return jnp.mean(score * (outcome - base), axis=0)

        return jax.tree.map(estimate, scores)
