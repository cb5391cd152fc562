"""Robots on the device: thousands of environments inside one compiled function."""

# No postponed annotations here: Equinox knows an AbstractVar only by its value, not by its name.
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from s2pg.envs.base import Env, EnvState
from s2pg.envs.mujoco import models
from s2pg.envs.mujoco.cameras import Camera, camera_of
from s2pg.envs.mujoco.definition import LARGEST, Physics, Robot
from s2pg.envs.mujoco.mjx import MjxSimulator, Start
from s2pg.envs.mujoco.options import CommonOptions
from s2pg.envs.mujoco.randomise import Variants
from s2pg.envs.mujoco.robots import ROBOTS
from s2pg.envs.mujoco.views import RobotViews
from s2pg.envs.mujoco.warp import WarpSimulator
from s2pg.types import PREVIOUS_ACTION, Box, Obs

# What steps a robot on the device, by the name of its backend.
SIMULATORS = {"mjx": MjxSimulator, "warp": WarpSimulator}


class Inner(NamedTuple):
    """A simulation between two steps."""

    physics: Physics
    warm: Array  # the accelerations that the solver starts from
    which: Array  # of the pool of models
    noise: Array  # on what the policy sees now
    diverged: Array
    overflowed: Any = ()  # whether a contact found no room in the last step, where that can be
    frame: Any = ()  # of the motion that the episode began in, where it began in one


