"""Clips of motion: where the joints of a body are and how fast they move, without actions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from s2pg.columns import check_dt, find, matrix, numbers
from s2pg.errors import UserError


def speeds(width: int) -> int:
    """Counts the velocities of a joint with so many positions: a quaternion has one number more than its rate."""
    return width - 1 if width in (4, 7) else width


@dataclasses.dataclass(frozen=True, eq=False)
class Clip:
    """One motion, frame by frame, in SI units and radians.

    Most joints have one column. `widths` says how many positions each one has, where some are balls (4) or free (7);
    those have one velocity less.
    """

    dt: float | None  # seconds between two frames
    joints: tuple[str, ...]
    positions: np.ndarray  # [frames, columns]
    velocities: np.ndarray
    hidden: np.ndarray | None = None  # [frames, k]: size, weight, what else is not in the motion
    widths: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        put = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731
        for name in ("positions", "velocities", "hidden"):
            given = getattr(self, name)
            put(name, None if given is None else numbers(f"{name} of a clip", given, float))
        put("widths", self.widths or (1,) * len(self.joints))
        if not len(self.positions):
            raise UserError("a clip has no frames")
        tables = (("positions", self.positions), ("velocities", self.velocities), ("hidden", self.hidden))
        for name, values in tables:
            if values is not None:
                matrix(f"{name} of a clip", values, self.frames)
        wanted = (sum(self.widths), sum(map(speeds, self.widths)))
        for (name, values), columns in zip(tables, wanted, strict=False):
            if values is not None and values.shape[1] != columns:
                joints = f"{len(self.joints)} joints make {columns}"
                raise UserError(f"{name} of a clip have {values.shape[1]} columns, and {joints}")
        check_dt(self.dt)

    @property
    def frames(self) -> int:
        """Counts the moments that it shows."""
        return len(self.positions)

    def order(self, names: Sequence[str]) -> Clip:
        """Puts columns in the order of these joints; others are left out."""
        at = find("joint", names, self.joints)
        positions = _blocks(self.widths, at)
        velocities = _blocks([speeds(width) for width in self.widths], at)
        return dataclasses.replace(
            self, joints=tuple(names), positions=self.positions[:, positions],
            velocities=self.velocities[:, velocities], widths=tuple(self.widths[i] for i in at),
        )  # fmt: skip


def _blocks(widths: Sequence[int], at: Sequence[int]) -> list[int]:
    """The columns of these joints, one joint after the other."""
    starts = np.cumsum([0, *widths])
    return [column for i in at for column in range(int(starts[i]), int(starts[i + 1]))]
