"""The demonstration: a short task that needs memory, learned without one, with backpropagation, and with S2PG."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from rich.console import Console
from rich.table import Table

from s2pg.analysis import plots
from s2pg.envs.tasks import make
from s2pg.errors import UserError
from s2pg.io import video
from s2pg.io.figures import figure_class
from s2pg.io.sinks import write_json
from s2pg.runs import assess
from s2pg.runs.run import Run
from s2pg.runs.start import train
from s2pg.runs.training import CONFIG, Border
from s2pg.types import CRITIC

SETTINGS: dict[str, Any] = {
    "task": "recall",
    "options": {"k": 8},
    "labels": ("none", "bptt-8", "s2pg", "s2pg-pathwise"),
    "hyper": {"anneal_updates": 73},  # to 0 at the end of the run
    "steps": 300_000,
    "seeds": (0, 1, 2),
    "episodes": 128,
}
QUICK: dict[str, Any] = {
    "options": {"k": 4},
    "labels": ("none", "s2pg-pathwise"),
    "hyper": {"lanes": 16, "steps": 16, "size": 8, "width": 8},
    "steps": 2048,
    "seeds": (0,),
    "episodes": 8,
}
FILMED, FILMS = "s2pg-pathwise", 6  # episodes in the GIF
MARK, FIGURE, MOVIE, TABLE = "demo.json", "curves.png", "memory.gif", "table.txt"
SCHEMA = 1


class Watch(Protocol):
    """Who is told how training goes: borders of chunks, and remarks."""

    def report(self, border: Border) -> None:
        """Takes the border of a chunk."""
        ...

    def say(self, line: str) -> None:
        """Takes a remark."""
        ...


class Demo(NamedTuple):
    """What a demo leaves."""

    table: Table
    files: list[Path]


def run(out: Path, watch: Callable[[str], AbstractContextManager[Watch]], quick: bool = False) -> Demo:
    """Trains every label, and leaves table, plot and film in `out`, in place of those of an earlier demo."""
    chosen = SETTINGS | (QUICK if quick else {})
    figure_class(out / FIGURE)  # what cannot be drawn or filmed is said before minutes are spent
    video.check(out / MOVIE)
    _claim(out, chosen["labels"])
    env = make(chosen["task"], **chosen["options"])
    runs = []
    for label in chosen["labels"]:
        with watch(label) as watcher:
            done = train(
                "ppo", env, memory=label, critic=CRITIC, hyper=chosen["hyper"], steps=chosen["steps"],
                seeds=chosen["seeds"], episodes=chosen["episodes"], out=out / "runs" / label,
                report=watcher.report, say=watcher.say,
            )  # fmt: skip
        runs.append(done.path)
    oracle = assess.scripted_return(env, chosen["episodes"])
    plots.curves(runs, out / FIGURE, floors={"scripted oracle": oracle})
    table = plots.table(runs)
    with (out / TABLE).open("w") as file:
        Console(file=file, width=100).print(table)
    video.write(_films(Run(out / "runs" / FILMED)), out / MOVIE, fps=6)
    return Demo(table, [out / name for name in (TABLE, FIGURE, MOVIE)])


def _films(run: Run) -> Iterator[np.ndarray]:
    """Several episodes, one after the other, each resting on its last picture for a moment."""
    env, actor = run.env(), run.policy().actor
    for seed in range(FILMS):
        frame = None
        for frame in assess.film(env, actor, seed):
            yield frame
        if frame is not None:
            yield from [frame] * 6


def _claim(out: Path, labels: Sequence[str]) -> None:
    """Makes the folder ready: removes the runs of an earlier demo, touches nothing else."""
    mark = out / MARK
    if out.exists() and not mark.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists and is no demo: --out names another folder")
    if mark.exists():
        try:
            earlier = [str(Path(label).name) for label in json.loads(mark.read_text())["labels"]]
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{mark} is damaged: remove {out}, or name another folder with --out") from None
        for run in (out / "runs" / label for label in earlier):
            if (run / CONFIG).is_file():
                shutil.rmtree(run)
    out.mkdir(parents=True, exist_ok=True)
    write_json(mark, {"schema": SCHEMA, "labels": list(labels)})
