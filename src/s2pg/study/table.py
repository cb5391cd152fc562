"""The cells of a study as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from s2pg.study.cells import DIVERGED, DONE, FAILED, RUNNING, STOPPED, WAITING, Progress

STYLES = {DONE: "green", RUNNING: "cyan", DIVERGED: "magenta", FAILED: "red", STOPPED: "yellow", WAITING: "dim"}
ORDER = (FAILED, DIVERGED, RUNNING, STOPPED, WAITING, DONE)  # what is shown first where there is no room for all


def table(cells: Mapping[str, Progress], most: int | None = None) -> Table:
    """One line a cell; `most` lines, of which those that matter most."""
    shown = list(cells)
    if most is not None and len(shown) > most:
        kept = sorted(shown, key=lambda name: ORDER.index(cells[name].state))[: max(1, most)]
        shown = [name for name in shown if name in kept]
    found = Table(box=None, pad_edge=False, caption=summary(cells), caption_justify="left")
    found.add_column("cell", overflow="fold")
    for name in ("state", "steps", "return", "steps/s"):
        found.add_column(name, justify="left" if name == "state" else "right", no_wrap=True)
    found.add_column("", overflow="fold")
    for name in shown:
        cell = cells[name]
        found.add_row(
            Text(name), Text(cell.state, style=STYLES[cell.state]), _steps(cell),
            "" if cell.value is None else f"{cell.value:.4g}",
            "" if cell.speed is None else f"{cell.speed:,.0f}", Text(cell.why),
        )  # fmt: skip
    return found


def _steps(cell: Progress) -> str:
    said = [f"{step / 1e6:.1f}M" if step >= 1e6 else f"{step / 1e3:.4g}k" for step in (cell.step, cell.steps)]
    return " of ".join(said) if cell.steps else ""


def summary(cells: Mapping[str, Progress]) -> str:
    """`12 cells: 8 done, 1 diverged, 3 waiting`."""
    counts = Counter(cell.state for cell in cells.values())
    told = ", ".join(f"{counts[state]} {state}" for state in (DONE, *ORDER[:-1]) if counts[state])
    return f"{len(cells)} cell{'s' * (len(cells) > 1)}: {told}"
