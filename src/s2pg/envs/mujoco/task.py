"""One task for each robot, on any backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from s2pg.envs.mujoco.device import MjxRobot
from s2pg.envs.mujoco.host import HostRobot
from s2pg.envs.mujoco.options import RobotOptions
from s2pg.envs.mujoco.robots import ROBOTS
from s2pg.options import Option, Setting

NAMES = {
    "halfcheetah": "HalfCheetah-v5",
    "hopper": "Hopper-v5",
    "walker2d": "Walker2d-v5",
    "ant": "Ant-v5",
    "humanoid": "Humanoid-v5",
}
# What makes a robot on each; a further backend is a line here.
BACKENDS: dict[str, Callable[[str, RobotOptions], HostRobot | MjxRobot]] = {"gymnasium": HostRobot, "mjx": MjxRobot}
AUTO = "auto"  # the device where there is an accelerator, and else the host
BACKEND = Setting(
    AUTO,
    str,
    Option(
        "gymnasium (C MuJoCo on the host), mjx (on the device), or auto: mjx where there is an accelerator",
        choices=(AUTO, *BACKENDS),
    ),
)


class RobotMaker:
    """Makes one robot on the backend that is asked for."""

    def __init__(self, id: str):
        self.id = self.__name__ = id
        self.__doc__ = f"""{NAMES[id]} of Gymnasium with velocities hidden.

        It runs on the host (C MuJoCo) or on the device (MJX). Masses of links may differ from episode to episode.
        """

    def settings(self) -> dict[str, Setting]:
        """Lists what can be set."""
        return RobotOptions.settings() | {"backend": BACKEND}

    def __call__(self, backend: str = AUTO, **options: Any) -> HostRobot | MjxRobot:
        """Makes the robot; values may come as text."""
        backend = BACKEND.parse(f"backend of {self.id}", backend)
        if backend == AUTO:
            backend = "gymnasium" if jax.default_backend() == "cpu" else "mjx"
        return BACKENDS[backend](self.id, RobotOptions.read(self.id, options))


ROBOT_TASKS = {id: RobotMaker(id) for id in ROBOTS}
