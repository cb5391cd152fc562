"""The bodies of the imitation experiments: a humanoid of four ages, and Atlas with a box of unknown weight.

Models, rewards and ends are those of LocoMuJoCo 0.4.1 (MIT), contacts and integrator our own: see docs/robots.md.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from s2pg.clip import Clip
from s2pg.envs.mujoco import released
from s2pg.envs.mujoco.atlas_carry import JOINTS as ATLAS_JOINTS
from s2pg.envs.mujoco.atlas_carry import WEIGHTS, atlas
from s2pg.envs.mujoco.definition import POSITIONS, VELOCITIES, Physics, Robot
from s2pg.envs.mujoco.humanoid_ages import JOINTS, SIZES, humanoid
from s2pg.envs.mujoco.motions import closed, frames, resized, tracking_reward
from s2pg.envs.mujoco.options import CommonOptions
from s2pg.envs.mujoco.randomise import Table, Variants
from s2pg.options import option, redefine

LOADS = 64  # models of other weights that episodes are drawn from
RELEASED, OWN, UPRIGHT = "loco-mujoco", "own", "none"
CLIPS = Path(__file__).parent / "clips"  # motions of our own models
SPEEDS = {"walk": 1.25, "run": 2.5}  # what is rewarded, in m/s of an adult
RELEASED_SKIP = 10  # steps of 1 ms that the released models make for each decision
PI = np.pi


@dataclass(frozen=True)
class BodyOptions(CommonOptions):
    """What both bodies are made with."""

    hide: Any = redefine(CommonOptions, "hide", "none")  # noqa: RUF009 - it makes a field, as `option` does
    demos: str = option(
        OWN, "a motion whose frames episodes begin in: own, an .npz file, or none, and they begin upright"
    )
    reward: str = option(
        "speed", "speed, or tracking: of the motion in demos, closed into a cycle", choices=("speed", "tracking")
    )
    model: str = option(
        OWN, "own, or loco-mujoco: the released one, where that package is installed", choices=(OWN, RELEASED)
    )

    def mismatch(self, robot: str, backend: str) -> str | None:
        """Tells what does not go together."""
        if self.reward == "tracking" and self.demos == UPRIGHT:
            return f"reward=tracking of {robot} needs a motion: demos={OWN} or demos=FILE.npz"
        if self.model == RELEASED and backend != "gymnasium":
            return f"model={RELEASED} of {robot} is for backend=gymnasium"
        return None


@dataclass(frozen=True)
class HumanoidOptions(BodyOptions):
    """What the humanoid of four ages is made with."""

    gait: str = option("walk", "walk or run: what speed is rewarded", choices=tuple(SPEEDS))
    size: float = option(0.0, "0.4, 0.6, 0.8 or 1; 0: one of them, anew in every episode")
    torque: int = option(
        2, "motors grow with this power of the size: 2 as released, 3 as its paper says", low=2, high=3
    )
    scaling: str = option(
        "sound", "sound, or released: centres of mass stay where an adult's are", choices=("sound", "released")
    )

    def mistake(self, robot: str, backend: str) -> str | None:
        """Refuses other sizes."""
        if self.size not in (0.0, *SIZES):
            return f"size of {robot} must be 0.4, 0.6, 0.8 or 1, or 0 for any of them, not {self.size:g}"
        return self.mismatch(robot, backend)


@dataclass(frozen=True)
class AtlasOptions(BodyOptions):
    """What Atlas is made with."""

    weight: float = option(0.0, "of the box, 0.1 to 10 kg; 0: drawn anew in every episode", low=0, high=WEIGHTS[-1])
    weights: str = option(
        "uniform", "what is drawn: uniform between 0.1 and 10 kg, or grid: 0.1, 1, 5 or 10", choices=("uniform", "grid")
    )

    def mistake(self, robot: str, backend: str) -> str | None:
        """Refuses boxes that weigh next to nothing."""
        if 0.0 < self.weight < WEIGHTS[0]:
            return f"weight of {robot} must be between {WEIGHTS[0]} and {WEIGHTS[-1]:g}, not {self.weight:g}"
        return self.mismatch(robot, backend)


@dataclass(frozen=True, eq=False)
class Body(Robot):
    """A body that walks at a speed, or as a motion does, until its trunk is out of bounds."""

    joints: tuple[str, ...] = ()
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)  # of the trunk's joints
    speed: float = SPEEDS["walk"]
    motion: Clip | None = None  # of an adult
    tracked: bool = False  # whether following the motion is rewarded

    @abstractmethod
    def target(self, options: Any) -> float:
        """Tells the speed that is rewarded, in m/s of an adult."""

    @abstractmethod
    def clip(self, options: Any) -> str:
        """Names the motion of our own that goes with options."""

    @abstractmethod
    def size(self, xp: Any, hidden: Any) -> Any:
        """Tells how large a body is beside an adult."""

    def configured(self, options: Any) -> Body:
        """Reads the motion, and takes the released simulator with the released model."""
        skip = RELEASED_SKIP if options.model == RELEASED else self.frame_skip
        made = replace(self, frame_skip=skip, speed=self.target(options))
        if options.demos == UPRIGHT:
            return made
        file = CLIPS / f"{self.clip(options)}.npz" if options.demos == OWN else options.demos
        motion, tracked = frames(file, self.joints), options.reward == "tracking"
        return replace(made, noise=0.0, motion=closed(motion) if tracked else motion, tracked=tracked)

    @property
    def frames(self) -> int:
        """Counts those of the motion."""
        return self.motion.frames if self.motion else 0

    def _goal(self, xp: Any, hidden: Any, frame: Any) -> tuple[Any, Any]:
        """(positions, velocities) of the motion at a frame, at this size."""
        assert self.motion is not None
        size, at = self.size(xp, hidden), frame % self.frames
        parts = (self.motion.positions, self.motion.velocities)
        qpos, qvel = (resized(xp, xp.asarray(part)[at], size) for part in parts)
        return qpos, qvel

    def groups(self, xp: Any, physics: Physics) -> dict[str, Any]:
        """Shows positions, but for where on the ground it is, and velocities."""
        return {POSITIONS: physics.qpos[..., self.skipped :], VELOCITIES: physics.qvel}

    def start(self, xp: Any, qpos: Any, qvel: Any, hidden: Any, frame: Any) -> tuple[Any, Any]:
        """Places a body in a frame of the motion, at the origin of the ground."""
        if not self.motion:
            return qpos, qvel
        goal, moving = self._goal(xp, hidden, frame)
        return xp.concatenate([xp.zeros_like(goal[..., :2]), goal[..., 2:]], axis=-1), moving

    def privileged(self, xp: Any, hidden: Any, frame: Any) -> Any:
        """Shows the size or weight and, where a motion is followed, its phase and its frame."""
        if not self.tracked:
            return hidden
        angle = xp.asarray(2 * PI / self.frames * (frame % self.frames))[..., None]
        qpos, qvel = self._goal(xp, hidden, frame)
        return xp.concatenate([hidden, xp.sin(angle), xp.cos(angle), qpos[..., 2:], qvel], axis=-1)

    def outcome(
        self, xp: Any, before: Any, after: Physics, action: Any, seconds: float, hidden: Any, frame: Any
    ) -> tuple[Any, Any]:
        """(reward, terminated) of a step: exp(-(vx - S v*)^2), or what following the motion is worth."""
        size, fallen = self.size(xp, hidden), xp.zeros_like(after.qpos[..., 0], dtype=bool)
        for joint, (low, high) in self.bounds.items():
            value = after.qpos[..., self.joints.index(joint)]
            fallen = fallen | (value < low) | (value > high)
        if self.tracked:
            return tracking_reward(xp, after.qpos, after.qvel, *self._goal(xp, hidden, frame), size), fallen
        return xp.exp(-((after.qvel[..., 0] - size * self.speed) ** 2)), fallen


class HumanoidAges(Body):
    """The humanoid of four ages."""

    options: ClassVar[type[CommonOptions]] = HumanoidOptions

    def target(self, options: HumanoidOptions) -> float:
        """Tells that of the gait."""
        return SPEEDS[options.gait]

    def clip(self, options: HumanoidOptions) -> str:
        """Names that of the gait."""
        return f"humanoid-ages-{options.gait}"

    def size(self, xp: Any, hidden: Any) -> Any:
        """Tells the size, which is what is hidden."""
        return hidden[..., 0]

    def variants(self, options: HumanoidOptions) -> Variants:
        """Makes a model of each size."""
        sizes = (options.size,) if options.size else SIZES
        if options.model == RELEASED:
            made = [released.humanoid(size, options.torque, options.scaling == "sound") for size in sizes]
        else:
            made = [humanoid(size, options.torque, options.scaling == "released") for size in sizes]
        return Table(made, np.array(sizes)[:, None])


class AtlasCarry(Body):
    """Atlas with a box of unknown weight."""

    options: ClassVar[type[CommonOptions]] = AtlasOptions

    def target(self, options: AtlasOptions) -> float:
        """Tells that of a walk."""
        return SPEEDS["walk"]

    def clip(self, options: AtlasOptions) -> str:
        """Walks."""
        return "atlas-carry-walk"

    def size(self, xp: Any, hidden: Any) -> Any:
        """Is as large as an adult."""
        return xp.ones_like(hidden[..., 0])

    def variants(self, options: AtlasOptions) -> Variants:
        """Makes a model of each weight."""
        weights = np.linspace(WEIGHTS[0], WEIGHTS[-1], LOADS) if options.weights == "uniform" else np.array(WEIGHTS)
        if options.weight:
            weights = np.array([options.weight])
        make = released.atlas if options.model == RELEASED else atlas
        return Table([make(float(weight)) for weight in weights], weights[:, None])


BODIES: dict[str, Body] = {
    "humanoid-ages": HumanoidAges(
        5,
        skipped=2,
        iterations=6,
        joints=JOINTS,
        # As released: metres too, whatever the size.
        bounds={
            "pelvis_ty": (-0.46, 0.1),
            "pelvis_tilt": (-PI / 4.5, PI / 12),
            "pelvis_list": (-PI / 12, PI / 8),
            "pelvis_rotation": (-PI / 9, PI / 9),
            "lumbar_extension": (-PI / 4, PI / 10),
            "lumbar_bending": (-PI / 10, PI / 10),
            "lumbar_rotation": (-PI / 4.5, PI / 4.5),
        },
    ),
    "atlas-carry": AtlasCarry(
        5,
        skipped=2,
        iterations=8,
        joints=ATLAS_JOINTS,
        bounds={
            "pelvis_ty": (-0.3, 0.1),
            "pelvis_tilt": (-PI / 4.5, PI / 12),
            "pelvis_list": (-PI / 12, PI / 8),
            "pelvis_rotation": (-PI / 10, PI / 10),
        },
    ),
}
