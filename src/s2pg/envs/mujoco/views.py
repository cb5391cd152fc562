"""What a policy sees of a robot, and what only a critic does."""

from __future__ import annotations

from typing import Any

import numpy as np

from s2pg.envs.mujoco.definition import VELOCITIES, Physics, Robot
from s2pg.errors import UserError, unknown
from s2pg.types import CRITIC, POLICY

NOTHING = "none"


class RobotViews:
    """The views of a robot: `policy` without what is hidden, `critic` with everything and what episodes differ in.

    `hide` names groups of the observation or its entries, one or several: "velocities", "positions,3,4", (0, 1).
    """

    def __init__(self, name: str, robot: Robot, model: Any, hide: Any, hidden: int):
        self.robot = robot
        self.privileged = robot.privileged(np, np.zeros(hidden), np.zeros((), int)).shape[-1]
        shown = robot.groups(np, blank(robot, model))
        self.groups = {group: part.shape[-1] for group, part in shown.items()}
        self.full = sum(self.groups.values())
        unseen = _entries(name, robot, self.groups, hide)
        self.shown = np.setdiff1d(np.arange(self.full), unseen)
        if not self.shown.size:
            raise UserError(f"hide={hide} leaves nothing of {name} to see")

    @property
    def sizes(self) -> dict[str, int]:
        """The length of each view."""
        return {POLICY: self.shown.size, CRITIC: self.full + self.privileged}

    def views(self, xp: Any, physics: Physics, hidden: Any, frame: Any, noise: Any) -> dict[str, Any]:
        """Shows both; `hidden` tells the episode's model, `noise` is added to what the policy sees."""
        seen = xp.concatenate(list(self.robot.groups(xp, physics).values()), axis=-1)
        full = xp.concatenate([seen, self.robot.privileged(xp, hidden, frame)], axis=-1) if self.privileged else seen
        return {POLICY: seen[..., self.shown] + noise, CRITIC: full}


def blank(robot: Robot, model: Any) -> Physics:
    """Zeros in the shape of what the robot asks of a simulation."""
    size = {
        "contact_forces": model.nbody * 6,
        "inertia": (model.nbody - 1) * 10,
        "body_velocities": (model.nbody - 1) * 6,
        "actuator_forces": model.nv - 6,
    }
    zeros = {name: np.zeros(size[name]) for name in robot.derived}
    return Physics(
        np.zeros(model.nq),
        np.zeros(model.nv),
        np.zeros(()),
        contact=zeros.get("contact_forces", ()),
        inertia=zeros.get("inertia", ()),
        body_velocity=zeros.get("body_velocities", ()),
        actuator=zeros.get("actuator_forces", ()),
    )


def _entries(name: str, robot: Robot, groups: dict[str, int], hide: Any) -> list[int]:
    """The hidden entries, by index."""
    starts = dict(zip(groups, np.cumsum([0, *groups.values()]), strict=False))
    full, hidden = sum(groups.values()), []
    parts = hide.split(",") if isinstance(hide, str) else hide if isinstance(hide, tuple | list) else (hide,)
    for part in parts:
        text = str(part).strip()
        if text in ("", NOTHING):
            continue
        if text.isdigit():
            if int(text) >= full:
                raise UserError(f"cannot hide entry {text} of {name}: it has entries 0 to {full - 1}")
            hidden.append(int(text))
            continue
        if text not in groups:
            raise unknown(f"group to hide of {name}", text, [*groups, NOTHING])
        for each in (text, *(robot.with_velocities if text == VELOCITIES else ())):
            hidden += range(starts[each], starts[each] + groups[each])
    return hidden
