"""Small tasks and kernels whose constants are known: what the figures and the checks are made with.

eta = phi(W z + U o),  a ~ N(k o + c . eta, sigma_a^2),  z' ~ N(eta, sigma_z^2) where it is drawn

map       phi              |W|                            what it shows
linear    y                Z                              unbounded z above Z = 1
rotation  y, in 2-D        Z; all stretch by Z / sqrt 2   a Frobenius norm above 1 without explosion
fold      triangle wave    Z; slope is Z everywhere       bounded z, Lyapunov exponent log Z
sine      sin(y)           Z; slope is Z at its steepest  bounded z, chaos from Z = 2.7 on
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from s2pg.distributions import Normal
from s2pg.envs.base import Env
from s2pg.errors import UserError, unknown
from s2pg.kernel import Kernel, Step
from s2pg.types import CRITIC, POLICY, Box, Obs

Map = Literal["linear", "rotation", "fold", "sine"]
MAPS: tuple[Map, ...] = ("linear", "rotation", "fold", "sine")
ANGLE = 0.6  # of the rotation


class Endless(Env):
    """A task of one unbounded action that never ends."""

    horizon: int = eqx.field(static=True, default=10**6)
    shows_action: ClassVar[bool] = False

    @property
    def action(self) -> Box:
        return Box((-math.inf,), (math.inf,))


class Chase(Endless):
    """s' = tanh(s/2 + a/2 + noise), o = s, r = 1 / (1 + (a - s)^2): a reward within (0, 1] whatever the policy does."""

    def begin(self, key: PRNGKeyArray) -> Array:
        return jax.random.uniform(key, minval=-1.0, maxval=1.0)

    def move(self, inner: Array, elapsed: Array, action: Array, key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        noise = jax.random.uniform(key, minval=-1.0, maxval=1.0)
        reward = 1.0 / (1.0 + (action[0] - inner) ** 2)
        return jnp.tanh(0.5 * inner + 0.5 * action[0] + noise), reward, jnp.zeros((), bool)

    def views(self, inner: Array, elapsed: Array) -> Obs:
        return {POLICY: inner[None], CRITIC: inner[None]}


class Echo(Endless):
    """A cue x = -1 or 1, shown at the first step alone, and r = x a at every step: linear in a, with a closed form."""

    def begin(self, key: PRNGKeyArray) -> Array:
        return jnp.where(jax.random.bernoulli(key), 1.0, -1.0)

    def move(self, inner: Array, elapsed: Array, action: Array, key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        return inner, inner * action[0], jnp.zeros((), bool)

    def views(self, inner: Array, elapsed: Array) -> Obs:
        return {POLICY: jnp.where(elapsed == 0, inner, 0.0)[None], CRITIC: inner[None]}


class ToyKernel(Kernel):
    """eta = phi(W z + U o), a ~ N(k o + c . eta, sigma_a^2), z' ~ N(eta, sigma_z^2)."""

    w: Float[Array, "z z"]
    u: Float[Array, " z"]
    k: Float[Array, ""]
    c: Float[Array, " z"]
    action_log_std: Float[Array, " 1"]
    state_log_std: Float[Array, " z"]
    mix: Float[Array, " 3"]  # phi as weights of y, triangle wave and sine: an array, so that all share compiled code
    start: float = eqx.field(static=True, default=0.3)  # of z_0: off the fixed point 0, where nothing would move

    def initial(self) -> Array:
        return jnp.full(self.u.shape, self.start)

    def embed(self, obs: Array) -> Array:
        return obs

    def advance(self, x: Array, z: Array) -> Array:
        y = self.w @ z + self.u * x[0]
        wave = jnp.abs(jnp.mod(y - 1.0, 4.0) - 2.0) - 1.0
        return jax.lax.stop_gradient(self.mix) @ jnp.stack([y, wave, jnp.sin(y)])

    def emit(self, x: Array, eta: Array) -> Step:
        mean = self.k * x[0] + self.c @ eta
        fixed = jax.lax.stop_gradient
        return Step(Normal(mean[None], fixed(self.action_log_std)), Normal(eta, fixed(self.state_log_std)))


def toy_kernel(map: str, z: float, *, action_std: float = 0.5, state_std: float = 0.3, start: float = 0.3) -> ToyKernel:
    """The kernel of a map with |d eta / d z| = Z at its steepest."""
    if map not in MAPS:
        raise unknown("map", map, MAPS)
    if not z >= 0:
        raise UserError(f"Z must not be negative, not {z:g}: it bounds a norm")
    if not (action_std > 0 and state_std > 0):
        raise UserError("standard deviations must be positive: the theorems are about policies with noise")
    size = 2 if map == "rotation" else 1
    turn = jnp.array([[math.cos(ANGLE), -math.sin(ANGLE)], [math.sin(ANGLE), math.cos(ANGLE)]]) / math.sqrt(2)
    w = z * (turn if size == 2 else jnp.ones((1, 1)))
    mix = jnp.eye(3)[{"linear": 0, "rotation": 0, "fold": 1, "sine": 2}[map]]
    logs = jnp.full(1, math.log(action_std)), jnp.full(size, math.log(state_std))
    return ToyKernel(w, jnp.full(size, 0.3), jnp.asarray(0.4), jnp.full(size, 0.8), *logs, mix, start)


def echo_return(kernel: ToyKernel, steps: int, discount: float, cut: int = 0) -> Array:
    """E[sum gamma^t r_t] on `Echo` of a linear kernel with z_0 = 0: k + sum_t gamma^t c . W^t U.

    Its gradient is that of the objective; with `cut`, no gradient passes a multiple of that many steps, and it is
    the mean of truncated BPTT: as r is linear in a, E[G xi_t] = gamma^t x for the score xi_t of every action.
    """
    eta, total = kernel.u, kernel.k + kernel.c @ kernel.u
    for t in range(1, steps):
        eta = kernel.w @ (jax.lax.stop_gradient(eta) if cut and t % cut == 0 else eta)
        total += discount**t * (kernel.c @ eta)
    return total
