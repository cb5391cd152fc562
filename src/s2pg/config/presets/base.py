"""What a preset is, and the one law by which presets are chosen: all that match count, the more specific one wins.

Which of two is more specific is decided by the axes in this order: a preset that names a kernel, then one that names a
memory label, then a task (its own name over its family's), then a backend (its own
name over `device`). Between equals the later one wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from s2pg.envs.mujoco.options import DEVICE
from s2pg.envs.mujoco.robots import ROBOTS
from s2pg.envs.tasks import prefix_of

# These are no hyper-parameters: how long to train, whether the critic sees the full state, and whether the learning
# rate falls to 0 over the run.
SWITCHES: dict[str, Any] = {"total_steps": 1_000_000, "privileged": False, "anneal": False}
AXES = ("kernel", "label", "task", "backend")


class Preset(NamedTuple):
    """Values for the runs that match: `match` names a task or its family, a backend, a label's pattern, a kernel."""

    match: Mapping[str, str]
    values: Mapping[str, Any]


class Situation(NamedTuple):
    """What presets are chosen by."""

    task: str
    backend: str | None = None
    label: str = ""  # its pattern, such as bptt-N
    kernel: str = ""

    @property
    def families(self) -> dict[str, str | None]:
        """The names that similar tasks and backends share: `robot` or a library's prefix such as `gym:`; `device`."""
        return {
            "task": "robot" if self.task in ROBOTS else prefix_of(self.task),
            "backend": "device" if self.backend in DEVICE else None,
        }


def rank(preset: Preset, situation: Situation) -> tuple[int, ...] | None:
    """How specific a preset is, one number for each axis; None where it does not match."""
    ranks = []
    for axis in AXES:
        wanted = preset.match.get(axis)
        if wanted is None:
            ranks.append(0)
        elif wanted == getattr(situation, axis):
            ranks.append(2)
        elif wanted == situation.families.get(axis):
            ranks.append(1)
        else:
            return None
    return tuple(ranks)


def merged(presets: Iterable[Preset], situation: Situation) -> dict[str, Any]:
    """Everything that the presets say of a situation, switches included."""
    ranked = [(found, preset) for preset in presets if (found := rank(preset, situation)) is not None]
    values = dict(SWITCHES)
    for _, preset in sorted(ranked, key=lambda pair: pair[0]):
        values |= preset.values
    return values
