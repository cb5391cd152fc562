"""One robot of the host behind Gymnasium's interface: `gymnasium.make("s2pg:s2pg/AntPOMDP-v0", masses=0.3)`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from s2pg.envs.mujoco.cameras import Camera
from s2pg.envs.mujoco.host import HostRobot
from s2pg.errors import UserError
from s2pg.types import CRITIC, POLICY


class RobotEnv(gymnasium.Env):
    """A robot that hides its velocities, say, and whose links weigh something else in each episode.

    It shows the policy view, and the critic view in `info`; `views="dict"` shows both. Actions are in the motors'
    own units. A simulation that breaks down ends the episode, with `info["diverged"]` True.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self,
        robot: str,
        hide: Any = "velocities",
        masses: float = 0.0,
        spread: str = "uniform",
        noise: float = 0.0,
        horizon: int = 1000,
        views: str = POLICY,
        render_mode: str | None = None,
    ):
        if views not in (POLICY, "dict"):
            raise UserError(f"views must be policy or dict, not '{views}'")
        task = HostRobot(robot, hide, masses, spread, noise, horizon)
        self.metadata = type(self).metadata | {"render_fps": task.fps}
        self.simulation = task.simulations(1)
        self.horizon, self.render_mode, self._dict = horizon, render_mode, views == "dict"
        shown: dict[str, spaces.Space] = {
            name: spaces.Box(-np.inf, np.inf, (size,)) for name, size in task.sight.sizes.items()
        }
        self.observation_space = spaces.Dict(shown) if self._dict else shown[POLICY]
        self._low, self._high = task.model.actuator_ctrlrange.T.astype(np.float32)
        self.action_space = spaces.Box(self._low, self._high)
        self._elapsed = 0
        self._camera: Camera | None = None

    def _observe(self, diverged: bool = False) -> tuple[Any, dict[str, Any]]:
        # Copies: the simulation writes into its own, and callers keep what they are given.
        policy, critic = (self.simulation.views[name][0].copy() for name in (POLICY, CRITIC))
        info = {CRITIC: critic.copy(), "diverged": diverged}
        return ({POLICY: policy, CRITIC: critic} if self._dict else policy), info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.simulation.begin(0, self.np_random)
        self._elapsed = 0
        return self._observe()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        # As in the lanes that a policy is trained in: effort that no motor can make is not paid for either.
        control = np.clip(np.asarray(action, np.float32), self._low, self._high)
        moved = self.simulation.move([0], control[None])
        self._elapsed += 1
        terminated = bool(moved.terminated[0])
        observation, info = self._observe(bool(moved.diverged[0]))
        return observation, float(moved.reward[0]), terminated, self._elapsed >= self.horizon and not terminated, info

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            return None
        self._camera = self._camera or Camera(self.simulation.models[0])
        return self._camera.picture(self.simulation.data[0])

    def close(self) -> None:
        self.simulation.close()
        if self._camera:
            self._camera.close()
            self._camera = None
