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
    """steps of each: lanes x steps transitions are learnt from (memory)"""
    batch: int = 256
    """samples of one update (offpolicy)"""
    width: int = 0
    """units of each layer; 0: 64 (memory), 256 (offpolicy)"""
    labels: tuple[str, ...] = field(default=())
    """memory labels to compare; ratios are to the first (default: the benchmark's own)"""

    def __post_init__(self) -> None:
        for name in ("rounds", "lanes", "steps", "batch"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} of a benchmark must be 1 or more, not {getattr(self, name)}")
        if self.width < 0:
            raise UserError(f"width of a benchmark must be 1 or more, not {self.width}")
        if len(set(self.labels)) < len(self.labels):
            raise UserError(f"labels of a benchmark must be different, not {list(self.labels)}")


class Timed(NamedTuple):
    """Work to be timed, and what else a row should tell. With `gflop`, rates are reported as well."""

    work: Callable[[], Any]
    facts: Mapping[str, Any] = MappingProxyType({})
