"""What benchmarks share: their settings, and a thing to be timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from s2pg.errors import UserError


@dataclass(frozen=True)
class Settings:
    """How much is measured, and with which networks."""

    rounds: int = 20
    """how often each label is timed, in turn with the others"""
    lanes: int = 64
    """environments side by side (memory)"""
    steps: int = 128
    """steps of each: lanes x steps transitions are learned from (memory), or steps of each on the host (envs)"""
    batch: int = 256
    """samples of one update (offpolicy), and as many of the expert (imitation)"""
    width: int = 0
    """units of each layer; 0: 64 (memory), 256 (offpolicy, imitation), the preset (session)"""
    labels: tuple[str, ...] = field(default=())
    """memory labels to compare, or ways to step (envs); ratios are to the first (default: the benchmark's own)"""
    tasks: tuple[str, ...] = field(default=())
    """robots to step (envs; default: all five), tasks to act on (session; default: recall)"""
    host_lanes: int = 8
    """environments side by side on the host (envs)"""
    device_lanes: int = 8192
    """environments side by side in MJX (envs)"""
    device_steps: int = 16
    """steps of each there: device_lanes x device_steps transitions are learned from (envs)"""

    def __post_init__(self) -> None:
        for name in ("rounds", "lanes", "steps", "batch", "host_lanes", "device_lanes", "device_steps"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} of a benchmark must be 1 or more, not {getattr(self, name)}")
        if self.width < 0:
            raise UserError(f"width of a benchmark must be 1 or more, not {self.width}")
        for name in ("labels", "tasks"):
            given = getattr(self, name)
            if len(set(given)) < len(given):
                raise UserError(f"{name} of a benchmark must be different, not {list(given)}")


def nothing() -> None:
    """For what holds nothing open."""


class Workload(NamedTuple):
    """Work to be timed, and what else a row should tell.

    Some facts are asked for: `pieces` of equal work that the time is divided by, and what one `piece` is called if its
    rate is to be told; `gflop`, for a rate of arithmetic; and the rows that the ratio is `against` (default: the first)
    and the rate a `share_of`.
    """

    work: Callable[[], Any]
    facts: Mapping[str, Any] = MappingProxyType({})
    close: Callable[[], None] = nothing
