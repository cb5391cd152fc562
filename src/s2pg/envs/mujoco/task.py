"""One task for each robot, on either backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from s2pg.envs.mujoco.device import MjxRobot
from s2pg.envs.mujoco.host import HostRobot
from s2pg.envs.mujoco.robots import ROBOTS
from s2pg.errors import UserError

BACKENDS = ("gymnasium", "mjx")
MJX_ONLY = ("iterations", "line_searches", "integrator", "variants")


def _chosen(name: str) -> str:
    """`auto` is the device where there is an accelerator, and else the host."""
    if name == "auto":
        return "gymnasium" if jax.default_backend() == "cpu" else "mjx"
    if name not in BACKENDS:
        raise UserError(f"backend must be auto, {' or '.join(BACKENDS)}, not '{name}'")
    return name


def _task(id: str) -> Callable[..., HostRobot | MjxRobot]:
    def make(
        hide: Any = "velocities",
        masses: float = 0.0,
        spread: str = "uniform",
        noise: float = 0.0,
        horizon: int = 1000,
        backend: str = "auto",
        iterations: int = 0,
        line_searches: int = 0,
        integrator: str = "",
        variants: int = 0,
    ) -> HostRobot | MjxRobot:
        shared: dict[str, Any] = {
            "hide": hide, "masses": masses, "spread": spread, "noise": noise, "horizon": horizon,
        }  # fmt: skip
        own = {
            "iterations": iterations, "line_searches": line_searches, "integrator": integrator, "variants": variants,
        }  # fmt: skip
        own = {name: value for name, value in own.items() if value}
        if _chosen(backend) == "mjx":
            return MjxRobot(id, **shared, **own)
        if own:
            raise UserError(f"option '{next(iter(own))}' of {id} is for backend=mjx")
        return HostRobot(id, **shared)

    make.__name__ = id
    make.__doc__ = f"Gymnasium's {NAMES[id]} with velocities hidden, on the host (C MuJoCo) or the device (MJX)."
    return make


NAMES = {
    "halfcheetah": "HalfCheetah-v5",
    "hopper": "Hopper-v5",
    "walker2d": "Walker2d-v5",
    "ant": "Ant-v5",
    "humanoid": "Humanoid-v5",
}
ROBOT_TASKS = {id: _task(id) for id in ROBOTS}
