"""MuJoCo models of the robots, and copies of them whose links weigh more or less."""

from __future__ import annotations

import copy
import os
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from s2pg.envs.mujoco.robots import Robot
from s2pg.errors import UserError

# How a link's mass differs from the model's, as a share of it.
SPREADS = ("uniform", "three")


def mujoco() -> Any:
    """The package, or one line on how to get it."""
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


def load(robot: Robot) -> Any:
    """The robot's own model from Gymnasium's assets."""
    path = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / robot.xml
    with quiet:  # one of the models uses a setting that MuJoCo calls outdated
        return mujoco().MjModel.from_xml_path(str(path))


def check(masses: float, spread: str, noise: float, **counts: int) -> None:
    """Refuses what no simulation could be made with."""
    if spread not in SPREADS:
        raise UserError(f"spread must be {' or '.join(SPREADS)}, not '{spread}'")
    if not 0.0 <= masses < 1.0:
        raise UserError(f"masses={masses:g} would make a mass non-positive: it must be 0 or more and below 1")
    if noise < 0.0:
        raise UserError(f"noise must be 0 or more, not {noise:g}")
    for name, count in counts.items():
        if count < 1:
            raise UserError(f"{name} must be 1 or more, not {count}")


def draw(links: int, masses: float, spread: str, random: np.random.Generator) -> np.ndarray:
    """How much heavier each link is: uniform within +-masses, or one of -masses, 0 and +masses (the authors' way)."""
    if spread == "three":
        return masses * random.integers(-1, 2, links).astype(float)
    return random.uniform(-masses, masses, links)


class MassScaler:
    """A model whose links can be weighed anew, over and over, without rounding piling up."""

    def __init__(self, model: Any):
        self.model = copy.copy(model)
        self._mass, self._inertia = model.body_mass.copy(), model.body_inertia.copy()
        self._scratch = mujoco().MjData(self.model)

    def weigh(self, heavier: np.ndarray) -> Any:
        """The model with masses and inertias of its links (the world is none) times 1 + `heavier`.

        A link of the same shape and another density: its inertia grows with its mass.
        """
        scale = np.concatenate([[1.0], 1.0 + heavier])
        self.model.body_mass[:] = self._mass * scale
        self.model.body_inertia[:] = self._inertia * scale[:, None]
        mujoco().mj_setConst(self.model, self._scratch)
        return self.model
