"""Trust region policy optimisation over decisions (paper: TRPO-RS), one file for every memory rule.

By the stateful performance difference lemma, with x = (s, z) and u = (a, z'),

    J(pi) - J(pi_old) = E_{x, u ~ pi} [ sum_t gamma^t A_old(x_t, u_t) ]

which, as long as pi stays near pi_old, is well told by the contexts that pi_old visits:

    maximise   L(theta) = E_old [ pi(u | x) / pi_old(u | x) A ]
                        + w trust (1 - terminated) gamma V_sg(s', z'_theta) / std(A)
    subject to D(theta) = E_old [ KL(pi_old(. | x) || pi(. | x)) ] <= delta

KL is that of the joint decision, the sum of its halves; a half that a memory rule does not decide on has none. The
second term of L is a constant but for the pathwise estimator (see PPO, also for how far it is trusted), whose drift of
eta the state half of D bounds.

A step is theta + s sqrt(2 delta / x^T F x) x with F x = grad L, F the Fisher matrix (the Hessian of D) with damping,
and s the first of 1, 1/2, 1/4 ... that improves L and keeps D within delta, both measured; without one theta stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import lineax as lx
import optax
from jaxtyping import Array, PRNGKeyArray, PyTree

from s2pg.algorithms.base import Metrics
from s2pg.algorithms.onpolicy import (
    Learning,
    Networks,
    OnPolicy,
    annealed,
    entropy_bonus,
    evaluations,
    future,
    masked_mean,
    over_minibatches,
    standardise,
    values,
)
from s2pg.distributions import Distribution
from s2pg.kernel import Kernel
from s2pg.memory import Evaluation
from s2pg.optimise import adam, norm, step
from s2pg.options import option, redefine
from s2pg.sharding import spread
from s2pg.types import Decision, State, total

Product = Callable[[Any], Any]  # v -> F v, on trees like the kernel


class Batch(NamedTuple):
    """All samples of a batch, as they were when it was collected."""

    piece: Learning  # [samples, n], advantages scaled
    valid: Array
    old: Evaluation  # under the parameters that collected it
    next_h: State  # of the critic, after each step
    future: Array  # (1 - terminated) gamma V(s', z') under the same
    slope: Array  # what the future weighs


class Measurement(NamedTuple):
    """A policy against the old one."""

    objective: Array  # L
    kl: Array  # D
    metrics: Metrics


class TRPO(OnPolicy):
    """Natural gradients within a trust region of decisions.

    The radius is that of the joint KL divergence; the critic learns by Adam, as under PPO."""

    learning_rate: float = redefine(OnPolicy, "learning_rate", 1e-3)  # the critic's
    radius: float = option(0.01, "delta: how far the joint divergence of decisions may go in one update", above=0)
    damping: float = option(0.1, "added to the diagonal of the Fisher matrix", above=0)
    cg_steps: int = option(10, "of conjugate gradients, at most", low=1)
    cg_tolerance: float = option(
        1e-4, "residual of conjugate gradients, relative to the gradient, at which they stop", low=0
    )
    fisher_share: float = option(1.0, "share of the samples that the Fisher matrix is taken from", above=0, high=1)
    backtracks: int = option(10, "step sizes that the line search tries: 1, 1/2, 1/4 ...", low=1)

    @property
    def optimiser(self) -> optax.GradientTransformation:
        return adam(self.learning_rate, self.max_grad_norm, self.anneal_steps)

    def init_optimiser(self, networks: Networks) -> Any:
        critic: Any = networks.critic
        return self.optimiser.init(critic)

    def learn(
        self, networks: Networks, optimiser: Any, learning: Learning, updates: Array, key: PRNGKeyArray
    ) -> tuple[Networks, Any, Metrics]:
        fisher_key, critic_key = jax.random.split(key)
        kernel, batch = networks.kernel, self.gather(networks, learning)
        # First the policy: a critic that has seen this batch would bring its outcomes in a second time.
        measure = lambda new: self.measure(Networks(new, networks.critic), batch)  # noqa: E731
        gradient, before = jax.grad(lambda new: ((seen := measure(new)).objective, seen), has_aux=True)(kernel)
        fisher = self.fisher(kernel, self.thinned(batch, fisher_key))
        radius = self.radius * annealed(updates, self.anneal_updates)
        step, residual = natural_step(fisher, gradient, radius, self.damping, self.cg_steps, self.cg_tolerance)
        kernel, fraction, seen = line_search(measure, kernel, before, step, radius, self.backtracks)
        critic, optimiser, fitted = self.fit(networks, optimiser, batch, critic_key)
        metrics = seen.metrics | fitted | {
            "kl": seen.kl,
            "accepted": (fraction > 0).astype(jnp.float32),
            "step_fraction": fraction,
            "cg_residual": residual,
            "actor_gradient": norm(gradient),
        }  # fmt: skip
        return Networks(kernel, critic), optimiser, metrics

    def gather(self, networks: Networks, learning: Learning) -> Batch:
        """All samples of a batch, and what the old parameters make of them."""
        time, lane, valid = map(jnp.asarray, self.memory.segments(*learning.advantage.shape))
        slope, learning = self.slope(learning), standardise(learning)
        piece, valid = spread((jax.tree.map(lambda leaf: leaf[time, lane], learning), valid))
        old = evaluations(self.memory, networks.kernel, piece.transition, self.reads, valid)
        found = values(networks, old.z, piece, valid)
        ahead = future(networks, old.next_z, found.next_h, piece.transition, self.discount)
        return Batch(piece, valid, old, found.next_h, ahead, slope)

    def thinned(self, batch: Batch, key: PRNGKeyArray) -> Batch:
        """A share of the samples, drawn at random."""
        samples = batch.valid.shape[0]
        kept = max(1, round(self.fisher_share * samples))
        if kept >= samples:
            return batch
        chosen = jax.random.permutation(key, samples)[:kept]
        slope, rest = batch.slope, batch._replace(slope=())
        return jax.tree.map(lambda leaf: leaf[chosen], rest)._replace(slope=slope)

    def halves(self, now: Evaluation) -> Decision:
        """The distributions that were decided from."""
        return self.memory.halves(now.now.action, now.now.state)

    def measure(self, networks: Networks, batch: Batch) -> Measurement:
        """L and D of a policy on all samples."""
        piece, old = batch.piece, batch.old
        now = evaluations(self.memory, networks.kernel, piece.transition, self.reads, batch.valid)
        mean = masked_mean(old.mask)
        ratio = jnp.exp(total(now.log_prob) - total(old.log_prob))
        surrogate = mean(ratio * piece.advantage)
        # As a difference: the value itself may be so large that a surrogate near 0 is lost beside it.
        ahead = future(networks, now.next_z, batch.next_h, piece.transition, self.discount)
        gained = batch.slope * mean(ahead - batch.future)
        entropy = jax.tree.map(mean, now.entropy)
        bonus = entropy_bonus(entropy, self.entropy_action, self.entropy_state)
        objective = surrogate + gained + bonus
        kl = mean(divergence(self.halves(old), self.halves(now)))
        return Measurement(
            objective, kl, {"policy_loss": -surrogate, "entropy": entropy.action, "drift": mean(now.drift)}
        )

    def fisher(self, kernel: Kernel, batch: Batch) -> Product:
        """v -> F v at the old parameters, F = J^T H J: J of the decisions' distributions, H the Hessian of D in these.

        The rest of D's Hessian is 0, since D is least at the old parameters. J is linearised once for all products.
        """
        mean = masked_mean(batch.old.mask)
        old, push = jax.linearize(
            lambda new: self.halves(evaluations(self.memory, new, batch.piece.transition, self.reads, batch.valid)),
            kernel,
        )
        pull = jax.linear_transpose(push, kernel)
        slope = jax.grad(lambda new: mean(divergence(old, new)))
        return lambda v: pull(jax.jvp(slope, (old,), (push(v),))[1])[0]

    def fit(self, networks: Networks, optimiser: Any, batch: Batch, key: PRNGKeyArray) -> tuple[Any, Any, Metrics]:
        """The critic's regression on its targets, with z as it was."""

        whole = batch.piece, batch.valid, batch.old.z, batch.old.mask

        def loss(critic: Any, part: tuple) -> Array:
            piece, valid, z, mask = part
            found = values(Networks(networks.kernel, critic), z, piece, valid)
            return 0.5 * masked_mean(mask)((found.value - piece.target) ** 2)

        def minibatch(carry: tuple, part: tuple) -> tuple[tuple, Metrics]:
            critic, optimiser = carry
            error, gradient = jax.value_and_grad(loss)(critic, part)
            return tuple(step(self.optimiser, gradient, optimiser, critic)), {"value_loss": error}

        (critic, optimiser), metrics = over_minibatches(
            minibatch,
            (networks.critic, optimiser),
            lambda chosen: jax.tree.map(lambda leaf: leaf[chosen], whole),
            batch.valid.shape[0],
            self.epochs,
            self.minibatches,
            key,
        )
        return critic, optimiser, metrics


