"""Runs side by side: learning curves against steps and against seconds, and a table of where they ended."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from s2pg.analysis.statistics import bootstrap_band, iqm
from s2pg.errors import UserError, unknown
from s2pg.io.atomic import replacing
from s2pg.io.figures import figure_class
from s2pg.io.sinks import read_metrics

# Okabe and Ito's palette without its yellow, which is too faint for a line; then again with dashes.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", ":", "-.")
USUAL_KERNELS = ("gru", "mlp", "window")
AXES = ("algorithm", "task", "kernel", "critic")  # what a label names besides the memory, where runs differ in it
NAMES = {
    "eval_return": "evaluation return",
    "eval_return_stochastic": "evaluation return (stochastic policy)",
    "train_return": "training return",
}


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


def _shared_value(logs: Sequence[Log], value: str) -> str:
    """`value`, or training returns if some run lacks it: one figure compares one quantity, never two."""
    known = {name for log in logs for at in log.rows.values() for row in at.values() for name in row} - {"step", "seed"}
    if known and value not in known and value != "eval_return":
        raise unknown("metric", value, known)
    for name in (value, "train_return"):
        if all(len(log.points(name)[0]) for log in logs):
            return name
    poor = next(log for log in logs if not len(log.points("train_return")[0]))
    raise UserError(f"{poor.path} has no metrics yet: not one point at which every seed has a return")


def _read_all(runs: Sequence[Path], value: str) -> tuple[list[Log], str]:
    if not runs:
        raise UserError("no run folder was named")
    logs = [read(run) for run in runs]
    return logs, _shared_value(logs, value)


def curves(
    runs: Sequence[Path],
    out: Path,
    value: str = "eval_return",
    floors: Mapping[str, float] | None = None,
    seconds: bool = True,
) -> None:
    """Draws `value` against environment steps and against wall-clock seconds: IQM over seeds, 95 % bootstrap band.

    Without `seconds` against steps alone: for runs that shared a machine, whose seconds say nothing.
    `floors` are horizontal lines to compare with, such as the return of a scripted oracle.
    """
    out = Path(out)
    Figure = figure_class(out)
    from matplotlib.ticker import EngFormatter

    logs, value = _read_all(runs, value)
    names = ("environment steps", "wall-clock seconds")[: 1 + seconds]
    figure = Figure(figsize=(5 * len(names), 4.2), layout="constrained", dpi=150)
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for i, (log, label) in enumerate(zip(logs, labels(logs), strict=True)):
        *axes, values = log.points(value)
        middle, (low, high) = iqm(values), bootstrap_band(values)
        look = {"color": PALETTE[i % len(PALETTE)], "linestyle": DASHES[i // len(PALETTE) % len(DASHES)]}
        for panel, x in zip(panels, axes, strict=False):
            panel.plot(x, middle, label=label, linewidth=1.8, marker="o" if len(x) == 1 else "", **look)
            panel.fill_between(x, low, high, color=look["color"], alpha=0.18, linewidth=0)
    for panel, name in zip(panels, names, strict=True):
        panel.set_xlabel(name)
        panel.set_xlim(left=0)
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        panel.grid(color="#dddddd", linewidth=0.7)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
        for text, height in (floors or {}).items():
            panel.axhline(height, color="#666666", linewidth=1.2, linestyle=(0, (5, 3)), zorder=1.5)
            panel.annotate(
                text, (0.99, height), xycoords=panel.get_yaxis_transform(), xytext=(0, 2), textcoords="offset points",
                ha="right", va="bottom", fontsize=8, color="#555555",
            )  # fmt: skip
    panels[0].set_ylabel(NAMES.get(value, value))
    handles, texts = panels[0].get_legend_handles_labels()
    # As many columns as the longest name leaves room for: a letter takes about 0.085 inches, a line and gaps 0.7.
    room = max(1, int(figure.get_figwidth() / (0.7 + 0.085 * max(map(len, texts)))))
    columns = min(room, 2 * len(names), len(logs))
    figure.legend(handles, texts, loc="outside lower center", ncols=columns, frameon=False)
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as file:
        figure.savefig(file, format=out.suffix[1:].lower())


def table(runs: Sequence[Path], value: str = "eval_return") -> Table:
    """Where each run ended: the last return (IQM over seeds, lowest to highest seed), its step, speed and time."""
    logs, value = _read_all(runs, value)
    shown = Table(title=f"last {NAMES.get(value, value)}", title_justify="left")
    shown.add_column("memory")
    for name in ("return", "min to max", "seeds", "step", "steps/s", "seconds"):
        shown.add_column(name, justify="right")
    for log, label in zip(logs, labels(logs), strict=True):
        steps, _, values = log.points(value)
        last = values[:, -1]
        spread = f"{last.min():.4g} to {last.max():.4g}"
        times = f"{log.speed:,.0f}", f"{log.seconds:,.1f}"
        shown.add_row(label, f"{iqm(last):.4g}", spread, str(len(last)), f"{steps[-1]:,}", *times)
    return shown
