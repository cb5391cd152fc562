"""Robots in MJX on the device: thousands of environments inside one compiled function."""

# No postponed annotations here: Equinox knows an AbstractVar only by its value, not by its name.
import contextlib
import inspect
import io
import sys
import threading
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from s2pg.envs.base import Env, EnvState
from s2pg.envs.mujoco import models
from s2pg.envs.mujoco.cameras import Camera
from s2pg.envs.mujoco.contacts import as_in_c
from s2pg.envs.mujoco.robots import LARGEST, ROBOTS, Physics
from s2pg.envs.mujoco.views import RobotViews
from s2pg.errors import UserError
from s2pg.types import PREVIOUS_ACTION, Box, Obs, Spec

# What MuJoCo derives from masses and inertias, on the C side only: MJX takes it as given.
WEIGHED = (
    "body_mass", "body_subtreemass", "body_inertia", "body_invweight0", "dof_invweight0", "tendon_invweight0", "dof_M0",
    "actuator_acc0",
)  # fmt: skip
INTEGRATORS = ("model", "euler")
# Recent GPUs round the factors of matrix products to ten bits unless one asks; physics is in full single precision.
PRECISION = "highest"
_IMPORTING = threading.Lock()


def mjx() -> Any:
    """The package, or one line on what to do instead."""
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
    noise: float = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    _given: tuple = eqx.field(static=True)
    sight: RobotViews = eqx.field(static=True)
    seconds: float = eqx.field(static=True)
    motors: Box
    model: Any
    blank: Any
    pool: dict[str, Array]  # what differs between models of other masses
    heavier: Array  # by how much the links of each are

    def __init__(
        self,
        id: str,
        hide: Any = "velocities",
        masses: float = 0.0,
        spread: str = "uniform",
        noise: float = 0.0,
        horizon: int = 1000,
        iterations: int = 0,  # of Newton's method, which converges in few here; 0: as many as the robot needs
        line_searches: int = 4,
        integrator: str = "model",
        variants: int = 1024,  # how many models of other masses there are to draw from
    ):
        robot, package = ROBOTS[id], models.mujoco()
        counts = {"horizon": horizon, "line_searches": line_searches, "variants": variants, "iterations": iterations}
        models.check(masses, spread, noise, **counts | {"iterations": iterations or robot.iterations})
        if integrator not in INTEGRATORS:
            raise UserError(f"integrator must be {' or '.join(INTEGRATORS)}, not '{integrator}'")
        hide = tuple(hide) if isinstance(hide, list) else hide
        given = {"hide": hide, "masses": masses, "spread": spread, "noise": noise, "integrator": integrator} | counts
        usual = inspect.signature(MjxRobot.__init__).parameters
        self._given = tuple((name, value) for name, value in given.items() if value != usual[name].default)
        self.id, self.noise, self.horizon = id, noise, horizon
        model = models.load(robot)
        # PGS, which Humanoid asks for, is not in MJX; Newton solves the same problem, to the same point.
        model.opt.solver = package.mjtSolver.mjSOL_NEWTON
        model.opt.iterations, model.opt.ls_iterations = iterations or robot.iterations, line_searches
        if integrator == "euler":
            model.opt.integrator = package.mjtIntegrator.mjINT_EULER
        try:
            self.model, self.blank = mjx().put_model(model), mjx().make_data(model)
        except NotImplementedError as error:
            raise UserError(f"MJX cannot run {id} ({error}): take backend=gymnasium") from error
        self.pool, self.heavier = _pool(model, masses, spread, variants)
        self.sight = RobotViews(id, robot, model, hide, masses)
        low, high = model.actuator_ctrlrange.T.astype(np.float32)
        self.motors = Box(tuple(map(float, low)), tuple(map(float, high)), (model.nu,))
        self.seconds = float(model.opt.timestep) * robot.frame_skip

    @property
    def spec(self) -> Spec:
        """Known without a trace of the simulator, which would take a second."""
        return Spec(self.sight.sizes | {PREVIOUS_ACTION: self.motors.size}, self.motors, self.horizon, self.seconds)

    @property
    def options(self) -> dict[str, Any]:
        """What it was made with, where that is not the usual."""
        return dict(self._given) | {"backend": "mjx"}

    @property
    def action(self) -> Box:
        return self.motors

    @property
    def fps(self) -> int:
        return round(1.0 / self.seconds)

    def _model(self, which: Array) -> Any:
        return self.model.replace(**{name: leaf[which] for name, leaf in self.pool.items()})

    def _noise(self, key: PRNGKeyArray) -> Array:
        shape = (self.sight.shown.size,) if self.noise else (1,)
        return self.noise * jax.random.normal(key, shape) if self.noise else jnp.zeros(shape)

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
        """At rest in this state, with nothing left of what was before."""
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
        reward, terminated = robot.outcome(jnp, inner.physics.place, physics, action, self.seconds)
        after = Inner(physics, data.qacc_warmstart, inner.which, self._noise(key), inner.diverged)
        fine = jnp.all(jnp.abs(physics.qpos) < LARGEST) & jnp.all(jnp.abs(physics.qvel) < LARGEST)  # False for NaN
        for leaf in jax.tree.leaves((physics, data.qacc_warmstart, reward)):
            fine &= jnp.all(jnp.isfinite(leaf))
        after = jax.tree.map(lambda new, old: jnp.where(fine, new, old), after, inner)
        return after._replace(diverged=~fine), jnp.where(fine, reward, 0.0), terminated | ~fine

    def broke(self, inner: Inner) -> Array:
        return inner.diverged

    def views(self, inner: Inner, elapsed: Array) -> Obs:
        heavier = self.heavier[inner.which] if self.pool else jnp.zeros(0)
        return self.sight.views(jnp, inner.physics, heavier, inner.noise)

    def render(self, state: EnvState) -> np.ndarray:
        model, camera = _drawn(self.id)
        data = models.mujoco().MjData(model)
        data.qpos[:] = np.asarray(state.inner.physics.qpos)
        models.mujoco().mj_forward(model, data)
        return camera.picture(data)


