"""Where rows of metrics go beside `metrics.jsonl`: TensorBoard, Weights & Biases, a class of your own."""

from __future__ import annotations

import abc
import contextlib
import functools
import importlib.util
import inspect
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, final

from s2pg.errors import UserError, unknown
from s2pg.io.atomic import replacing
from s2pg.io.folder import CONFIG, EVENTS, read_object
from s2pg.io.sinks import Row, plain


class Tracker(abc.ABC):
    """Shows what a run logs somewhere else; made anew by every process that trains it.

    `folder` is the run folder, which holds `config.json`. A resumed run logs rows after step `resumed`, some of which
    an earlier process may have logged too; in a new run it is None.
    """

    @abc.abstractmethod
    def __init__(self, folder: Path, resumed: int | None) -> None: ...

    @abc.abstractmethod
    def write(self, rows: Sequence[Row]) -> None:
        """Takes the rows of a border, one a seed: `step`, `seed` and named numbers."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the tracking, after the last row or an error."""

    @classmethod
    @abc.abstractmethod
    def check(cls) -> None:
        """Refuses, by a `UserError`, what is missing for it; called before anything is computed or written."""


def scalars(row: Row) -> dict[str, int | float]:
    """The finite numbers of a row, `step` and `seed` aside, named as curves: `name/seed-k`."""
    values = {name: plain(value) for name, value in row.items() if name not in ("step", "seed")}
    return {f"{name}/seed-{row.get('seed', 0)}": x for name, x in values.items() if isinstance(x, int | float)}


@final
class TensorBoard(Tracker):
    """Writes TensorBoard events into the run folder. It hides what older files say after the step of a resumed run."""

    def __init__(self, folder: Path, resumed: int | None) -> None:
        import tensorboardX

        purge_step = None if resumed is None else resumed + 1
        self._writer = tensorboardX.SummaryWriter(str(folder / EVENTS), purge_step=purge_step)

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            for name, value in scalars(row).items():
                self._writer.add_scalar(name, value, int(row["step"]))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    @classmethod
    def check(cls) -> None:
        _require("tensorboard", "tensorboardX", "logging")


@final
class WeightsAndBiases(Tracker):
    """Logs to Weights & Biases, or with WANDB_MODE=offline into the run folder; WANDB_PROJECT names the project.

    A run keeps its id, so that a resumed one goes on there. The metrics, `config.json` and wandb's own telemetry (its
    version, Python's, the platform) are sent: no code, no output, no list of packages, nothing else of the machine.
    """

    def __init__(self, folder: Path, resumed: int | None) -> None:
        import wandb  # pyright: ignore[reportMissingImports]

        quiet = wandb.Settings(
            console="off", silent=True, disable_git=True, disable_code=True, x_disable_meta=True, x_disable_stats=True,
            x_save_requirements=False, host="",
        )  # fmt: skip
        # A run that is open already may be offline, whatever the environment says: ours goes where it is.
        mode = wandb.run.settings.mode if wandb.run is not None else None
        self._run = wandb.init(
            mode=mode, project=os.environ.get("WANDB_PROJECT", "s2pg"), name=folder.resolve().name, id=_own_id(folder),
            dir=str(folder), config=read_object(folder / CONFIG), resume="allow", reinit="create_new", settings=quiet,
        )  # fmt: skip
        self._run.define_metric("*", step_metric="step")

    def write(self, rows: Sequence[Row]) -> None:
        seeds = [scalars(row) for row in rows]
        self._run.log({"step": int(rows[0]["step"])} | {name: x for each in seeds for name, x in each.items()})

    def close(self) -> None:
        self._run.finish()

    @classmethod
    def check(cls) -> None:
        _require("wandb", "wandb", "wandb")
        import wandb  # pyright: ignore[reportMissingImports]

        # Where a run is open already, ours needs no more than that, and nobody can log in.
        if os.environ.get("WANDB_MODE", "online") != "online" or wandb.run is not None:
            return
        try:
            known = wandb.login(prompt=False, verify=False)  # no server is asked: a run outlives one that is away
        except (wandb.errors.AuthenticationError, ValueError) as error:
            raise UserError(f"--log wandb cannot log in: {' '.join(str(error).split())}") from error
        if not known:
            raise UserError("--log wandb has no account here: `wandb login` names one, WANDB_MODE=offline needs none")


def _own_id(folder: Path) -> str:
    """The id under which the run is known there, drawn once."""
    file = folder / "wandb" / "id"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        with replacing(file) as opened:
            opened.write(secrets.token_hex(4).encode())
    return file.read_text()


def _require(name: str, package: str, extra: str) -> None:
    if not _installed(package):
        raise UserError(f"--log {name} needs the package {package}: pip install 's2pg[{extra}]'")


def _installed(package: str) -> bool:
    if package in sys.modules:
        return sys.modules[package] is not None
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None  # a mere folder of that name has none


TRACKERS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def register_tracker(name: str, tracker: type) -> None:
    """Makes a tracker of your own known to `s2pg.train(..., log=[name])`."""
    if not (isinstance(tracker, type) and issubclass(tracker, Tracker)):
        raise UserError(f"tracker '{name}' must be a subclass of s2pg.io.trackers.Tracker, not {tracker!r}")
    known = TRACKERS.get(name, tracker)
    if (known.__module__, known.__qualname__) != (tracker.__module__, tracker.__qualname__):
        raise UserError(f"there is a tracker '{name}' already: {known.__name__}")
    if inspect.isabstract(tracker):
        raise UserError(f"tracker '{name}' is unfinished: it has no {', '.join(sorted(tracker.__abstractmethods__))}")
    TRACKERS[name] = tracker


def find_trackers(names: Sequence[str] | None) -> list[type[Tracker]]:
    """The trackers of these names, each with all that it needs; for None TensorBoard, where it is installed."""
    if names is None:
        return [TensorBoard] if _tensorboard_or_line() else []
    found = []
    for name in dict.fromkeys(names):
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
        TRACKERS[name].check()
        found.append(TRACKERS[name])
    return found


@functools.cache
def _tensorboard_or_line() -> bool:
    """Whether it is installed; if not, says so once."""
    if found := _installed("tensorboardX"):
        return found
    print("tensorboardX is not installed: no TensorBoard events (pip install 's2pg[logging]')", file=sys.stderr)
    return False


@contextlib.contextmanager
def tracking(
    trackers: Iterable[type[Tracker]], folder: Path, resumed: int | None, say: Callable[[str], None]
) -> Iterator[Callable[[Sequence[Row]], None]]:
    """Hands out a function that shows rows to all trackers. One that fails is told and left: a run outlives it."""
    opened: list[Tracker] = []

    def attempt(tracker: type[Tracker], act: Callable[[], Any]) -> bool:
        try:
            act()
        except Exception as error:
            why = f"{type(error).__name__}: {' '.join(str(error).split())}"
            say(f"{tracker.__name__} failed ({why}): the run goes on without it")
            return False
        return True

    for each in trackers:
        attempt(each, lambda each=each: opened.append(each(folder, resumed)))

    def write(rows: Sequence[Row]) -> None:
        for tracker in list(opened):
            if not attempt(type(tracker), functools.partial(tracker.write, rows)):
                opened.remove(tracker)
                with contextlib.suppress(Exception):  # it was told already
                    tracker.close()

    try:
        yield write
    finally:
        for tracker in opened:
            attempt(type(tracker), tracker.close)