def divergence(old: Decision, new: Decision) -> Array:
    """KL(old || new) of the joint decision at every step [samples, n]: its halves are independent given (o, z)."""
    each = jax.vmap(jax.vmap(lambda p, q: p.kl(q)))
    return total(jax.tree.map(each, old, new, is_leaf=lambda node: isinstance(node, Distribution)))


def natural_step(
    fisher: Product, gradient: PyTree, radius: Array | float, damping: float, steps: int, tolerance: float
) -> tuple[PyTree, Array]:
    """sqrt(2 radius / x^T F x) x with (F + damping) x = gradient, by conjugate gradients; and the relative residual.

    Damping counts in x^T F x as well, so that directions which hardly move the policy do not run away.
    """
    size, eps = sum(leaf.size for leaf in jax.tree.leaves(gradient)), jnp.finfo(jnp.result_type(float)).eps
    # Lineax gives up on a matrix with eigenvalues below 200 size eps, whatever its scale: this one has none.
    scale = max(1.0, 400.0 * size * float(eps)) / damping
    unit = jax.tree.map(lambda leaf: leaf / jnp.maximum(norm(gradient), 1e-30), gradient)

    def product(v: PyTree) -> PyTree:
        return jax.tree.map(lambda fv, v: scale * (fv + damping * v), fisher(v), v)

    operator = lx.FunctionLinearOperator(product, jax.eval_shape(lambda: unit), lx.positive_semidefinite_tag)
    solver = lx.CG(rtol=0.0, atol=tolerance, norm=norm, stabilise_every=None, max_steps=steps)
    x = lx.linear_solve(operator, unit, solver, throw=False).value
    image = product(x)
    residual = norm(jax.tree.map(jnp.subtract, image, unit))
    curvature = jnp.asarray(optax.tree.vdot(x, image)) / scale
    # Without a gradient, or where rounding took the curvature away, there is nowhere to go.
    length = jnp.where(curvature > 0, jnp.sqrt(2.0 * radius / jnp.where(curvature > 0, curvature, 1.0)), 0.0)
    return jax.tree.map(lambda leaf: length * leaf, x), residual


