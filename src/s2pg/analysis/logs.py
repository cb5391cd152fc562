"""Runs as they lie on disk: what they were asked to do, what they logged, and what to call them side by side."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from s2pg.errors import UserError
from s2pg.io.sinks import read_metrics

USUAL_KERNELS = ("gru", "mlp", "window")
AXES = ("algorithm", "task", "kernel", "critic")  # what a label names besides the memory, where runs differ in it


@dataclass(frozen=True)
class Log:
    """One run as it lies on disk: its configuration and the rows of its metrics, by step and then by seed."""

    path: Path
    config: Mapping[str, Any]
    rows: Mapping[int, Mapping[int, Mapping[str, Any]]]

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
        full = [
            (step, max(row["wall_s"] for row in at.values()), [at[seed][value] for seed in self.seeds])
            for step, at in sorted(self.rows.items())
            if len(at) == len(self.seeds) and all(_finite(row.get(value)) for row in at.values())
        ]
        steps, seconds, values = zip(*full, strict=True) if full else ((), (), ())
        return np.array(steps), np.array(seconds), np.array(values, float).reshape(len(steps), len(self.seeds)).T


def _finite(x: Any) -> bool:
    return isinstance(x, int | float) and math.isfinite(x)


def read(path: Path) -> Log:
    """A run folder's configuration and metrics."""
    path = Path(path)
    if not (path / "config.json").is_file():
        raise UserError(f"{path} is no run folder: it has no config.json")
    metrics = path / "metrics.jsonl"
    rows: dict[int, dict[int, Mapping[str, Any]]] = {}
    for row in read_metrics(metrics) if metrics.is_file() else []:
        rows.setdefault(row["step"], {})[row["seed"]] = row
    if not rows:
        raise UserError(f"{path} has no metrics yet")
    try:
        config = json.loads((path / "config.json").read_text())
    except json.JSONDecodeError:
        raise UserError(f"{path / 'config.json'} is damaged: it is no JSON") from None
    return Log(path, config, rows)


def labels(logs: Sequence[Log]) -> list[str]:
    """The memory of each run, and whatever else differs between them; the folder's name if nothing does."""
    options = [log.config.get("options") or {} for log in logs]
    names = list(dict.fromkeys(name for each in options for name in each))
    parts = [[_text(log.config.get("memory", log.path.name))] for log in logs]
    for axis in AXES:
        values = [log.config.get(axis) for log in logs]
        # A memory label implies a kernel: it is named only where there are others than these.
        implied = axis == "kernel" and all(value in (None, *USUAL_KERNELS) for value in values)
        if any(value != values[0] for value in values) and not implied:
            _extend(parts, [_text(value) for value in values])
    for name in names:
        values = [each.get(name) for each in options]
        if any(value != values[0] for value in values):
            _extend(parts, ["" if value is None else f"{name} {_text(value)}" for value in values])
    found = [", ".join(part) for part in parts]
    count = Counter(found)
    return [f"{label} ({log.path.name})" if count[label] > 1 else label for label, log in zip(found, logs, strict=True)]


def _extend(parts: list[list[str]], texts: list[str]) -> None:
    for part, text in zip(parts, texts, strict=True):
        part.extend([text] if text else [])


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_text(each)}" for name, each in value.items())
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
