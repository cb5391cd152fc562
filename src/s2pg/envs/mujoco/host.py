"""Robots in C MuJoCo on the host: all lanes of a batch at once, on as many threads as pay."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np

from s2pg.envs.host import Lanes, Outcome
from s2pg.envs.mujoco import models
from s2pg.envs.mujoco.cameras import Camera, camera_of
from s2pg.envs.mujoco.definition import LARGEST, Physics, Robot
from s2pg.envs.mujoco.options import CommonOptions
from s2pg.envs.mujoco.randomise import Variants
from s2pg.envs.mujoco.robots import ROBOTS
from s2pg.envs.mujoco.views import RobotViews, blank
from s2pg.types import POLICY, PREVIOUS_ACTION, Spec

# Handing work to a thread costs some 30 us: below this many joint-substeps it is not worth one.
PER_THREAD = 400


class Simulations:
    """N copies of a robot, each with a model of its own where episodes differ in it."""

    def __init__(self, robot: Robot, variants: Variants, robot_views: RobotViews, options: CommonOptions, count: int):
        self.robot, self.robot_views, self._options = robot, robot_views, options
        self._variants, model = variants, variants.model
        self.seconds = models.control_step(robot.frame_skip, model)
        self._mujoco = models.mujoco()
        self._find_model = [variants.lane() for _ in range(count)]
        # What tells each model from the others; to begin with those of no episode yet.
        self.hidden = np.stack([variants.draw(np.random.default_rng(0))] * count)
        self.models = [find(hidden) for find, hidden in zip(self._find_model, self.hidden, strict=True)]
        self.data = [self._mujoco.MjData(each) for each in self.models]
        bad = [getattr(self._mujoco.mjtWarning, f"mjWARN_BADQ{what}").value for what in ("POS", "VEL", "ACC")]
        self._warnings = [data.warning.number[min(bad) : max(bad) + 1] for data in self.data]
        self._physics = Physics(*(_rows(count, part) for part in blank(robot, model)))
        # Rows of these arrays, and the simulations' own: asking for either anew costs more than a copy between them.
        self._copies = [self._parts(i) for i in range(count)]
        self._motors = [data.ctrl for data in self.data]
        self.frame = np.zeros(count, int)  # steps since the first frame of a motion, where the episode began in one
        self._random = [np.random.default_rng(0)] * count
        self._broken = np.zeros(count, bool)
        self.views = {name: np.zeros((count, size), np.float32) for name, size in robot_views.sizes.items()}
        work = count * model.nv * robot.frame_skip * (4 if _is_rk4(model) else 1)
        threads = max(1, min(_cores(), count, work // PER_THREAD))
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    def _parts(self, i: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Which row of which field of `Physics` is which array of this simulation; both are views that stay valid."""
        data, physics = self.data[i], self._physics
        found = [(physics.qpos, data.qpos), (physics.qvel, data.qvel)]
        asked = {
            "contact_forces": (physics.contact, data.cfrc_ext.reshape(-1)),
            "inertia": (physics.inertia, data.cinert[1:].reshape(-1)),
            "body_velocities": (physics.body_velocity, data.cvel[1:].reshape(-1)),
            "actuator_forces": (physics.actuator, data.qfrc_actuator[6:]),
        }
        return [(rows[i], source) for rows, source in found + [asked[name] for name in self.robot.derived]]

    def _place(self, i: int) -> float:
        match self.robot.place:
            case "torso":
                return self.data[i].xpos[1, 0]
            case "centre":
                mass = self.models[i].body_mass
                return float(mass @ self.data[i].xipos[:, 0]) / float(mass.sum())
        return self._physics.qpos[i, 0]

    def _take(self, i: int) -> None:
        for row, source in self._copies[i]:
            row[:] = source
        self._physics.place[i] = self._place(i)
        # MuJoCo starts a simulation that went out of bounds anew, and says so until it is told to start one.
        self._broken[i] = any(self._warnings[i].tolist())

    def begin(self, i: int, random: np.random.Generator) -> None:
        """Begins an episode: a model, then positions and velocities around those at rest or in a motion."""
        self._random[i] = random
        self.remodel(i, self._variants.draw(random))
        self.frame[i] = random.integers(self.robot.frames) if self.robot.frames else 0
        scale, model, normal = self.robot.noise, self.models[i], self.robot.normal
        qpos, qvel = self.robot.start(np, model.qpos0, np.zeros(model.nv), self.hidden[i], self.frame[i])
        qpos = qpos + random.uniform(-scale, scale, model.nq)
        moving = scale * random.standard_normal(model.nv) if normal else random.uniform(-scale, scale, model.nv)
        self.place_at(i, qpos, qvel + moving)

    def remodel(self, i: int, hidden: np.ndarray) -> None:
        """Gives a robot the model that hidden numbers tell."""
        self.hidden[i] = hidden
        self.models[i] = self._find_model[i](hidden)

    def place_at(self, i: int, qpos: np.ndarray, qvel: np.ndarray) -> None:
        """Puts a robot at rest in this state, with nothing left of what was before."""
        data = self.data[i]
        self._mujoco.mj_resetData(self.models[i], data)
        data.qpos[:], data.qvel[:] = qpos, qvel
        self._mujoco.mj_forward(self.models[i], data)
        self._take(i)
        self._look([i])

    def _of(self, lanes: np.ndarray | list[int]) -> tuple[Any, Physics]:
        """How to index these lanes, and their physics: a view where it is all of them in turn, the usual case."""
        index = slice(None) if len(lanes) == len(self.data) else lanes
        return index, Physics(*(part[index] if len(part) else () for part in self._physics))

    def _look(self, lanes: np.ndarray | list[int]) -> None:
        index, physics = self._of(lanes)
        noise: Any = 0.0
        if self._options.noise:
            noise = np.zeros((len(lanes), self.robot_views.shown.size))
            for row, i in zip(noise, lanes, strict=True):
                row[:] = self._options.noise * self._random[i].standard_normal(row.size)
        for name, view in self.robot_views.views(np, physics, self.hidden[index], self.frame[index], noise).items():
            self.views[name][index] = view

    def _run(self, lanes: np.ndarray, controls: np.ndarray) -> None:
        step, after, skip = self._mujoco.mj_step, self._mujoco.mj_rnePostConstraint, self.robot.frame_skip
        for i, control in zip(lanes.tolist(), controls, strict=True):
            model, data = self.models[i], self.data[i]
            self._motors[i][:] = control
            step(model, data, skip)
            if self.robot.contact:  # forces of contact are not computed otherwise
                after(model, data)
            self._take(i)

    def _run_all(self, index: np.ndarray, controls: np.ndarray) -> None:
        if not self._pool or len(index) < 2:
            return self._run(index, controls)
        parts = np.array_split(np.arange(len(index)), min(self._threads, len(index)))
        others = [self._pool.submit(self._run, index[part], controls[part]) for part in parts[1:]]
        self._run(index[parts[0]], controls[parts[0]])
        for other in others:
            other.result()

    def move(self, lanes: Sequence[int], controls: np.ndarray) -> Outcome:
        """Makes one step; `controls` are in the motors' units. A simulation that breaks down stays where it was."""
        index = np.asarray(lanes)
        before = self._physics.place[index].copy()
        with models.quiet:  # a simulation that breaks down is counted, not told of
            self._run_all(index, controls)
        self.frame[index] += 1
        rows, physics = self._of(index)
        with np.errstate(invalid="ignore", over="ignore"):
            reward, terminated = self.robot.outcome(
                np, before, physics, controls, self.seconds, self.hidden[rows], self.frame[rows]
            )
            fast = np.maximum(np.abs(physics.qpos).max(-1), np.abs(physics.qvel).max(-1))
            diverged = self._broken[index] | ~(fast < LARGEST) | ~np.isfinite(reward)  # True for NaN as well
        self._look(index[~diverged])
        return Outcome(np.where(diverged, 0.0, reward), terminated | diverged, np.zeros_like(diverged), diverged)

    def close(self) -> None:
        """Ends the threads."""
        if self._pool:
            self._pool.shutdown()