_CAMERAS: dict[str, tuple[Any, Camera]] = {}


def _drawn(id: str) -> tuple[Any, Camera]:
    """A model and its camera: opening one for each picture would take longer than the picture."""
    if id not in _CAMERAS:
        model = models.load(ROBOTS[id])
        _CAMERAS[id] = model, Camera(model)
    return _CAMERAS[id]


def _pool(model: Any, masses: float, spread: str, variants: int) -> tuple[dict[str, Array], Array]:
    """The parts of so many models that differ with their masses, and by how much each link is heavier."""
    if not masses:
        return {}, jnp.zeros((0, 0))
    random, weighed = np.random.default_rng(0), models.MassScaler(model)
    heavier = np.stack([models.draw(model.nbody - 1, masses, spread, random) for _ in range(variants)])
    parts: dict[str, list[np.ndarray]] = {name: [] for name in WEIGHED}
    for each in heavier:
        now = weighed.weigh(each)
        for name, kept in parts.items():
            kept.append(getattr(now, name).copy())
    pool = {name: jnp.asarray(np.stack(kept), jnp.float32) for name, kept in parts.items()}
    return pool, jnp.asarray(heavier, jnp.float32)


def substeps(model: Any, data: Any, count: int, whole: bool) -> Any:
    """So many steps of the simulator; `whole` keeps all that the last one looked at, not just the state."""
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
    """A Runge-Kutta step in one loop of four turns: MJX's own writes the forward pass out, to be compiled again."""
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
    """Positions after moving at a constant velocity; a free joint, which comes first if at all, has a quaternion."""
    if model.nq == model.nv:
        return qpos + seconds * qvel
    angle = seconds * qvel[3:6]
    size = jnp.sqrt(jnp.maximum(jnp.sum(angle**2), 1e-24))
    turn = jnp.concatenate([jnp.cos(size / 2)[None], jnp.sin(size / 2) * angle / size])
    (a, b), (u, v) = (qpos[3], qpos[4:7]), (turn[0], turn[1:])
    quaternion = jnp.concatenate([(a * u - jnp.dot(b, v))[None], a * v + u * b + jnp.cross(b, v)])
    quaternion = quaternion / jnp.linalg.norm(quaternion)
    return jnp.concatenate([qpos[:3] + seconds * qvel[:3], quaternion, qpos[7:] + seconds * qvel[6:]])
