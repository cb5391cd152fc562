"""What a report tells of each cell besides its returns: settings, where it was made, and what went wrong."""

from __future__ import annotations

import shlex
import string
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from s2pg.analysis.comparison import Cell, Comparison
from s2pg.analysis.logs import Log, plain
from s2pg.analysis.report.numbers import count
from s2pg.analysis.report.words import unfinished_cells

# What a run has one of, and what it is called here: algorithms have `steps` of their own, those of a batch.
SINGLE = {name: name for name in ("task", "algorithm", "memory", "kernel", "critic", "demos", "episodes")}
SINGLE |= {"steps": "training steps"}
BROKEN = {"diverged": "simulations broke down", "overflowed": "steps had no room for all contacts"}


def failures(found: Comparison) -> list[str]:
    """What did not go as planned, one line each."""
    lines = []
    for log in found.empty:
        lines.append(f"`{log.path.name}`: {_diverged(log) if log.diverged else _without_returns(log)}")
    for cell in unfinished_cells(found):
        done, planned = int(cell.points[0][-1]), cell.planned
        share = f"{done:,} of {planned:,} steps, {100 * done // planned} %"
        state = "running, now" if cell.running else "unfinished"
        lines.append(f"`{cell.label}` on `{cell.task}`: {state} at {share}")
    for cell in found.cells.values():
        lines += [f"`{cell.label}` on `{cell.task}`: {_diverged(log)}" for log in cell.logs if log.diverged]
        wanted = {seed for log in cell.logs for seed in log.config.get("seeds") or ()}
        if lost := sorted(wanted - set(cell.log.seeds)):
            lines.append(f"`{cell.label}` on `{cell.task}`: seeds without returns: {', '.join(map(str, lost))}")
        for name, text in BROKEN.items():
            rows = [row for at in cell.log.rows.values() for row in at.values() if (row.get(name) or 0) > 0]
            if rows:
                seeds = sorted({row["seed"] for row in rows})
                lines.append(f"`{cell.label}` on `{cell.task}`: {text} ({count(len(seeds), 'seed')})")
    return lines


def _without_returns(log: Log) -> str:
    return "running, no returns yet" if log.running else "no returns yet"


def _diverged(log: Log) -> str:
    seeds = ", ".join(map(str, log.config.get("seeds") or ()))
    return f"diverged with seeds {seeds}: {log.diverged}"


def settings(found: Comparison, where: Mapping[Path, str]) -> str:
    """Everything that each cell was told, what differs from others first, and the command that repeats it."""
    logs = [(cell, log) for cell in found.cells.values() for log in cell.logs]
    flat = [_flat(log.config) for _, log in logs]
    differing = {
        name
        for name in {name for each in flat for name in each}
        if len({each.get(name) for each in flat if name in each}) > 1
    }
    makers = list(dict.fromkeys(_maker(log.config) for _, log in logs))
    parts = []
    for (cell, log), each in zip(logs, flat, strict=True):
        parts.append(_one(cell, log, each, differing, makers, where))
    return "".join(parts) + _provenance(makers)


def _one(
    cell: Cell,
    log: Log,
    each: Mapping[str, str],
    differing: set[str],
    makers: Sequence[str],
    where: Mapping[Path, str],
) -> str:
    shown = "".join(
        f"<div{' class=differs' if name in differing else ''}><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in sorted(each.items(), key=lambda pair: pair[0] not in differing)
    )
    path = where[log.path]
    maker = makers.index(_maker(log.config))
    return (
        f'<details data-key="{escape(path)}"><summary>{escape(cell.task)}: {escape(cell.label)}'
        f'<span class="faint">{escape(path)}</span></summary><dl>{shown}</dl>'
        f"<pre>{escape(command(log.config))}</pre><p>Made on {string.ascii_uppercase[maker % 26]}, below.</p></details>"
    )


def _flat(config: Mapping[str, Any]) -> dict[str, str]:
    """All settings by name, as text."""
    found = {SINGLE[name]: config[name] for name in SINGLE if config.get(name) is not None}
    found["seeds"] = " ".join(map(str, config.get("seeds") or ()))
    for part in ("options", "hyper"):
        found |= config.get(part) or {}
    return {str(name): plain(value) for name, value in found.items()}


def command(config: Mapping[str, Any]) -> str:
    """The command that trains the same again."""
    words = ["s2pg", "train", str(config.get("algorithm"))]
    for name in ("task", "memory", "kernel", "critic", "demos"):
        words += [f"--{name}", str(config[name])] if config.get(name) is not None else []
    for option, part in (("--set", "options"), ("--hyper", "hyper")):
        pairs = [f"{name}={_written(value)}" for name, value in (config.get(part) or {}).items() if value is not None]
        words += [option, *pairs] if pairs else []
    for name in ("steps", "episodes"):
        words += [f"--{name}", str(config[name])] if config.get(name) is not None else []
    words += ["--seeds", *map(str, config.get("seeds") or (0,))]
    return shlex.join(words)


def _written(value: Any) -> str:
    """A value as the command line takes it."""
    if isinstance(value, list):
        return ",".join(map(_written, value))
    return value if isinstance(value, str) else str(value)


def _maker(config: Mapping[str, Any]) -> str:
    """The machine that made a run, and the versions it had, in a line."""
    hardware, versions = (config.get(part) or {} for part in ("hardware", "versions"))
    used = hardware.get("devices_used", 1)
    devices = f", {used} devices used" if used != 1 else ""
    machine = f"{hardware.get('device', 'unknown device')}, {hardware.get('cores', '?')} cores{devices}"
    return f"{machine}; {', '.join(f'{name} {text}' for name, text in versions.items())}"


def _provenance(makers: Sequence[str]) -> str:
    rows = "".join(f"<li><b>{string.ascii_uppercase[i % 26]}</b> {escape(text)}</li>" for i, text in enumerate(makers))
    return f'<ul class="makers">{rows}</ul>'
