"""Runs side by side: learning curves against steps and against seconds, and a table of where they ended."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from s2pg.analysis.logs import Log, labels, read
from s2pg.analysis.statistics import bootstrap_band, iqm
from s2pg.errors import UserError, unknown
from s2pg.io.atomic import replacing
from s2pg.io.figures import figure_class

# Okabe and Ito's palette without its yellow, which is too faint for a line; then again with dashes.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", ":", "-.")
NAMES = {
    "eval_return": "evaluation return",
    "eval_return_stochastic": "evaluation return (stochastic policy)",
    "eval_length": "steps of an evaluation episode",
    "train_return": "training return",
}


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
    texts = labels(logs)
    # As many columns as the longest name leaves room for: a letter takes about 0.085 inches, a line and gaps 0.7.
    wide = 0.7 + 0.085 * max(map(len, texts))
    width = max(5.0 * len(names), wide)
    columns = min(int(width / wide), 2 * len(names), len(logs))
    height = 3.6 + 0.21 * math.ceil(len(logs) / columns)
    figure = Figure(figsize=(width, height), layout="constrained", dpi=150)
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for i, (log, label) in enumerate(zip(logs, texts, strict=True)):
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
    handles, _ = panels[0].get_legend_handles_labels()
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
