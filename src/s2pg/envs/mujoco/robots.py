"""The five robots of Gymnasium's v5 suite: what they show, what they earn and when they fall, once for both backends.

Everything here is a function of `Physics` and of the array module `xp`, NumPy for a batch of simulations on the host
or JAX for one on the device: leading axes are free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

LARGEST = 1e6  # what is beyond this is no motion any more
POSITIONS, VELOCITIES, CONTACTS = "positions", "velocities", "contact_forces"
INERTIA, BODY_VELOCITIES, ACTUATORS = "inertia", "body_velocities", "actuator_forces"


class Physics(NamedTuple):
    """What a simulation says of one moment; `()` where a robot does not ask.

    All but `qpos` and `qvel` are those of the last stage that the integrator looked at, as in MuJoCo after a step.
    """

    qpos: Any
    qvel: Any
    place: Any  # x of what is rewarded for moving forward
    contact: Any = ()  # [..., bodies * 6] cfrc_ext, the world's included
    inertia: Any = ()  # [..., (bodies - 1) * 10] cinert
    body_velocity: Any = ()  # [..., (bodies - 1) * 6] cvel
    actuator: Any = ()  # [..., joints - 6] qfrc_actuator


@dataclass(frozen=True)
class Robot:
    """Constants of a task; its rewards are forward + alive - control - contact."""

    xml: str  # among Gymnasium's assets
    frame_skip: int
    healthy: Callable[[Any, Physics], Any]
    place: str = "joint"  # what moves forward: the root joint, the torso's frame, or the centre of mass
    ends: bool = True  # whether an unhealthy state is the end
    forward: float = 1.0
    alive: float = 1.0
    control: float = 1e-3
    contact: float = 0.0
    contact_most: float = float("inf")  # the cost of contacts is at most this
    contact_clip: float = float("inf")  # forces are clipped to this, for the cost and for the eye
    velocity_clip: float = float("inf")
    noise: float = 5e-3  # of the start
    normal: bool = False  # whether velocities start normal, instead of uniform
    skipped: int = 1  # leading positions that nobody sees
    derived: tuple[str, ...] = ()  # groups beside positions and velocities
    iterations: int = 4  # of MJX's solver: what it takes to end where C does
    # What goes with the velocities when they are hidden: what is made from them, and what would tell the masses.
    with_velocities: tuple[str, ...] = ()

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

    def outcome(self, xp: Any, before: Any, after: Physics, action: Any, seconds: float) -> tuple[Any, Any]:
        """(reward, terminated) of a step from place `before`; `action` is what was asked of the motors."""
        healthy = self.healthy(xp, after)
        earned = self.forward * (after.place - before) / seconds + self.alive * healthy
        cost = self.control * xp.sum(action * action, axis=-1)
        if self.contact:
            forces = self._forces(xp, after)
            cost = cost + xp.minimum(self.contact * xp.sum(forces * forces, axis=-1), self.contact_most)
        return earned - cost, ~healthy if self.ends else xp.zeros_like(healthy)


def _clip(xp: Any, x: Any, most: float) -> Any:
    return x if most == float("inf") else xp.clip(x, -most, most)


def _always(xp: Any, physics: Physics) -> Any:
    return xp.ones_like(physics.qpos[..., 0], dtype=bool)


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


ROBOTS: dict[str, Robot] = {
    "halfcheetah": Robot(
        "half_cheetah.xml", 5, _always, ends=False, alive=0.0, control=0.1, noise=0.1, normal=True,
    ),
    "hopper": Robot("hopper.xml", 4, _hopping, velocity_clip=10.0),
    "walker2d": Robot("walker2d_v5.xml", 4, _walking, velocity_clip=10.0),
    "ant": Robot(
        "ant.xml", 5, _crawling, place="torso", control=0.5, contact=5e-4, contact_clip=1.0, noise=0.1, normal=True,
        skipped=2, derived=(CONTACTS,), iterations=6,
    ),
    "humanoid": Robot(
        "humanoid.xml", 5, _standing, place="centre", forward=1.25, alive=5.0, control=0.1, contact=5e-7,
        contact_most=10.0, noise=1e-2, skipped=2, derived=(INERTIA, BODY_VELOCITIES, ACTUATORS, CONTACTS),
        with_velocities=(BODY_VELOCITIES, INERTIA, ACTUATORS), iterations=6,
    ),
}  # fmt: skip
