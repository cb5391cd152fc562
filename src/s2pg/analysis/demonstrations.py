"""What a file of demonstrations holds: facts, a table of them, and a picture of its first episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from s2pg.analysis.plots import PALETTE
from s2pg.demos import Clip, Demonstrations
from s2pg.io.atomic import replacing
from s2pg.io.figures import figure_class
from s2pg.types import POLICY

SCHEMA = 1
EPISODES, LINES = 3, 6  # that a picture shows
DASHES = ("-", "--", ":")
Found = Demonstrations | Clip | list[Clip]


def facts(found: Found) -> dict[str, Any]:
    """Tells what demonstrations or clips are, as JSON."""
    if isinstance(found, Demonstrations):
        return _of_transitions(found)
    return _of_clips(found if isinstance(found, list) else [found])


def _of_transitions(found: Demonstrations) -> dict[str, Any]:
    told: dict[str, Any] = {
        "task": found.task or None,
        "episodes": len(found.episodes),
        "rows": found.rows,
        "lengths": _spread(found.lengths),
        "terminated": int(found.terminated.sum()),
        "dt": found.dt,
        "views": {view: _range(table) for view, table in found.obs.items()},
        "action": None if found.action is None else _range(found.action),
        "hidden": None if found.hidden is None else _range(found.hidden),
        "returns": None if found.returns is None else _spread(found.returns),
    }
    return told | {"notes": found.notes}


def _of_clips(clips: Sequence[Clip]) -> dict[str, Any]:
    return {
        "clips": len(clips),
        "frames": sum(clip.frames for clip in clips),
        "lengths": _spread(np.array([clip.frames for clip in clips])),
        "dt": clips[0].dt,
        "joints": list(clips[0].joints),
        "positions": _range(np.concatenate([clip.positions for clip in clips])),
        "velocities": _range(np.concatenate([clip.velocities for clip in clips])),
        "hidden": None if clips[0].hidden is None else clips[0].hidden.shape[1],
    }


def _spread(values: np.ndarray) -> dict[str, float]:
    return {"min": float(values.min()), "mean": float(values.mean()), "max": float(values.max())}


def _range(values: np.ndarray) -> dict[str, Any]:
    """The size of a row, and between which numbers its entries lie."""
    size = int(np.prod(values.shape[1:]))
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    return {"size": size, "min": low, "max": high}


def table(told: Mapping[str, Any]) -> Table:
    """Shows facts, one to a line."""
    shown = Table(show_header=False)
    shown.add_column(no_wrap=True)
    shown.add_column(overflow="fold")
    for name, value in told.items():
        if value is None or name == "notes":
            continue
        if name == "views":
            for view, own in value.items():
                shown.add_row(f"view {view}", _text(own))
        else:
            shown.add_row(name, Text(_text(value)))
    for name, value in told.get("notes", {}).items():
        if isinstance(value, str | int | float):  # longer ones are for --json
            shown.add_row(name, Text(str(value)))
    return shown


def _text(value: Any) -> str:
    match value:
        case {"size": size, "min": low, "max": high}:
            return f"{size} {'entry' if size == 1 else 'entries'}, {low:.4g} to {high:.4g}"
        case {"min": low, "mean": mean, "max": high}:
            return f"{mean:.4g}" if low == high else f"mean {mean:.4g}, {low:.4g} to {high:.4g}"
        case list():
            return f"{len(value)}: {', '.join(map(str, value))}"
        case float():
            return f"{value:.4g}"
    return str(value)


def draw(found: Found, out: Path) -> None:
    """Draws the first episodes over time: some entries of each view and of the actions, each in a colour of its own."""
    Figure = figure_class(out)
    panels, dt = _panels(found)
    figure = Figure(figsize=(9, 2.2 * len(panels)), layout="constrained", dpi=150)
    for axis, (title, episodes) in zip(
        figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels.items(), strict=True
    ):
        size = episodes[0].shape[1]
        for dash, values in zip(DASHES, episodes, strict=False):
            time = np.arange(len(values)) * (dt or 1.0)
            for column in range(min(size, LINES)):
                axis.plot(time, values[:, column], dash, color=PALETTE[column % len(PALETTE)], linewidth=1.2)
        axis.set_title(title if size <= LINES else f"{title}: {LINES} of {size} entries", fontsize=9, loc="left")
        axis.grid(color="#dddddd", linewidth=0.7)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlabel("steps" if dt in (None, 1.0) else "seconds")  # 1 stands for time without a unit
        axis.label_outer()
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as file:
        figure.savefig(file, format=out.suffix[1:].lower())


def _panels(found: Found) -> tuple[dict[str, list[np.ndarray]], float | None]:
    """The tables to draw by their titles, those of the first episodes each; and the seconds of a step."""
    if not isinstance(found, Demonstrations):
        clips = (found if isinstance(found, list) else [found])[:EPISODES]
        panels = {"positions": [clip.positions for clip in clips], "velocities": [clip.velocities for clip in clips]}
        return panels, clips[0].dt
    episodes = found.episodes[:EPISODES]
    views = sorted(found.obs, key=lambda view: view != POLICY)  # the policy's own on top
    tables = {f"view {view}": found.obs[view] for view in views}
    if found.action is not None:
        tables["action"] = found.action.reshape(found.rows, -1)
    panels = {title: [values[rows] for rows in episodes] for title, values in tables.items()}
    return panels, found.dt
