"""The constants R, F, H, K, Z of the bounds, measured: the largest Jacobian norms over visited contexts (o, z).

The action head of our kernels reads eta, so f is the composite (o, z) -> eta -> mean of a, and F and K are its total
derivatives. A prefix of t steps has its own constants, from the contexts of that prefix: they only grow with t.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from s2pg.distributions import Normal
from s2pg.errors import UserError
from s2pg.kernel import Kernel
from s2pg.returns import first_episode
from s2pg.theory.bounds import Constants
from s2pg.types import State, Transition, read


class Norms(NamedTuple):
    """Of one context, or the largest of many."""

    reward: Array
    action_gradient: Array
    state_gradient: Array
    action_memory: Array
    state_memory: Array
    action_row: Array
    state_row: Array


def _eta(kernel: Kernel, obs: Array, z: State) -> Float[Array, " z"]:
    return ravel_pytree(kernel.advance(kernel.embed(obs), z))[0]


def _mean(kernel: Kernel, obs: Array, z: State) -> Float[Array, " a"]:
    action = kernel(obs, z).action
    assert isinstance(action, Normal), "the bounds are those of normal policies"
    return action.mean


def _context(kernel: Kernel, obs: Array, z: State, reward: Array) -> Norms:
    flat, kernel_of = ravel_pytree(kernel)
    flat_z, z_of = ravel_pytree(z)

    def jacobians(function: Callable[[Kernel, Array, State], Array]) -> tuple[Array, Array]:
        return jax.jacrev(lambda theta, z: function(kernel_of(theta), obs, z_of(z)), argnums=(0, 1))(flat, flat_z)

    (f_theta, f_z), (eta_theta, eta_z) = jacobians(_mean), jacobians(_eta)
    size, rows = (lambda m: jnp.sqrt(jnp.sum(m**2))), (lambda m: jnp.sqrt(jnp.max(jnp.sum(m**2, axis=1))))
    return Norms(
        jnp.abs(reward), size(f_theta), size(eta_theta), size(f_z), size(eta_z), rows(f_theta), rows(eta_theta)
    )


def norms(kernel: Kernel, batch: Transition, reads: tuple[str, ...]) -> Norms:
    """The largest norms over lanes and over the steps so far, [T] each, of a batch [T, N]; first episodes only."""

    def row(step: tuple[Transition, Array]) -> Norms:
        batch, alive = step
        every = jax.vmap(_context, in_axes=(None, 0, 0, 0))(kernel, read(batch.obs, reads), batch.z, batch.reward)
        return jax.tree.map(lambda norm: jnp.max(jnp.where(alive, norm, 0.0)), every)

    alive = jax.vmap(first_episode, in_axes=1, out_axes=1)(batch.terminated, batch.truncated)
    # One step of all lanes at a time: Jacobians of a whole batch would be lanes x steps x parameters.
    return jax.tree.map(jax.lax.cummax, jax.lax.map(row, (batch, alive)))


def precisions(kernel: Kernel, obs: Array, z: State) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Diagonals of Sigma^-1 and Upsilon^-1; the second is empty where z' is no normal."""
    step = kernel(obs, z)

    def diagonal(distribution: object) -> tuple[float, ...]:
        if not isinstance(distribution, Normal):
            return ()
        return tuple(float(x) for x in np.exp(-2.0 * np.asarray(distribution.log_std)))

    return diagonal(step.action), diagonal(step.state)


def visited(
    found: Norms | None, steps: int, noise: tuple[tuple[float, ...], tuple[float, ...]], discount: float
) -> Constants:
    """The constants of trajectories of `steps` steps; `found` may have leading axes, over which the largest count."""
    if found is None:
        raise UserError("the bounds are those of normal policies; these actions are discrete")
    reward, f, h, k, z, f_row, h_row = (float(np.max(np.asarray(norm)[..., steps - 1])) for norm in found)
    return Constants(reward, f, h, k, z, *noise, action_row=f_row, state_row=h_row, discount=discount)


@functools.partial(jax.jit, static_argnames=("reads",))
def lyapunov(kernel: Kernel, batch: Transition, reads: tuple[str, ...]) -> Float[Array, " N"]:
    """log |J_{T-1} ... J_0| / T of every lane of a batch [T, N], J = d eta / d z: above 0, gradients explode."""

    def lane(rows: Transition) -> Array:
        def multiply(carry: tuple[Array, Array], step: tuple) -> tuple[tuple[Array, Array], None]:
            product, log = carry
            obs, z = step
            flat, z_of = ravel_pytree(z)
            product = jax.jacrev(lambda z: _eta(kernel, obs, z_of(z)))(flat) @ product
            norm = jnp.sqrt(jnp.sum(product**2))
            return (product / norm, log + jnp.log(norm)), None  # rescaled: the product itself would overflow

        flat, _ = ravel_pytree(kernel.initial())
        start = jnp.eye(flat.size) / jnp.sqrt(1.0 * flat.size), jnp.zeros(())
        (_, log), _ = jax.lax.scan(multiply, start, (read(rows.obs, reads), rows.z))
        return log / rows.reward.shape[0]

    return jax.vmap(lane, in_axes=1)(batch)
