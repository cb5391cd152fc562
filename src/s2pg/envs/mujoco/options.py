"""The options of a robot, in one place for every backend."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from s2pg.errors import UserError
from s2pg.options import Setting, check_fields, field_settings, option, parse_all

INTEGRATORS = ("model", "euler")
# How a link's mass differs from the model's, as a share of it.
SPREADS = ("uniform", "three")
# What only some backends ask for.
DEVICE = ("mjx", "warp")
ONLY_ON = dict.fromkeys(("iterations", "line_searches", "integrator", "variants"), DEVICE)
ONLY_ON |= dict.fromkeys(("contacts", "constraints"), ("warp",))


@dataclasses.dataclass(frozen=True)
class CommonOptions(ABC):
    """What any robot is made with, whatever simulates it; the last ones are for the device alone."""

    hide: str | int | Sequence[int | str] = option(
        "velocities",
        "what the policy does not see: groups of the observation or indices, such as velocities,3, or none",
    )
    noise: float = option(0.0, "standard deviation of what is added to the policy's view", low=0)
    horizon: int = option(1000, "steps after which an episode is cut", low=1)
    iterations: int = option(0, "of the device's solver; 0: as many as the robot needs, 4 to 8", low=0)
    line_searches: int = option(4, "in each iteration of the device's solver", low=1)
    integrator: str = option(
        "model",
        "on the device: model (what the robot's file says), or euler, which is faster and less exact",
        choices=INTEGRATORS,
    )
    contacts: int = option(0, "of an environment that Warp has room for; 0: as many as there can be", low=0)
    constraints: int = option(0, "of an environment that Warp has room for; 0: as many as there can be", low=0)

    def __post_init__(self):
        if isinstance(self.hide, list):  # as it comes from a file
            object.__setattr__(self, "hide", tuple(self.hide))

    @classmethod
    def settings(cls) -> dict[str, Setting]:
        """Lists what can be set, `hide` to a name, an index or several of them."""
        declared = field_settings(cls)
        return declared | {"hide": declared["hide"]._replace(kind=None)}

    @classmethod
    def read(cls, robot: str, given: Mapping[str, Any]) -> CommonOptions:
        """Reads options by name, which may come as text, and checks them."""
        return cls(**parse_all(cls.settings(), given, f"option of task {robot}", lambda name: f"{name} of {robot}"))

    def changed(self) -> dict[str, Any]:
        """Lists what differs from the usual."""
        own = {name: getattr(self, name) for name in self.settings()}
        return {name: own[name] for name, setting in self.settings().items() if own[name] != setting.default}

    def check(self, robot: str, backend: str) -> None:
        """Refuses what no simulation could be made with, or none on this backend."""
        check_fields(self, robot)
        for name, backends in ONLY_ON.items():
            if backend not in backends and name in self.changed():
                raise UserError(f"option '{name}' of {robot} is for backend={' or '.join(backends)}")
        if mistake := self.mistake(robot, backend):
            raise UserError(mistake)

    @abstractmethod
    def mistake(self, robot: str, backend: str) -> str | None:
        """Tells in one line what else is wrong with these options, if anything is."""


@dataclasses.dataclass(frozen=True)
class RobotOptions(CommonOptions):
    """What a robot of Gymnasium's is made with."""

    masses: float = option(
        0.0, "each link is up to this share heavier or lighter, anew in every episode", low=0, below=1
    )
    spread: str = option("uniform", "of masses: uniform, or three for one of -masses, 0 and +masses", choices=SPREADS)
    variants: int = option(1024, "models of other masses that the device draws from", low=1)

    def mistake(self, robot: str, backend: str) -> str | None:
        """Finds none: they go together as they like."""
        return None
