"""Runs as they lie on disk: what they were asked to do, what they logged, and what to call them side by side."""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from s2pg.errors import UserError
from s2pg.io.folder import CONFIG, METRICS, read_object, why_diverged
from s2pg.io.lock import is_held
from s2pg.io.sinks import read_metrics

KINDS: dict[str, type] = {
    **dict.fromkeys(("algorithm", "task", "memory", "kernel", "critic", "demos"), str),
    **dict.fromkeys(("options", "hyper", "versions", "hardware"), dict),
    "steps": int,
    "seeds": list,
}  # what a configuration holds, as far as it is there
USUAL_KERNELS = ("gru", "mlp", "window")
AXES = ("algorithm", "task", "kernel", "critic")  # what a label names besides the memory, where runs differ in it


@dataclass(frozen=True)
class Log:
    """One run as it lies on disk: its configuration and the rows of its metrics, by step and then by seed."""

    path: Path
    config: Mapping[str, Any]
    rows: Mapping[int, Mapping[int, Mapping[str, Any]]]
    diverged: str = ""  # why it stopped, if a number was not finite
    running: bool = False  # whether a process was writing to it when it was read

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for at in self.rows.values() for seed in at})

    @property
    def seconds(self) -> float:
        return max(row["wall_s"] for at in self.rows.values() for row in at.values())

    @property
    def speed(self) -> float:
        """Steps per second: the median over the run, as single points wobble with what else the machine does."""
        return float(np.median([row["steps_per_s"] for at in self.rows.values() for row in at.values()]))

    def points(self, value: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(steps [points], seconds [points], values [seeds, points]), where every seed has a finite value.

        A point that some seed lacks (the run was stopped while writing, no episode had ended yet) is left
        out: an average over fewer seeds would be another quantity than its neighbours.
        """
        seeds = self.seeds
        full = [
            (step, max(row["wall_s"] for row in at.values()), [at[seed][value] for seed in seeds])
            for step, at in sorted(self.rows.items())
            if _complete(at, value, len(seeds))
        ]
        steps, seconds, values = zip(*full, strict=True) if full else ((), (), ())
        return np.array(steps), np.array(seconds), np.array(values, float).reshape(len(steps), len(seeds)).T

    def has(self, value: str) -> bool:
        """Whether there is a point at which every seed has a finite value."""
        seeds = len(self.seeds)
        return any(_complete(at, value, seeds) for at in self.rows.values())


def _complete(at: Mapping[int, Mapping[str, Any]], value: str, seeds: int) -> bool:
    return len(at) == seeds and all(_finite(row.get(value)) for row in at.values())


def _finite(x: Any) -> bool:
    return isinstance(x, int | float) and math.isfinite(x)


def load(path: Path) -> Log:
    """A run folder's configuration and metrics, of which there may be none yet."""
    path = Path(path)
    if not (path / CONFIG).is_file():
        raise UserError(f"{path} is no run folder: it has no {CONFIG}")
    metrics = path / METRICS
    rows: dict[int, dict[int, Mapping[str, Any]]] = {}
    for row in read_metrics(metrics) if metrics.exists() else []:
        counts = all(isinstance(row.get(name), int) for name in ("step", "seed"))
        if not (counts and all(_finite(row.get(name)) for name in ("wall_s", "steps_per_s"))):
            raise UserError(f"{metrics} is damaged: a row lacks its step, seed or time")
        rows.setdefault(row["step"], {})[row["seed"]] = row
    config = read_object(path / CONFIG)
    for name, kind in KINDS.items():
        value = config.get(name)
        if not isinstance(value, kind | None) or (kind is list and not all(isinstance(x, int) for x in value or ())):
            raise UserError(f"{path / CONFIG} is damaged: its {name} cannot be {value!r}")
    return Log(path, config, rows, why_diverged(path), is_held(path))


def read(path: Path) -> Log:
    """A run folder's configuration and metrics."""
    log = load(path)
    if not log.rows:
        raise UserError(f"{path} has no metrics yet")
    return log


def find(folders: Sequence[Path]) -> list[Path]:
    """All run folders among and below some folders, sorted; one that holds none is refused."""
    found: dict[Path, Path] = {}  # by where they lie: a folder may be named twice, or together with one above it
    for folder in folders:
        below = _walk(Path(folder))
        if not below:
            raise UserError(f"{folder} holds no run: there is no {CONFIG} in it or below it")
        found = {path.resolve(): path for path in below} | found
    return [found[path] for path in sorted(found)]


def _walk(folder: Path) -> list[Path]:
    """Run folders, in which nothing further is looked for."""
    found = []
    for path, folders, files in os.walk(folder):
        if CONFIG in files:
            found.append(Path(path))
            folders.clear()
    return found


def labels(logs: Sequence[Log]) -> list[str]:
    """The memory of each run, and whatever else differs between them; the folder's name if nothing does.

    Hyper-parameters are named only where runs would have the same label without them: presets differ everywhere.
    """
    options = [log.config.get("options") or {} for log in logs]
    names = list(dict.fromkeys(name for each in options for name in each))
    parts = [[plain(log.config.get("memory", log.path.name))] for log in logs]
    for axis in AXES:
        values = [log.config.get(axis) for log in logs]
        # A memory label implies a kernel: it is named only where there are others than these.
        implied = axis == "kernel" and all(value in (None, *USUAL_KERNELS) for value in values)
        if any(value != values[0] for value in values) and not implied:
            _extend(parts, [plain(value) for value in values])
    for name in names:
        values = [each.get(name) for each in options]
        if any(value != values[0] for value in values):
            _extend(parts, ["" if value is None else f"{name} {plain(value)}" for value in values])
    found = [", ".join(part) for part in parts]
    found = tell_apart(found, [log.config.get("hyper") or {} for log in logs], found)
    count = Counter(found)
    return [f"{label} ({log.path.name})" if count[label] > 1 else label for label, log in zip(found, logs, strict=True)]


def tell_apart(
    names: Sequence[str], settings: Sequence[Mapping[str, Any]], alike: Sequence[Hashable], missing: bool = False
) -> list[str]:
    """Adds to names the settings in which runs of one name differ although they are alike.

    A setting that is not there is one that another version did not have, unless `missing` says that it counts.
    """
    groups: dict[tuple[str, Hashable], list[Mapping[str, Any]]] = defaultdict(list)
    for name, kind, each in zip(names, alike, settings, strict=True):
        groups[name, kind].append(each)
    differing: dict[str, list[str]] = defaultdict(list)
    for (name, _), group in groups.items():
        for setting in sorted(set(itertools.chain(*group))):
            values = {plain(each.get(setting)) for each in group if missing or setting in each}
            if len(values) > 1 and setting not in differing[name]:
                differing[name].append(setting)
    found = []
    for name, each in zip(names, settings, strict=True):
        parts = [f"{setting} {plain(each[setting])}" for setting in differing[name] if setting in each]
        found.append(", ".join([name, *parts]))
    return found


def _extend(parts: list[list[str]], texts: list[str]) -> None:
    for part, text in zip(parts, texts, strict=True):
        part.extend([text] if text else [])


def plain(value: Any) -> str:
    """A setting as people write it."""
    if isinstance(value, Mapping):
        return " ".join(f"{name}={plain(each)}" for name, each in value.items())
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