def line_search(
    measure: Callable[[Any], Measurement],
    kernel: Any,
    before: Measurement,
    step: PyTree,
    radius: Array | float,
    attempts: int,
) -> tuple[Any, Array, Measurement]:
    """The first of kernel + step, kernel + step / 2 ... that improves L within the radius; else the kernel itself.

    Returns it, its share of the step (0: none was good), and what was measured of it.
    """

    def moved(fraction: Array) -> Any:
        return jax.tree.map(lambda leaf, d: leaf + fraction * d, kernel, step)

    def searching(carry: tuple) -> Array:
        attempt, fraction, _ = carry
        return (attempt < attempts) & (fraction == 0.0)

    def attempt(carry: tuple) -> tuple:
        number, _, _ = carry
        fraction = 0.5**number
        seen = measure(moved(fraction))
        good = (seen.objective > before.objective) & (seen.kl <= radius)
        return number + 1, jnp.where(good, fraction, 0.0), seen

    _, fraction, seen = jax.lax.while_loop(searching, attempt, (jnp.zeros(()), jnp.zeros(()), before))
    keep = lambda new, old: jnp.where(fraction > 0, new, old)  # noqa: E731
    seen = jax.tree.map(keep, seen, before)
    seen = seen._replace(metrics=seen.metrics | {"improvement": seen.objective - before.objective})
    return jax.tree.map(keep, moved(fraction), kernel), fraction, seen
