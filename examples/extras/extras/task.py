"""A task of one's own, from a function: Gymnasium's pendulum without its velocity."""

from __future__ import annotations

from typing import Annotated

from s2pg.envs.gymnasium import GymTask
from s2pg.options import Option


def blind_pendulum(
    horizon: Annotated[int, Option("steps after which an episode is cut", low=1)] = 100,
) -> GymTask:
    """Gymnasium's pendulum, velocity hidden, in short episodes."""
    return GymTask("Pendulum-v1", hide=(2,), horizon=horizon)
