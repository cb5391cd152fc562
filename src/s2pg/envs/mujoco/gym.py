"""One robot of the host behind Gymnasium's interface: `gymnasium.make("s2pg:s2pg/AntPOMDP-v0", masses=0.3)`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from s2pg.envs.mujoco import models
from s2pg.envs.mujoco.cameras import Camera, camera_of
from s2pg.envs.mujoco.host import HostRobot
from s2pg.envs.mujoco.robots import ROBOTS
from s2pg.envs.spaces import to_gymnasium
from s2pg.errors import UserError
from s2pg.types import CRITIC, POLICY


class RobotEnv(gymnasium.Env):
    """A robot that hides its velocities, say, and whose links weigh something else in each episode.

    Its `options` are those of its robot that are for the host. It shows the policy view, and the critic view in
    `info`; `views="dict"` shows both. Actions are in the motors' own units. A simulation that breaks down ends
    the episode, with `info["diverged"]` True.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, robot: str, views: str = POLICY, render_mode: str | None = None, **options: Any):
        if views not in (POLICY, "dict"):
            raise UserError(f"views must be policy or dict, not '{views}'")
        task = HostRobot(robot, ROBOTS[robot].options.read(robot, options))
        self.metadata = type(self).metadata | {"render_fps": task.fps}
        self.simulation = task.simulations(1)
        self.horizon, self.render_mode, self._dict = task.spec.horizon, render_mode, views == "dict"
        shown: dict[str, spaces.Space] = {
            name: spaces.Box(-np.inf, np.inf, (size,)) for name, size in task.robot_views.sizes.items()
        }
        self.observation_space = spaces.Dict(shown) if self._dict else shown[POLICY]
        self._motors = models.motors(task.model)
        self.action_space = to_gymnasium(self._motors)
        self._elapsed = 0
        self._camera: Camera | None = None

    def _observe(self, diverged: bool = False) -> tuple[Any, dict[str, Any]]:
        # Copies: the simulation writes into its own, and callers keep what they are given.
        policy, critic = (self.simulation.views[name][0].copy() for name in (POLICY, CRITIC))
        info = {CRITIC: critic.copy(), "diverged": diverged}
        return ({POLICY: policy, CRITIC: critic} if self._dict else policy), info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed, options=options)
        self.simulation.begin(0, self.np_random)
        self._elapsed = 0
        return self._observe()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Makes one step with an action in the motors' own units."""
        # As in the lanes that a policy is trained in: effort that no motor can make is not paid for either.
        control = self._motors.clip(np.asarray(action, np.float32), np)
        moved = self.simulation.move([0], control[None])
        self._elapsed += 1
        terminated = bool(moved.terminated[0])
        observation, info = self._observe(bool(moved.diverged[0]))
        return observation, float(moved.reward[0]), terminated, self._elapsed >= self.horizon and not terminated, info

    def render(self) -> np.ndarray | None:
        """Draws the robot, if it was made to."""
        if self.render_mode is None:
            return None
        self._camera = camera_of(self.simulation.models[0], self._camera)
        return self._camera.picture(self.simulation.data[0])

    def close(self) -> None:
        """Ends threads and camera."""
        self.simulation.close()
        if self._camera:
            self._camera.close()
            self._camera = None
