"""Pictures of a robot, drawn without a screen."""

from __future__ import annotations

from typing import Any

import numpy as np

from s2pg.envs.mujoco.models import mujoco
from s2pg.errors import UserError

WIDTH, HEIGHT = 480, 360


class Camera:
    """Follows the robot of one model, as its file says."""

    def __init__(self, model: Any):
        self.model = model
        try:
            self._renderer = mujoco().Renderer(model, HEIGHT, WIDTH)
        except Exception as error:  # each of MuJoCo's three backends has errors of its own
            raise UserError(f"cannot draw: {error} (MUJOCO_GL=egl or osmesa draws without a screen)") from error

    def picture(self, data: Any) -> np.ndarray:
        """Draws the robot of a simulation."""
        self._renderer.update_scene(data, camera="track")
        return self._renderer.render().copy()

    def close(self) -> None:
        """Frees the renderer."""
        self._renderer.close()


def camera_of(model: Any, before: Camera | None) -> Camera:
    """Finds the camera of a model: the one before, if that is its own; opening another takes longer than a picture."""
    if before and before.model is model:
        return before
    if before:
        before.close()
    return Camera(model)
