"""What a robot's task is made of: what it shows, what it earns and when it ends, once for all backends.

Everything here is a function of `Physics` and of the array module `xp`, NumPy for a batch of simulations on the host
or JAX for one on the device: leading axes are free.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from s2pg.envs.mujoco.options import CommonOptions
from s2pg.envs.mujoco.randomise import Variants

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
class Robot(ABC):
    """A task. What is drawn for an episode and hidden from the policy is `hidden`, as masses, a size or a weight."""

    options: ClassVar[type[CommonOptions]]

    frame_skip: int
    place: str = "joint"  # what moves forward: the root joint, the torso's frame, or the centre of mass
    contact: float = 0.0  # what a squared force of contact costs; 0: nobody asks for them
    noise: float = 5e-3  # of the start
    normal: bool = False  # whether velocities start normal, instead of uniform
    skipped: int = 1  # leading positions that nobody sees
    derived: tuple[str, ...] = ()  # groups beside positions and velocities
    iterations: int = 4  # of MJX's solver: what it takes to end where C does
    # What goes with the velocities when they are hidden: what is made from them, and what would tell the masses.
    with_velocities: tuple[str, ...] = ()

    @abstractmethod
    def configured(self, options: Any) -> Robot:
        """Makes the task that options ask for."""

    @abstractmethod
    def variants(self, options: Any) -> Variants:
        """Makes the models that episodes are drawn from."""

    @property
    @abstractmethod
    def frames(self) -> int:
        """Counts the frames of a motion that episodes begin in; 0: they begin around the model at rest."""

    @abstractmethod
    def start(self, xp: Any, qpos: Any, qvel: Any, hidden: Any, frame: Any) -> tuple[Any, Any]:
        """Places a robot where an episode begins, noise aside; `qpos` and `qvel` are those of the model at rest."""

    @abstractmethod
    def groups(self, xp: Any, physics: Physics) -> dict[str, Any]:
        """Shows the observation, group by group."""

    @abstractmethod
    def privileged(self, xp: Any, hidden: Any, frame: Any) -> Any:
        """Shows what only a critic sees, beside the observation."""

    @abstractmethod
    def outcome(
        self, xp: Any, before: Any, after: Physics, action: Any, seconds: float, hidden: Any, frame: Any
    ) -> tuple[Any, Any]:
        """(reward, terminated) of a step from place `before`; `action` is what was asked of the motors.

        `frame` counts the steps since the frame of a motion that the episode began in.
        """
