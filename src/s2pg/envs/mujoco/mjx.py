"""MJX, the simulator in JAX: one control step of one environment, to be mapped over many."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from s2pg.envs.mujoco import models
from s2pg.envs.mujoco.contacts import as_in_c
from s2pg.envs.mujoco.definition import Physics, Robot
from s2pg.envs.mujoco.options import CommonOptions
from s2pg.envs.mujoco.robots import ROBOTS
from s2pg.errors import UserError

_IMPORTING = threading.Lock()
# Recent GPUs round the factors of matrix products to ten bits unless one asks; physics is in full single precision.
PRECISION = "highest"


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


class Start(NamedTuple):
    """Where a control step begins, and what the motors are told."""

    qpos: Array
    qvel: Array
    warm: Array  # the accelerations that the solver starts from
    motors: Array


class Motion(NamedTuple):
    """What a control step came to."""

    physics: Physics
    warm: Array
    overflowed: Any = ()  # whether a contact or a constraint found no room, () where there is always room


class MjxSimulator(eqx.Module):
    """Steps robots in plain JAX, on any device."""

    overflows: ClassVar[bool] = False  # whether a contact or a constraint may find no room
    divides: ClassVar[bool] = True  # whether lanes may lie on several devices

    name: str = eqx.field(static=True)
    model: Any
    blank: Any

    def __init__(self, name: str, model: Any, options: CommonOptions):
        self.name = name
        try:
            self.model, self.blank = mjx().put_model(model, impl="jax"), mjx().make_data(model, impl="jax")
        except NotImplementedError as error:
            raise UserError(f"MJX cannot run {name} ({error}): take backend=gymnasium") from error

    def prepare(self) -> None:
        """Has nothing to compile beside what JAX does."""

    def rest(self, weights: dict[str, Array], qpos: Array, qvel: Array) -> Physics:
        """Looks at a robot that is put into this state, with nothing left of what was before."""
        robot, model = ROBOTS[self.name], self.model.replace(**weights)
        data = self.blank.replace(qpos=qpos, qvel=qvel)
        if robot.place == "centre":  # only then is anything asked for that the joints do not say
            package = mjx()
            with jax.default_matmul_precision(PRECISION):
                data = package.com_vel(model, package.com_pos(model, package.kinematics(model, data)))
        physics = look(robot, model, data)._replace(qpos=qpos, qvel=qvel)
        return physics._replace(place=qpos[0]) if robot.place == "torso" else physics

    def move(self, weights: dict[str, Array], start: Start) -> Motion:
        """Makes a control step."""
        robot, model = ROBOTS[self.name], self.model.replace(**weights)
        with jax.default_matmul_precision(PRECISION):
            data = _substeps(model, begin(self.blank, start), robot.frame_skip, whole=bool(robot.derived))
            if robot.contact:
                data = mjx().rne_postconstraint(model, data)
            return Motion(look(robot, model, data), data.qacc_warmstart)


def begin(blank: Any, start: Start) -> Any:
    """Makes MJX's data of one environment at the start of a control step."""
    return blank.replace(qpos=start.qpos, qvel=start.qvel, qacc_warmstart=start.warm, ctrl=start.motors)


def look(robot: Robot, model: Any, data: Any) -> Physics:
    """Reads what a robot's task asks for from MJX's data."""
    own = data._impl
    match robot.place:
        case "torso":
            place = data.xpos[1, 0]
        case "centre":
            # No matrix product, whose factors a GPU might round.
            place = jnp.sum(model.body_mass * data.xipos[:, 0]) / jnp.sum(model.body_mass)
        case _:
            place = data.qpos[0]
    return Physics(
        data.qpos,
        data.qvel,
        place,
        contact=own.cfrc_ext.reshape(-1) if "contact_forces" in robot.derived else (),
        inertia=own.cinert[1:].reshape(-1) if "inertia" in robot.derived else (),
        body_velocity=data.cvel[1:].reshape(-1) if "body_velocities" in robot.derived else (),
        actuator=data.qfrc_actuator[6:] if "actuator_forces" in robot.derived else (),
    )


def _substeps(model: Any, data: Any, count: int, whole: bool) -> Any:
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
