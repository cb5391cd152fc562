"""What a user asks for: one dataclass for the command line, `s2pg.train` and everything else that starts runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from s2pg.config import labels
from s2pg.errors import UserError


@dataclasses.dataclass(frozen=True)
class Request:
    """One training run by names; what is None comes from presets."""

    algorithm: str
    task: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the task
    memory: str = "s2pg"
    kernel: str | None = None
    critic: str | None = None  # the view the critic reads: "policy", or "critic" (privileged)
    hyper: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    steps: int | None = None
    seeds: tuple[int, ...] = (0,)
    episodes: int | None = None  # of each evaluation on the way
    borders: int = 50  # about how often to log, evaluate and checkpoint
    out: Path | None = None
    resume: bool = False
    demos: Path | None = None  # demonstrations, for algorithms that imitate
    log: tuple[str, ...] | None = None  # trackers by name; None is TensorBoard, where it is installed
    devices: int = 1  # that share the lanes

    def check(self) -> None:
        """Refuses numbers that no run can have."""
        if self.steps is not None and (type(self.steps) is not int or self.steps < 1):
            raise UserError(f"steps must be a whole number of 1 or more, not {self.steps}")
        whole = self.seeds and all(type(seed) is int for seed in self.seeds)
        if not whole or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0 or max(self.seeds) >= 2**32:
            raise UserError(f"seeds must be different whole numbers from 0 to 2^32 - 1, not {list(self.seeds)}")
        for name in ("episodes", "borders"):
            if (count := getattr(self, name)) is not None and count < 1:
                raise UserError(f"{name} must be 1 or more, not {count}")

    @property
    def folder(self) -> Path:
        """Where the run goes: `out`, or runs/TASK-ALGORITHM-MEMORY, and -KERNEL where it is not the usual one."""
        if self.out:
            return self.out
        usual = (None, labels.parse(self.memory).label.kernel)
        other = f"-{self.kernel}" if self.kernel not in usual else ""
        return Path("runs") / f"{self.task}-{self.algorithm}-{self.memory}{other}".replace(":", "-").replace("/", "-")
