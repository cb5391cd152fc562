"""Swing-up of a pendulum whose angular velocity the policy must infer."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from s2pg.envs import draw
from s2pg.envs.base import Env, EnvState
from s2pg.options import check_fields, option
from s2pg.types import CRITIC, POLICY, Box, Obs

GRAVITY, MASS, LENGTH, DT = 10.0, 1.0, 1.0, 0.05
FASTEST, STRONGEST = 8.0, 2.0


class PendulumState(NamedTuple):
    """How the pendulum hangs and turns."""

    angle: Float[Array, ""]  # from upright
    velocity: Float[Array, ""]


class MaskedPendulum(Env):
    """Pendulum swing-up without the angular velocity.

    Dynamics and reward are those of Gymnasium's Pendulum-v1.
    """

    stagger: ClassVar[bool] = True
    dt: ClassVar[float] = DT

    horizon: int = option(200, "steps after which an episode is cut", low=1)

    def __check_init__(self):
        check_fields(self, "masked-pendulum")

    @property
    def action(self) -> Box:
        return Box((-STRONGEST,), (STRONGEST,))

    def begin(self, key: PRNGKeyArray) -> PendulumState:
        angle, velocity = jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)
        return PendulumState(jnp.pi * angle, velocity)

    def move(
        self, inner: PendulumState, elapsed: Array, action: Array, key: PRNGKeyArray
    ) -> tuple[PendulumState, Array, Array]:
        angle, velocity, torque = inner.angle, inner.velocity, action[0]
        # The angle is kept in [-pi, pi): float32 would lose digits of one that winds up over a long episode.
        cost = angle**2 + 0.1 * velocity**2 + 0.001 * torque**2
        fall = 3 * GRAVITY / (2 * LENGTH) * jnp.sin(angle)
        push = 3 / (MASS * LENGTH**2) * torque
        velocity = jnp.clip(velocity + DT * (fall + push), -FASTEST, FASTEST)
        angle = jnp.mod(angle + DT * velocity + jnp.pi, 2 * jnp.pi) - jnp.pi
        return PendulumState(angle, velocity), -cost, jnp.zeros((), bool)

    def views(self, inner: PendulumState, elapsed: Array) -> Obs:
        tip = jnp.stack([jnp.cos(inner.angle), jnp.sin(inner.angle)])
        return {POLICY: tip, CRITIC: jnp.concatenate([tip, inner.velocity[None] / FASTEST])}

    def render(self, state: EnvState) -> np.ndarray:
        """Draws the pendulum and where its tip should be."""
        inner: PendulumState = state.inner
        canvas, angle = draw.Canvas(-1.4, 1.4), float(inner.angle)
        tip = (-np.sin(angle), np.cos(angle))  # a positive angle leans to the left, as in Gymnasium's picture
        canvas.ring((0.0, 0.0), 1.18, 0.02, draw.PALE)
        canvas.disc((0.0, 1.17), 0.05, draw.GREEN)  # where the tip should be
        canvas.line((0.0, 0.0), tip, 0.16, draw.RED)
        canvas.disc((0.0, 0.0), 0.05, draw.INK)
        return canvas.picture()