def _rows(count: int, part: Any) -> Any:
    return () if isinstance(part, tuple) else np.zeros((count, *part.shape))


def _cores() -> int:
    """Those that this process may use, where the system says."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _is_rk4(model: Any) -> bool:
    return model.opt.integrator == models.mujoco().mjtIntegrator.mjINT_RK4


class HostRobot:
    """A robot on the host: C MuJoCo, all cores."""

    def __init__(self, id: str, options: CommonOptions | None = None):
        self.id, self.setup = id, options or ROBOTS[id].options()
        self.setup.check(id, "gymnasium")
        self._robot = ROBOTS[id].configured(self.setup)
        self.variants = self._robot.variants(self.setup)
        self.model = self.variants.model
        self.robot_views = RobotViews(id, self._robot, self.model, self.setup.hide, self.variants.size)
        sizes, motors = self.robot_views.sizes | {PREVIOUS_ACTION: self.model.nu}, models.motors(self.model)
        self.spec = Spec(sizes, motors, self.setup.horizon, models.control_step(self._robot.frame_skip, self.model))

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"HostRobot({self.id!r}, {options})"

    @property
    def options(self) -> dict[str, Any]:
        """What it was made with, where that is not the usual."""
        return self.setup.changed() | {"backend": "gymnasium"}

    @property
    def fps(self) -> int:
        """Pictures a second of a film in which every step is one."""
        return round(1.0 / self.spec.dt)

    def read(self, observation: Any) -> dict[str, np.ndarray]:
        """Shows an observation as views: they come as such."""
        return dict(observation) if isinstance(observation, dict) else {POLICY: observation}

    def simulations(self, count: int) -> Simulations:
        """Makes so many of them."""
        return Simulations(self._robot, self.variants, self.robot_views, self.setup, count)

    def lanes(self, seeds: Sequence[int], lanes: int, stream: int = 0, render: bool = False) -> RobotLanes:
        """Makes `lanes` robots for each seed; another `stream` gives other episodes, as for evaluation."""
        return RobotLanes(self.simulations(len(seeds) * lanes), self.spec, seeds, lanes, stream)


class RobotLanes(Lanes):
    """Robots side by side on the host."""

    breaks: ClassVar[bool] = True

    def __init__(self, simulations: Simulations, spec: Spec, seeds: Sequence[int], lanes: int, stream: int):
        super().__init__(spec, seeds, lanes, stream)
        self.simulations = simulations
        self._obs |= simulations.views  # written in place there
        self._camera: Camera | None = None

    def _open(self, i: int, seed: int) -> None:
        self.simulations.begin(i, np.random.default_rng(seed))

    def _move(self, lanes: Sequence[int], actions: np.ndarray) -> Outcome:
        moved = self.simulations.move(lanes, self._space.execute(actions, np))
        late = [len(self._taken[i]) + 1 >= self.horizon for i in lanes]
        return moved._replace(truncated=late & ~np.asarray(moved.terminated)) if any(late) else moved

    def render(self, lane: int = 0) -> np.ndarray:
        """Draws a lane, counted through all seeds."""
        self._camera = camera_of(self.simulations.models[lane], self._camera)
        return self._camera.picture(self.simulations.data[lane])

    def close(self) -> None:
        """Ends threads and camera."""
        self.simulations.close()
        if self._camera:
            self._camera.close()
