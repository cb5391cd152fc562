"""One task for each robot, on any backend."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from s2pg.envs.mujoco import warp
from s2pg.envs.mujoco.device import SIMULATORS, DeviceRobot
from s2pg.envs.mujoco.host import HostRobot
from s2pg.envs.mujoco.options import CommonOptions
from s2pg.envs.mujoco.robots import ROBOTS
from s2pg.options import Option, Setting

NAMES = {
    "halfcheetah": "HalfCheetah-v5",
    "hopper": "Hopper-v5",
    "walker2d": "Walker2d-v5",
    "ant": "Ant-v5",
    "humanoid": "Humanoid-v5",
}
BACKENDS_TOLD = "It runs on the host (C MuJoCo) or on the device (MJX, MuJoCo Warp)."
# What the bodies of the imitation experiments are; Gymnasium's robots are told from their names.
ABOUT = {
    "humanoid-ages": f"""LocoMuJoCo's humanoid, its size hidden, walks or runs.

    {BACKENDS_TOLD} Episodes begin upright or in frames of a motion (demos).
    """,
    "atlas-carry": f"""LocoMuJoCo's Atlas walks with a box of hidden weight.

    {BACKENDS_TOLD} Episodes begin upright or in frames of a motion (demos).
    """,
}
ABOUT |= {
    id: f"""{name} of Gymnasium with velocities hidden.

    {BACKENDS_TOLD} Masses of links may differ from episode to episode.
    """
    for id, name in NAMES.items()
}
# What makes a robot on each; a further backend is a line here.
BACKENDS: dict[str, Callable[[str, CommonOptions], HostRobot | DeviceRobot]] = {
    "gymnasium": HostRobot,
    **{name: functools.partial(DeviceRobot, backend=name) for name in SIMULATORS},
}
AUTO = "auto"  # the device where there is an accelerator, and else the host
BACKEND = Setting(
    AUTO,
    str,
    Option(
        "gymnasium (C MuJoCo on the host), mjx (on the device), warp (on a CUDA device), or auto: the last of them that"
        " can run here",
        choices=(AUTO, *BACKENDS),
    ),
)


def best() -> str:
    """Names the fastest backend that can run here."""
    if warp.available():
        return "warp"
    return "gymnasium" if jax.default_backend() == "cpu" else "mjx"


def told_backend(robot: str, backend: str) -> str:
    """Says in a line what steps a robot, and what a user would want to know of it."""
    note = ""
    if backend == "warp":
        note = "; its kernels are compiled when they are first used, for a minute or more"
    elif backend == "mjx" and warp.on_cuda() and not warp.installed():
        note = f"; {warp.INSTALL} gives a backend several times as fast"
    return f"{robot} runs on backend={backend}{note}"


class RobotMaker:
    """Makes one robot on the backend that is asked for."""

    def __init__(self, id: str):
        self.id = self.__name__ = id
        self.__doc__ = ABOUT[id]

    def settings(self) -> dict[str, Setting]:
        """Lists what can be set."""
        return ROBOTS[self.id].options.settings() | {"backend": BACKEND}

    def __call__(self, backend: str = AUTO, **options: Any) -> HostRobot | DeviceRobot:
        """Makes the robot; values may come as text."""
        backend = BACKEND.parse(f"backend of {self.id}", backend)
        if backend == AUTO:
            backend = best()
        if backend == "warp":
            warp.require()
        return BACKENDS[backend](self.id, ROBOTS[self.id].options.read(self.id, options))


ROBOT_TASKS = {id: RobotMaker(id) for id in ROBOTS}
