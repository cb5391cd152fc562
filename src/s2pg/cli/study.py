"""`s2pg study`."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import jax
from rich.console import Console
from rich.live import Live
from tyro.conf import Positional, arg

from s2pg.cli.progress import watching
from s2pg.configure import compilation_cache
from s2pg.errors import UserError
from s2pg.io.atomic import SUFFIX, replacing
from s2pg.io.lock import NAME as LOCK
from s2pg.io.lock import locked
from s2pg.runs.start import start
from s2pg.study import local, ray, slurm
from s2pg.study.cells import ENDED, FAILED, RUNNING, STOPPED, Outcome, Progress, look
from s2pg.study.check import check
from s2pg.study.plan import RUNS, Cell, Study, read
from s2pg.study.share import leave_the_gpu, share
from s2pg.study.table import table
from s2pg.study.worker import PATIENCE_S

COPY = "study.toml"  # in the folder of a study, for those who look at it later
REFRESH_S = 1.0


@dataclass(frozen=True)
class RunStudy:
    """Train a grid of runs that a file describes: the same command starts, goes on and reports.

    Every cell is an ordinary run folder, DIR/runs/CELL; nothing else is remembered. All cells are
    checked before the first one trains. Cells that were killed or had no memory are tried again from
    their checkpoints, those that diverged are kept and counted. Ctrl-C stops at checkpoints, a second
    one at once. docs/studies.md says what a study file holds, studies/ has those of the paper.

    Examples:
      s2pg study studies/quick.toml
      s2pg study studies/quick.toml --status
      s2pg study studies/memory.toml --jobs 4 --out results/memory
      s2pg study studies/popgym.toml --on slurm > popgym.sh
    """

    computes: ClassVar[bool] = False  # its processes do

    file: Annotated[Positional[Path], arg(metavar="FILE.toml")]
    """study file"""
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: runs/FILE)")] = None
    """folder of the study"""
    on: Literal["local", "ray", "slurm"] = "local"
    """train here, in processes; on a Ray cluster that runs or is started for it; or print an array script for SLURM"""
    jobs: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: cores, or shares of GPUs)")] = None
    """runs at a time"""
    dry_run: bool = False
    """check and list all cells, and train none"""
    status: bool = False
    """say how far the cells are, and train none"""
    cell: Annotated[str | None, arg(metavar="CELL", help_behavior_hint="(default: all)")] = None
    """train this cell alone, in this process"""

    def __call__(self) -> int:
        folder = self.out or Path("runs") / self.file.stem
        study = read(self.file, folder)
        if not study.resources.gpu:
            jax.config.update("jax_platforms", "cpu")
        if self.cell is not None:
            return _one(study, folder, self.cell)
        for note in study.notes:
            print(f"{self.file}: {note}", file=sys.stderr)
        if self.status:
            return _show(study, {})
        if self.on == "ray":
            ray.package()
        leave_the_gpu(inherited=self.on == "slurm")
        shared = share(study.resources, self.jobs)
        part = {"ray": study.resources.gpu or 1.0, "slurm": 1.0}.get(self.on, shared.part)
        steps = {name: experiment.steps for name, experiment in check(study, part).items()}
        if self.dry_run:
            return _show(study, steps)
        todo = [cell for cell in study.cells if look(cell).state not in ENDED]
        _check_folder(folder)
        if todo:
            (folder / local.LOGS).mkdir(parents=True, exist_ok=True)
        if self.on == "slurm":
            if todo:
                _keep(study, folder)
                print(slurm.script(study, todo, folder, self.jobs))
            return 0
        stop, outcomes = local.Stop(), dict[str, Outcome]()
        if todo:
            with locked(folder, _say) as lock, stop.listening(), _watching(study, steps) as watch:
                _keep(study, folder)
                if self.on == "ray":
                    outcomes = ray.run(todo, folder, study.resources, self.jobs, lock.token, stop, watch)
                else:
                    outcomes = local.run(todo, folder, shared, study.resources.retries, stop, watch)
        _show(study, steps, outcomes)
        _tell_others(study, folder)
        if stop.asked:
            raise KeyboardInterrupt("stopped; the same command goes on")
        told = shlex.quote(str(folder))
        print(f"the runs are in {told}/{RUNS}; compare them with\n  s2pg report {told} -o report.html")
        return int(any(outcome.state not in ENDED for outcome in outcomes.values()))


def _one(study: Study, folder: Path, name: str) -> int:
    """Trains one cell here."""
    cells = {cell.name: cell for cell in study.cells}
    if name not in cells:
        raise UserError(f"{study.file} has no cell '{name}'; there are {', '.join(list(cells)[:3])} ...")
    _check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _keep(study, folder)  # first of all: others of its kind may begin at the same time
    compilation_cache()
    with watching(name) as watch:
        start(cells[name].request, report=watch.report, say=watch.say, patience=PATIENCE_S)
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _check_folder(folder: Path) -> None:
    """Refuses a folder with something else in it."""
    if folder.exists() and not (folder / COPY).exists():
        strange = not folder.is_dir() or any(
            path.name != LOCK and not path.name.endswith(SUFFIX) for path in folder.iterdir()
        )
        if strange:
            raise UserError(f"{folder} exists and is no study: --out names another folder")


def _keep(study: Study, folder: Path) -> None:
    """Copies the study file into the folder, for a report to find."""
    content, copy = study.file.read_bytes(), folder / COPY
    if not copy.exists() or copy.read_bytes() != content:
        with replacing(copy) as file:
            file.write(content)


def _progress(cell: Cell, steps: Mapping[str, int], outcomes: Mapping[str, Outcome]) -> Progress:
    found = look(cell)
    outcome = outcomes.get(cell.name)
    if outcome and outcome.state not in (*ENDED, STOPPED) and found.state not in ENDED:
        found = found._replace(state=FAILED, why=outcome.why)
    return found._replace(steps=steps.get(cell.name, found.steps))


def _show(study: Study, steps: Mapping[str, int], outcomes: Mapping[str, Outcome] | None = None) -> int:
    Console().print(table({cell.name: _progress(cell, steps, outcomes or {}) for cell in study.cells}))
    return 0


def _tell_others(study: Study, folder: Path) -> None:
    """Names runs in the folder that belong to no cell: the file may have changed since."""
    names = {cell.name for cell in study.cells}
    found = sorted(path.parent.name for path in (folder / RUNS).glob("*/config.json"))
    if others := [name for name in found if name not in names]:
        _say(f"of no cell of {study.file}: {', '.join(others)}")


@contextlib.contextmanager
def _watching(study: Study, steps: Mapping[str, int]) -> Iterator[local.Watch]:
    """A table on a terminal; elsewhere a line whenever a cell begins or ends."""
    console = Console(stderr=True)
    shown = {cell.name: _progress(cell, steps, {}) for cell in study.cells}
    cells = {cell.name: cell for cell in study.cells}
    live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
    looked = 0.0

    def watch(running: Collection[str], outcomes: Mapping[str, Outcome]) -> None:
        nonlocal looked
        changed = [name for name, before in shown.items() if (before.state == RUNNING) != (name in running)]
        for name in changed:
            found = _progress(cells[name], steps, outcomes)
            shown[name] = found._replace(state=RUNNING) if name in running else found
            if live is None:
                began = "begins" if shown[name].state == RUNNING else shown[name].state
                _say(f"{name}: {began}{': ' * bool(found.why)}{found.why}")
        if live is not None and time.monotonic() > looked + REFRESH_S:
            looked = time.monotonic()
            for name in running:
                shown[name] = _progress(cells[name], steps, {})._replace(state=RUNNING)
            live.update(table(shown, console.height - 4), refresh=True)

    with live or contextlib.nullcontext():
        yield watch
