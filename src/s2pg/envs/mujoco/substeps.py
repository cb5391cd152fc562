"""Steps of MJX, the simulator on the device."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from s2pg.envs.mujoco import models
from s2pg.envs.mujoco.contacts import as_in_c
from s2pg.errors import UserError

_IMPORTING = threading.Lock()


def mjx() -> ModuleType:
    """Imports the package, or says in one line what to do instead."""
    models.mujoco()
    with _IMPORTING:  # another thread may have it half imported
        if there := sys.modules.get("mujoco.mjx"):
            return there
        try:
            # It prints what it did not find and does not need; stdout is one for the whole process.
            with contextlib.redirect_stdout(io.StringIO()):
                from mujoco import mjx as package
        except ImportError as error:
            remedy = "pip install 'mujoco-mjx==3.17.0', or backend=gymnasium"
            raise UserError(f"MJX is missing ({error}): {remedy}") from None
        return package


def substeps(model: Any, data: Any, count: int, whole: bool) -> Any:
    """Makes so many steps of the simulator; `whole` keeps all that the last one looked at, not just the state."""
    package = mjx()
    rk4 = model.opt.integrator == models.mujoco().mjtIntegrator.mjINT_RK4

    def substep(data: Any, _: None) -> tuple[Any, None]:
        with as_in_c():
            after = _rk4(model, data) if rk4 else package.step(model, data)
        if not whole:  # what is not kept need not be computed, nor written in every turn
            after = data.replace(qpos=after.qpos, qvel=after.qvel, qacc_warmstart=after.qacc_warmstart)
        return after, None

    return jax.lax.scan(substep, data, None, length=count)[0]


def _rk4(model: Any, start: Any) -> Any:
    """Makes a Runge-Kutta step in one loop of four turns: MJX's own writes the forward pass out, compiled again."""
    package, step = mjx(), model.opt.timestep

    def stage(carry: tuple, factors: tuple) -> tuple[tuple, None]:
        data, speed, push = carry
        ahead, share = factors
        data = package.forward(model, data)
        speed, push = speed + share * data.qvel, push + share * data.qacc
        onward = _integrate(model, start.qpos, ahead * data.qvel, step)
        return (data.replace(qpos=onward, qvel=start.qvel + ahead * step * data.qacc), speed, push), None

    factors = (jnp.array([0.5, 0.5, 1.0, 0.0]), jnp.array([1.0, 2.0, 2.0, 1.0]) / 6.0)
    none = jnp.zeros_like(start.qvel)
    (data, speed, push), _ = jax.lax.scan(stage, (start, none, none), factors)
    # The next step's solver starts from what this one's last stage found.
    return data.replace(
        qpos=_integrate(model, start.qpos, speed, step), qvel=start.qvel + step * push, qacc_warmstart=data.qacc
    )


def _integrate(model: Any, qpos: Array, qvel: Array, seconds: Array) -> Array:
    """Moves positions at a constant velocity; a free joint, which comes first if at all, has a quaternion."""
    if model.nq == model.nv:
        return qpos + seconds * qvel
    angle = seconds * qvel[3:6]
    size = jnp.sqrt(jnp.maximum(jnp.sum(angle**2), 1e-24))
    turn = jnp.concatenate([jnp.cos(size / 2)[None], jnp.sin(size / 2) * angle / size])
    (a, b), (u, v) = (qpos[3], qpos[4:7]), (turn[0], turn[1:])
    quaternion = jnp.concatenate([(a * u - jnp.dot(b, v))[None], a * v + u * b + jnp.cross(b, v)])
    quaternion = quaternion / jnp.linalg.norm(quaternion)
    return jnp.concatenate([qpos[:3] + seconds * qvel[:3], quaternion, qpos[7:] + seconds * qvel[6:]])
