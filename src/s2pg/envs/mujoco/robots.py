"""The robots by name, and the five of Gymnasium's v5 suite: their rewards, starts and falls, once for all backends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from s2pg.envs.mujoco import models
from s2pg.envs.mujoco.bodies import BODIES
from s2pg.envs.mujoco.definition import (
    ACTUATORS,
    BODY_VELOCITIES,
    CONTACTS,
    INERTIA,
    POSITIONS,
    VELOCITIES,
    Physics,
    Robot,
)
from s2pg.envs.mujoco.options import RobotOptions
from s2pg.envs.mujoco.randomise import Masses, Table, Variants


def _always(xp: Any, physics: Physics) -> Any:
    return xp.ones_like(physics.qpos[..., 0], dtype=bool)


@dataclass(frozen=True)
class GymRobot(Robot):
    """A robot of Gymnasium's; its rewards are forward + alive - control - contact."""

    options: ClassVar[type[RobotOptions]] = RobotOptions

    xml: str = ""  # among Gymnasium's assets
    healthy: Callable[[Any, Physics], Any] = _always
    ends: bool = True  # whether an unhealthy state is the end
    forward: float = 1.0
    alive: float = 1.0
    control: float = 1e-3
    contact_most: float = float("inf")  # the cost of contacts is at most this
    contact_clip: float = float("inf")  # forces are clipped to this, for the cost and for the eye
    velocity_clip: float = float("inf")

    def variants(self, options: RobotOptions) -> Variants:
        """Makes the one model there is, or those whose links weigh something else."""
        model = models.load(self.xml)
        return Masses(model, options.masses, options.spread, options.variants) if options.masses else Table([model])

    def configured(self, options: RobotOptions) -> Robot:
        """Is what it is: options change its models and views alone."""
        return self

    @property
    def frames(self) -> int:
        """Episodes begin at rest."""
        return 0

    def start(self, xp: Any, qpos: Any, qvel: Any, hidden: Any, frame: Any) -> tuple[Any, Any]:
        """Begins at rest."""
        return qpos, qvel

    def privileged(self, xp: Any, hidden: Any, frame: Any) -> Any:
        """Shows the masses."""
        return hidden

    def groups(self, xp: Any, physics: Physics) -> dict[str, Any]:
        """The observation in Gymnasium's order, group by group."""
        seen = {
            POSITIONS: physics.qpos[..., self.skipped :],
            VELOCITIES: _clip(xp, physics.qvel, self.velocity_clip),
        }
        for name in self.derived:
            match name:
                case "contact_forces":  # the world's are left out
                    seen[name] = self._forces(xp, physics)[..., 6:]
                case "inertia":
                    seen[name] = physics.inertia
                case "body_velocities":
                    seen[name] = physics.body_velocity
                case "actuator_forces":
                    seen[name] = physics.actuator
        return seen

    def _forces(self, xp: Any, physics: Physics) -> Any:
        return _clip(xp, physics.contact, self.contact_clip)

    def outcome(
        self, xp: Any, before: Any, after: Physics, action: Any, seconds: float, hidden: Any, frame: Any
    ) -> tuple[Any, Any]:
        """(reward, terminated) of a step."""
        healthy = self.healthy(xp, after)
        earned = self.forward * (after.place - before) / seconds + self.alive * healthy
        cost = self.control * xp.sum(action * action, axis=-1)
        if self.contact:
            forces = self._forces(xp, after)
            cost = cost + xp.minimum(self.contact * xp.sum(forces * forces, axis=-1), self.contact_most)
        return earned - cost, ~healthy if self.ends else xp.zeros_like(healthy)


def _clip(xp: Any, x: Any, most: float) -> Any:
    return x if most == float("inf") else xp.clip(x, -most, most)


def _hopping(xp: Any, physics: Physics) -> Any:
    state = xp.concatenate([physics.qpos[..., 2:], physics.qvel], axis=-1)
    upright = (physics.qpos[..., 1] > 0.7) & (abs(physics.qpos[..., 2]) < 0.2)
    return upright & xp.all(abs(state) < 100.0, axis=-1)


def _walking(xp: Any, physics: Physics) -> Any:
    height, tilt = physics.qpos[..., 1], physics.qpos[..., 2]
    return (height > 0.8) & (height < 2.0) & (abs(tilt) < 1.0)


def _crawling(xp: Any, physics: Physics) -> Any:
    return (physics.qpos[..., 2] >= 0.2) & (physics.qpos[..., 2] <= 1.0)


def _standing(xp: Any, physics: Physics) -> Any:
    return (physics.qpos[..., 2] > 1.0) & (physics.qpos[..., 2] < 2.0)


GYMNASIUM: dict[str, GymRobot] = {
    "halfcheetah": GymRobot(
        5, xml="half_cheetah.xml", healthy=_always, ends=False, alive=0.0, control=0.1, noise=0.1, normal=True,
    ),
    "hopper": GymRobot(4, xml="hopper.xml", healthy=_hopping, velocity_clip=10.0),
    "walker2d": GymRobot(4, xml="walker2d_v5.xml", healthy=_walking, velocity_clip=10.0),
    "ant": GymRobot(
        5, xml="ant.xml", healthy=_crawling, place="torso", control=0.5, contact=5e-4, contact_clip=1.0, noise=0.1,
        normal=True, skipped=2, derived=(CONTACTS,), iterations=6,
    ),
    "humanoid": GymRobot(
        5, xml="humanoid.xml", healthy=_standing, place="centre", forward=1.25, alive=5.0, control=0.1, contact=5e-7,
        contact_most=10.0, noise=1e-2, skipped=2, derived=(INERTIA, BODY_VELOCITIES, ACTUATORS, CONTACTS),
        with_velocities=(BODY_VELOCITIES, INERTIA, ACTUATORS), iterations=6,
    ),
}  # fmt: skip

ROBOTS: dict[str, Robot] = {**GYMNASIUM, **BODIES}
