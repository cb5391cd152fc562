"""G(PO)MDP over decisions: REINFORCE in which a reward is credited to the decisions before it alone.

    g = E_tau [ sum_t S_t (gamma^t r_t - b_t) ],   S_t = sum_{k <= t} grad log pi(a_k, z_{k+1} | o_k, z_k)

with the baseline of least variance for each step and parameter, b_t = E[S_t^2 gamma^t r_t] / E[S_t^2].
It keeps a score for every lane and step: memory is lanes x steps x parameters.
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


class GPOMDP(Episodic):
    """REINFORCE that credits a reward to decisions before it."""

    def gradient(self, kernel: Kernel, batch: Transition) -> Kernel:
        def lane(lane: Transition) -> tuple[Kernel, Array]:
            alive = first_episode(lane.terminated, lane.truncated)
            scores = jax.jacrev(lambda k: alive * step_log_probs(self.memory, k, lane, self.reads))(kernel)
            so_far = jax.tree.map(lambda leaf: jnp.cumsum(leaf, axis=0), scores)
            return so_far, alive * discounted(lane.reward, self.discount)

        scores, outcomes = jax.vmap(lane, in_axes=1)(batch)  # [N, T, ...], [N, T]

        def estimate(score: Array) -> Array:
            outcome = outcomes.reshape(*outcomes.shape, *[1] * (score.ndim - 2))
            base = optimal_baseline(score, outcome)[None] if self.baseline else 0.0
            return jnp.mean(jnp.sum(score * (outcome - base), axis=1), axis=0)

        return jax.tree.map(estimate, scores)