class DeviceRobot(Env):
    """A robot on the device, in float32: its task, on top of a simulator that steps it."""

    stagger: ClassVar[bool] = True

    id: str = eqx.field(static=True)
    setup: CommonOptions = eqx.field(static=True)
    backend: str = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    dt: float = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride]
    divides: bool = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride]
    robot: Robot = eqx.field(static=True)
    variants: Variants = eqx.field(static=True)
    robot_views: RobotViews = eqx.field(static=True)
    motors: Box
    simulator: MjxSimulator | WarpSimulator
    pool: dict[str, Array]  # what differs between the models of its variants
    hidden: Array  # what tells each of them

    def __init__(self, id: str, options: CommonOptions | None = None, backend: str = "mjx"):
        self.id, self.setup, self.backend = id, options or ROBOTS[id].options(), backend
        self.setup.check(id, backend)
        self.horizon = self.setup.horizon
        self.robot = robot = ROBOTS[id].configured(self.setup)
        self.variants = robot.variants(self.setup)
        package, model = models.mujoco(), self.variants.model
        # PGS, which Humanoid asks for, is in C alone; Newton solves the same problem, to the same point.
        model.opt.solver = package.mjtSolver.mjSOL_NEWTON
        model.opt.iterations = self.setup.iterations or robot.iterations
        model.opt.ls_iterations = self.setup.line_searches
        if self.setup.integrator == "euler":
            model.opt.integrator = package.mjtIntegrator.mjINT_EULER
        self.simulator = SIMULATORS[backend](id, model, self.setup)
        self.divides = self.simulator.divides  # pyright: ignore[reportIncompatibleVariableOverride]
        self.pool, self.hidden = self.variants.pool(self.simulator.model)
        self.robot_views = RobotViews(id, robot, model, self.setup.hide, self.variants.size)
        self.motors = models.motors(model)
        self.dt = models.control_step(robot.frame_skip, model)  # pyright: ignore[reportIncompatibleVariableOverride]

    def view_sizes(self) -> dict[str, int]:
        """Says so without a trace of the simulator, which would take a second."""
        return self.robot_views.sizes | {PREVIOUS_ACTION: self.motors.size}

    @property
    def options(self) -> dict[str, Any]:
        """What it was made with, where that is not the usual."""
        return self.setup.changed() | {"backend": self.backend}

    @property
    def action(self) -> Box:
        """What the motors can do."""
        return self.motors

    @property
    def fps(self) -> int:
        """Pictures a second of a film in which every step is one."""
        return round(1.0 / self.dt)

    def prepare(self) -> None:
        """Compiles what the simulator compiles by itself."""
        self.simulator.prepare()

    def _weights(self, which: Array) -> dict[str, Array]:
        return {name: leaf[which] for name, leaf in self.pool.items()}

    def _frame(self, inner: Inner, elapsed: Array) -> Array:
        return inner.frame + elapsed if self.robot.frames else elapsed

    def _noise(self, key: PRNGKeyArray) -> Array:
        noise = self.setup.noise
        return noise * jax.random.normal(key, (self.robot_views.shown.size,)) if noise else jnp.zeros(1)

    def begin(self, key: PRNGKeyArray) -> Inner:
        robot, model = self.robot, self.simulator.model
        which_key, position_key, velocity_key, noise_key = jax.random.split(key, 4)
        which = jax.random.randint(which_key, (), 0, len(self.hidden))
        frame: Any = ()
        if robot.frames:
            frame = jax.random.randint(jax.random.fold_in(which_key, 1), (), 0, robot.frames)
        draw = lambda key, n: jax.random.uniform(key, (n,), minval=-robot.noise, maxval=robot.noise)  # noqa: E731
        still = jnp.asarray(model.qpos0), jnp.zeros(model.nv)
        qpos, qvel = robot.start(jnp, *still, self.hidden[which], frame)
        moving = robot.noise * jax.random.normal(velocity_key, (model.nv,))
        qvel = qvel + (moving if robot.normal else draw(velocity_key, model.nv))
        return self.at(qpos + draw(position_key, model.nq), qvel, which, noise_key, frame)

    def at(self, qpos: Array, qvel: Array, which: Array, key: PRNGKeyArray, frame: Any = ()) -> Inner:
        """Begins at rest in this state, with nothing left of what was before."""
        physics, false = self.simulator.rest(self._weights(which), qpos, qvel), jnp.zeros((), bool)
        overflowed = false if self.simulator.overflows else ()
        return Inner(physics, jnp.zeros_like(qvel), which, self._noise(key), false, overflowed, frame)

    def move(self, inner: Inner, elapsed: Array, action: Array, key: PRNGKeyArray) -> tuple[Inner, Array, Array]:
        start = Start(inner.physics.qpos, inner.physics.qvel, inner.warm, action)
        physics, warm, overflowed = self.simulator.move(self._weights(inner.which), start)
        hidden, frame = self.hidden[inner.which], self._frame(inner, elapsed + 1)
        before = inner.physics.place
        reward, terminated = self.robot.outcome(jnp, before, physics, action, self.dt, hidden, frame)
        fine = jnp.all(jnp.abs(physics.qpos) < LARGEST) & jnp.all(jnp.abs(physics.qvel) < LARGEST)  # False for NaN
        for leaf in jax.tree.leaves((physics, warm, reward)):
            fine &= jnp.all(jnp.isfinite(leaf))
        after = inner._replace(physics=physics, warm=warm, noise=self._noise(key))
        after = jax.tree.map(lambda new, old: jnp.where(fine, new, old), after, inner)
        after = after._replace(diverged=~fine, overflowed=overflowed)
        return after, jnp.where(fine, reward, 0.0), terminated | ~fine

    def views(self, inner: Inner, elapsed: Array) -> Obs:
        hidden, frame = self.hidden[inner.which], self._frame(inner, elapsed)
        return self.robot_views.views(jnp, inner.physics, hidden, frame, inner.noise)

    def render(self, state: EnvState) -> np.ndarray:
        """Draws the robot: at its size, but in its usual masses."""
        model = self.variants.drawn(state.inner.which)
        _CAMERAS[self.id] = camera = camera_of(model, _CAMERAS.get(self.id))
        data = models.mujoco().MjData(model)
        data.qpos[:] = np.asarray(state.inner.physics.qpos)
        models.mujoco().mj_forward(model, data)
        return camera.picture(data)


_CAMERAS: dict[str, Camera] = {}
