"""Proximal policy optimisation over decisions (paper: PPO-RS), one file for every memory rule.

    ratio = pi(u | x) / pi_old(u | x),  log pi = sum of the decision's halves
    L = - min(ratio A, clip(ratio, 1 - eps, 1 + eps) A)               likelihood ratio, or one for each half
        - w trust (1 - terminated) gamma V_sg(s', z'_theta) / std(A)  pathwise half
        + kappa drift - c_H . entropy

The second line differentiates through z' alone, and counts as far as V explains its targets (`trust`).
Only the pathwise estimator hands out a z' with a gradient; for every other rule the line is a constant and costs
nothing after compilation.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PRNGKeyArray

from s2pg.algorithms.base import Metrics
from s2pg.algorithms.onpolicy import (
    Learning,
    Networks,
    OnPolicy,
    entropy_bonus,
    evaluations,
    future,
    masked_mean,
    over_minibatches,
    standardise,
    values,
)
from s2pg.optimise import adam, norm, step
from s2pg.options import option
from s2pg.types import total


class PPO(OnPolicy):
    """Clipped policy optimisation with generalised advantages."""

    critic_learning_rate: float = option(0.0, "of the critic's Adam; 0: the same", low=0)
    clip: float = option(0.2, "how far the importance ratio may leave 1", above=0)
    clip_apart: bool = option(False, "clip the ratios of a and of z' apart, instead of their product")
    kl_stop: float = option(0.0, "an update ends beyond this divergence; 0: never", low=0)
    drift_cost: float = option(1e-3, "keeps z' near its old mean under s2pg-pathwise and s2pg-N")  # kappa

    @property
    def optimisers(self) -> tuple[optax.GradientTransformation, optax.GradientTransformation]:
        """Those of actor and critic, which share no parameter and are clipped and stepped apart."""
        rates = (self.learning_rate, self.critic_learning_rate or self.learning_rate)
        actor, critic = (adam(rate, self.max_grad_norm, self.anneal_steps) for rate in rates)
        return actor, critic

    def init_optimiser(self, networks: Networks) -> Any:
        parts: tuple[Any, Any] = (networks.kernel, networks.critic)
        return tuple(each.init(network) for each, network in zip(self.optimisers, parts, strict=True))

    def learn(
        self, networks: Networks, optimiser: Any, learning: Learning, updates: Array, key: PRNGKeyArray
    ) -> tuple[Networks, Any, Metrics]:
        """Minibatches of whole samples, shuffled anew each epoch; after a KL stop they pass without effect."""
        segments = self.memory.segments(*learning.advantage.shape)
        slope, learning = self.slope(learning), standardise(learning)

        def take(chosen: Array) -> tuple[Learning, Array]:
            time, lane, valid = (jnp.asarray(column)[chosen] for column in segments)
            return jax.tree.map(lambda leaf: leaf[time, lane], learning), valid

        def minibatch(carry: tuple, cut: tuple[Learning, Array]) -> tuple[tuple, Metrics]:
            (networks, optimiser, stopped), (piece, valid) = carry, cut
            grads, metrics = jax.grad(self.loss, has_aux=True)(networks, piece, valid, slope)
            stepped = [step(*parts) for parts in zip(self.optimisers, grads, optimiser, networks, strict=True)]
            new = Networks(*(each.network for each in stepped)), tuple(each.state for each in stepped)
            if self.kl_stop > 0:
                # Seen before the step: the minibatch that finds the policy too far away does not push it further.
                stopped |= metrics["kl"] > self.kl_stop
                new = jax.tree.map(lambda old, fresh: jnp.where(stopped, old, fresh), (networks, optimiser), new)
            networks, optimiser = new
            metrics |= {"stopped": stopped.astype(jnp.float32), "actor_gradient": norm(grads.kernel)}
            return (networks, optimiser, stopped), metrics

        carry = networks, optimiser, jnp.zeros((), bool)
        (networks, optimiser, _), metrics = over_minibatches(
            minibatch, carry, take, len(segments.time), self.epochs, self.minibatches, key,
            at_once=segments.time.size <= 2 * learning.advantage.size,  # else samples overlap: copies over copies
        )  # fmt: skip
        return networks, optimiser, metrics

    def loss(self, networks: Networks, piece: Learning, valid: Array, slope: Array) -> tuple[Array, Metrics]:
        """The sum of all terms above and of the critic's regression, over samples [B, n]; `slope` weighs the future."""
        row = piece.transition
        now = evaluations(self.memory, networks.kernel, row, self.reads, valid)
        mean = masked_mean(now.mask)

        log_ratio = total(now.log_prob) - total(row.log_prob)
        # Apart, each half is weighed with the same advantage: at the old parameters the gradient is that of both.
        halves = jax.tree.leaves(jax.tree.map(jnp.subtract, now.log_prob, row.log_prob))
        ratios = [jnp.exp(each) for each in (halves if self.clip_apart else [log_ratio])]
        surrogate = sum(mean(self.clipped(ratio, piece.advantage)) for ratio in ratios)
        beyond = sum(mean(jnp.abs(ratio - 1.0) > self.clip) for ratio in ratios) / len(ratios)

        found = values(networks, now.z, piece, valid)
        value_loss = 0.5 * mean((found.value - piece.target) ** 2)
        pathwise = slope * mean(future(networks, now.next_z, found.next_h, row, self.discount))

        entropy = jax.tree.map(mean, now.entropy)
        bonus = entropy_bonus(entropy, self.entropy_action, self.entropy_state)
        drift = mean(now.drift)
        loss = -surrogate - pathwise + self.drift_cost * drift - bonus + value_loss
        metrics = {
            "policy_loss": -surrogate,
            "value_loss": value_loss,
            "entropy": entropy.action,
            "kl": mean(jnp.expm1(log_ratio) - log_ratio),
            "clipped": beyond,
            "drift": drift,
        }
        return loss, metrics

    def clipped(self, ratio: Array, advantage: Array) -> Array:
        """What is gained by a ratio; nothing more once it has left its bounds in the direction that pays."""
        return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - self.clip, 1.0 + self.clip) * advantage)
