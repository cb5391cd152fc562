"""Robots in MJX on the device: thousands of environments inside one compiled function."""

# No postponed annotations here: Equinox knows an AbstractVar only by its value, not by its name.
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from s2pg.envs.base import Env, EnvState
from s2pg.envs.mujoco import models
from s2pg.envs.mujoco.cameras import Camera
from s2pg.envs.mujoco.options import RobotOptions
from s2pg.envs.mujoco.randomise import mass_pool
from s2pg.envs.mujoco.robots import LARGEST, ROBOTS, Physics
from s2pg.envs.mujoco.substeps import mjx, substeps
from s2pg.envs.mujoco.views import RobotViews
from s2pg.errors import UserError
from s2pg.types import PREVIOUS_ACTION, Box, Obs

# Recent GPUs round the factors of matrix products to ten bits unless one asks; physics is in full single precision.
PRECISION = "highest"


class Inner(NamedTuple):
    """A simulation between two steps."""

    physics: Physics
    warm: Array  # the accelerations that the solver starts from
    which: Array  # of the pool of models
    noise: Array  # on what the policy sees now
    diverged: Array


class MjxRobot(Env):
    """A robot on the device: MJX, in float32."""

    stagger: ClassVar[bool] = True

    id: str = eqx.field(static=True)
    setup: RobotOptions = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    dt: float = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride]
    robot_views: RobotViews = eqx.field(static=True)
    motors: Box
    model: Any
    blank: Any
    pool: dict[str, Array]  # what differs between models of other masses
    heavier: Array  # by how much the links of each are

    def __init__(self, id: str, options: RobotOptions | None = None):
        self.id, self.setup = id, options or RobotOptions()
        self.setup.check(id, on_device=True)
        self.horizon = self.setup.horizon
        robot, package, model = ROBOTS[id], models.mujoco(), models.load(ROBOTS[id])
        # PGS, which Humanoid asks for, is not in MJX; Newton solves the same problem, to the same point.
        model.opt.solver = package.mjtSolver.mjSOL_NEWTON
        model.opt.iterations = self.setup.iterations or robot.iterations
        model.opt.ls_iterations = self.setup.line_searches
        if self.setup.integrator == "euler":
            model.opt.integrator = package.mjtIntegrator.mjINT_EULER
        try:
            self.model, self.blank = mjx().put_model(model), mjx().make_data(model)
        except NotImplementedError as error:
            raise UserError(f"MJX cannot run {id} ({error}): take backend=gymnasium") from error
        self.pool, self.heavier = mass_pool(model, self.setup.masses, self.setup.spread, self.setup.variants)
        self.robot_views = RobotViews(id, robot, model, self.setup.hide, self.setup.masses)
        self.motors = models.motors(model)
        self.dt = models.control_step(robot, model)  # pyright: ignore[reportIncompatibleVariableOverride]

    def view_sizes(self) -> dict[str, int]:
        """Says so without a trace of the simulator, which would take a second."""
        return self.robot_views.sizes | {PREVIOUS_ACTION: self.motors.size}

    @property
    def options(self) -> dict[str, Any]:
        """What it was made with, where that is not the usual."""
        return self.setup.changed() | {"backend": "mjx"}

    @property
    def action(self) -> Box:
        """What the motors can do."""
        return self.motors

    @property
    def fps(self) -> int:
        """Pictures a second of a film in which every step is one."""
        return round(1.0 / self.dt)

    def _model(self, which: Array) -> Any:
        return self.model.replace(**{name: leaf[which] for name, leaf in self.pool.items()})

    def _noise(self, key: PRNGKeyArray) -> Array:
        noise = self.setup.noise
        return noise * jax.random.normal(key, (self.robot_views.shown.size,)) if noise else jnp.zeros(1)

    def begin(self, key: PRNGKeyArray) -> Inner:
        robot = ROBOTS[self.id]
        which_key, position_key, velocity_key, noise_key = jax.random.split(key, 4)
        which = jax.random.randint(which_key, (), 0, max(1, len(self.heavier)))
        draw = lambda key, n: jax.random.uniform(key, (n,), minval=-robot.noise, maxval=robot.noise)  # noqa: E731
        qpos = jnp.asarray(self.model.qpos0) + draw(position_key, self.model.nq)
        moving = robot.noise * jax.random.normal(velocity_key, (self.model.nv,))
        qvel = moving if robot.normal else draw(velocity_key, self.model.nv)
        return self.at(qpos, qvel, which, noise_key)

    def at(self, qpos: Array, qvel: Array, which: Array, key: PRNGKeyArray) -> Inner:
        """Begins at rest in this state, with nothing left of what was before."""
        with jax.default_matmul_precision(PRECISION):
            return self._at(qpos, qvel, which, key)

    def _at(self, qpos: Array, qvel: Array, which: Array, key: PRNGKeyArray) -> Inner:
        robot, model = ROBOTS[self.id], self._model(which)
        data = self.blank.replace(qpos=qpos, qvel=qvel)
        if robot.place == "centre":  # only then is anything asked for that the joints do not say
            package = mjx()
            data = package.com_vel(model, package.com_pos(model, package.kinematics(model, data)))
        physics = self._physics(model, data)._replace(qpos=qpos, qvel=qvel)
        if robot.place == "torso":
            physics = physics._replace(place=qpos[0])
        return Inner(physics, jnp.zeros_like(qvel), which, self._noise(key), jnp.zeros((), bool))

    def _physics(self, model: Any, data: Any) -> Physics:
        robot, own = ROBOTS[self.id], data._impl
        match robot.place:
            case "torso":
                place = data.xpos[1, 0]
            case "centre":
                place = jnp.dot(model.body_mass, data.xipos[:, 0]) / jnp.sum(model.body_mass)
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

    def move(self, inner: Inner, elapsed: Array, action: Array, key: PRNGKeyArray) -> tuple[Inner, Array, Array]:
        with jax.default_matmul_precision(PRECISION):
            return self._move(inner, action, key)

    def _move(self, inner: Inner, action: Array, key: PRNGKeyArray) -> tuple[Inner, Array, Array]:
        robot, model = ROBOTS[self.id], self._model(inner.which)
        start = self.blank.replace(
            qpos=inner.physics.qpos, qvel=inner.physics.qvel, qacc_warmstart=inner.warm, ctrl=action
        )
        data = substeps(model, start, robot.frame_skip, whole=bool(robot.derived))
        if robot.contact:
            data = mjx().rne_postconstraint(model, data)
        physics = self._physics(model, data)
        reward, terminated = robot.outcome(jnp, inner.physics.place, physics, action, self.dt)
        after = Inner(physics, data.qacc_warmstart, inner.which, self._noise(key), inner.diverged)
        fine = jnp.all(jnp.abs(physics.qpos) < LARGEST) & jnp.all(jnp.abs(physics.qvel) < LARGEST)  # False for NaN
        for leaf in jax.tree.leaves((physics, data.qacc_warmstart, reward)):
            fine &= jnp.all(jnp.isfinite(leaf))
        after = jax.tree.map(lambda new, old: jnp.where(fine, new, old), after, inner)
        return after._replace(diverged=~fine), jnp.where(fine, reward, 0.0), terminated | ~fine

    def views(self, inner: Inner, elapsed: Array) -> Obs:
        heavier = self.heavier[inner.which] if self.pool else jnp.zeros(0)
        return self.robot_views.views(jnp, inner.physics, heavier, inner.noise)

    def render(self, state: EnvState) -> np.ndarray:
        """Draws the robot, in its usual masses."""
        model, camera = _drawn(self.id)
        data = models.mujoco().MjData(model)
        data.qpos[:] = np.asarray(state.inner.physics.qpos)
        models.mujoco().mj_forward(model, data)
        return camera.picture(data)


_CAMERAS: dict[str, tuple[Any, Camera]] = {}


def _drawn(id: str) -> tuple[Any, Camera]:
    """Finds a model and its camera: opening one for each picture would take longer than the picture."""
    if id not in _CAMERAS:
        model = models.load(ROBOTS[id])
        _CAMERAS[id] = model, Camera(model)
    return _CAMERAS[id]
