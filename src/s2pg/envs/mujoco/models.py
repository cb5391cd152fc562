"""MuJoCo itself, and its models of the robots."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium

from s2pg.envs.spaces import box
from s2pg.errors import UserError
from s2pg.types import Box


def mujoco() -> ModuleType:
    """Imports the package, or says in one line how to get it."""
    if there := sys.modules.get("mujoco"):  # asked for in every step
        return there
    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        os.environ.setdefault("MUJOCO_GL", "egl")  # read at the first import; pictures need it where there is no screen
    try:
        import mujoco as package
    except ImportError as error:
        raise UserError(f"MuJoCo is missing ({error}): pip install 'mujoco==3.17.0'") from None
    return package


class _Quiet:
    """Without MuJoCo's warnings, which it would also write to a log file where the user works; threads may share it."""

    def __init__(self) -> None:
        self._lock, self._inside, self._before = threading.Lock(), 0, None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = mujoco().get_mju_user_warning()
                mujoco().set_mju_user_warning(lambda text: None)
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                mujoco().set_mju_user_warning(self._before)


quiet = _Quiet()


def load(file: str) -> Any:
    """Loads a robot's model from Gymnasium's assets."""
    path = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / file
    with quiet:  # one of the models uses a setting that MuJoCo calls outdated
        return mujoco().MjModel.from_xml_path(str(path))


def motors(model: Any) -> Box:
    """Makes the space of actions of a robot, in its motors' own units."""
    low, high = model.actuator_ctrlrange.T
    return box(low, high, (model.nu,))


def control_step(frame_skip: int, model: Any) -> float:
    """Tells how many seconds lie between two decisions."""
    return float(model.opt.timestep) * frame_skip
