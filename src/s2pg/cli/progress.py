"""How far training is: a bar on a terminal, a line every tenth of the way elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.text import Text

from s2pg.runs.training import Border


class Watch:
    """`report` takes the borders of a run's chunks, `say` its remarks; `step` is where it stands."""

    def __init__(self, name: str, console: Console, bar: Progress | None):
        self.step = 0
        self._name, self._console, self._bar = name, console, bar
        self._began: tuple[int, float] | None = None
        self._tenth = 0
        self._task: TaskID | None = None

    def say(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)

    def report(self, border: Border) -> None:
        self.step = border.step
        text = self._text(border) if border.rows else "training" if border.compiled else "compiling"
        tenth = 10 * border.step // border.steps
        if self._bar is not None:
            # The bar appears with the first report: before that, nothing has been found to be right.
            self._task = self._bar.add_task(self._name, text=text) if self._task is None else self._task
            total = border.steps if border.rows else None  # without a total, the bar moves to and fro
            self._bar.update(self._task, total=total, completed=border.step, text=text)
        elif tenth > self._tenth or not border.compiled:
            self.say(f"{self._name}: {text}")
        self._tenth = tenth

    def _text(self, border: Border) -> str:
        speed = border.rows[0]["steps_per_s"]
        score = np.mean([row["eval_return"] for row in border.rows])
        left = self._left(border, speed)
        return f"{border.step:,}/{border.steps:,} steps  {speed:,.0f} steps/s  return {score:.3g}  {_clock(left)} left"

    def _left(self, border: Border, speed: float) -> float:
        """Seconds. From the second border on by the clock, which also counts evaluation and checkpoints."""
        now, ahead = time.monotonic(), border.steps - border.step
        if self._began is None:
            self._began = border.step, now
            return ahead * len(border.rows) / speed
        step, at = self._began
        return ahead * (now - at) / (border.step - step)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


@contextlib.contextmanager
def watching(name: str) -> Iterator[Watch]:
    """Watches one run, on stderr: stdout is for results."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Watch(name, console, None)
        return
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(None), TextColumn("{task.fields[text]}")
    with Progress(*columns, console=console, expand=True) as bar:
        yield Watch(name, console, bar)
