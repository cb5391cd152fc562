"""Starts a run, or goes on with one: what `s2pg train` and `s2pg.train` do."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxtyping import PyTree

from s2pg.actor import Actor
from s2pg.algorithms import Algorithm, Imitator, Student
from s2pg.config import labels
from s2pg.envs.base import Env
from s2pg.envs.host import HostTask
from s2pg.envs.mujoco.robots import ROBOTS
from s2pg.envs.mujoco.task import told_backend
from s2pg.envs.tasks import describe, make
from s2pg.errors import UserError
from s2pg.io.atomic import SUFFIX
from s2pg.io.lock import NAME as LOCK
from s2pg.io.lock import Lock, locked
from s2pg.io.trackers import Tracker, find_trackers
from s2pg.loops import layout
from s2pg.runs import training
from s2pg.runs.demonstrated import demonstrated
from s2pg.runs.experiment import Experiment, check_resumable, read_config, resolve, write_config
from s2pg.runs.request import Request
from s2pg.runs.run import Run
from s2pg.types import CRITIC, Expert


def train(
    algorithm: str,
    env: str | Env | HostTask,
    *,
    memory: str = "s2pg",
    kernel: str | None = None,
    critic: str | None = None,
    hyper: Mapping[str, Any] | None = None,
    steps: int | None = None,
    seeds: Sequence[int] = (0,),
    out: str | Path | None = None,
    resume: bool = False,
    episodes: int | None = None,
    borders: int = 50,
    demos: str | Path | None = None,
    log: str | Sequence[str] | None = None,
    devices: int = 1,
    shared: PyTree = (),
    report: Callable[[training.Border], None] = lambda border: None,
    say: Callable[[str], None] = print,
) -> Run:
    """Trains a policy and returns its run.

    `env` is a task's name or what `s2pg.make` returned; `memory` a label such as s2pg, bptt-8, window-8, none or
    oracle; `critic` the view the critic reads, "policy" or "critic" (privileged). What is left out comes from the
    presets. The run folder is `out`, by default runs/TASK-ALGORITHM-MEMORY, with another kernel than the usual one
    -KERNEL. There are about `borders` evaluations and checkpoints on the way. `demos` is a file or folder of
    demonstrations, which gail, lsiq and bc learn from (docs/demos.md), or the run that distill asks. `log` names
    one tracker or several, tensorboard, wandb or your own (`register_tracker`); left out, TensorBoard if installed.
    `devices` of this machine share the lanes of a task that runs on them. `shared` are arrays that an algorithm of your
    own reads in every seed: one copy for all, in no checkpoint.
    """
    env = make(env) if isinstance(env, str) else env
    task, options = describe(env)
    request = Request(
        algorithm, task, options, memory, kernel, critic, hyper or {}, steps, tuple(seeds), episodes, borders,
        Path(out) if out else None, resume, Path(demos) if demos else None,
        None if log is None else (log,) if isinstance(log, str) else tuple(log), devices,
    )  # fmt: skip
    return start(request, env, shared=shared, report=report, say=say)


def start(
    request: Request,
    env: Env | HostTask | None = None,
    *,
    shared: PyTree = (),
    report: Callable[[training.Border], None] = lambda border: None,
    say: Callable[[str], None] = print,
    patience: float = 0.0,
) -> Run:
    """Does what a request asks for; `env` is its task, if that has been made already.

    Nobody else may write to the run folder meanwhile: where another process does, it is waited for `patience` seconds.
    """
    env = make(request.task, **request.options) if env is None else env
    out = request.folder
    _check_folder(request)
    with _writing(out, say, patience) as lock:
        experiment, built, shared, trackers = prepare(request, env, shared=shared, say=say)
        if experiment.task in ROBOTS:
            say(told_backend(experiment.task, experiment.options["backend"]))
        if not (out / training.CONFIG).exists() or experiment.steps > read_config(out)[0].steps:
            write_config(out, experiment, env.spec, request.demos, request.devices)
        schedule = experiment.hyper.get("anneal_updates", 0) * built.plan.lanes * built.plan.steps
        if 0 < schedule < experiment.steps - built.plan.lanes * built.plan.steps:
            say(f"the learning rate reaches 0 after {schedule:,} steps; what follows learns nothing")
        training.train(
            built, env, seeds=experiment.seeds, steps=experiment.steps, out=out, chunk=experiment.chunk,
            episodes=experiment.episodes, resume=request.resume, shared=shared, trackers=trackers,
            devices=request.devices,
            report=report, say=say, guard=lock.check,
        )  # fmt: skip
    return Run(out)


class Prepared(NamedTuple):
    """What a request comes to."""

    experiment: Experiment
    algorithm: Algorithm
    shared: PyTree
    trackers: list[type[Tracker]]


def prepare(
    request: Request,
    env: Env | HostTask,
    *,
    shared: PyTree = (),
    share: float = 1.0,
    say: Callable[[str], None] = lambda line: None,
) -> Prepared:
    """Refuses everything that can be wrong with a request before anything is computed or written.

    A run that is there decides what has to be the same. `share` is the part of the device that the run will have.
    """
    experiment, built = resolve(request, env)
    out, spec = request.folder, env.spec
    _check_folder(request)
    if (out / training.CONFIG).exists():
        experiment = _same(out, experiment, request)
        built = experiment.build(spec)
    layout.check(request.devices, env, built.plan.lanes)
    if labels.parse(experiment.memory).label.needs_slope and experiment.critic != CRITIC:
        say(f"{experiment.memory} learns memory through its critic; the policy's view seldom tells that enough")
    shared = demonstrated(built, experiment, spec, request.demos, say) if request.demos else shared
    if isinstance(built, Imitator) and not isinstance(shared, Expert):
        raise UserError(f"{experiment.algorithm} learns from demonstrations: name a file with --demos (docs/demos.md)")
    if isinstance(built, Student) and not isinstance(shared, Actor):
        raise UserError(f"{experiment.algorithm} learns from a teacher: name its run with --demos, or use s2pg distill")
    training.check(built, spec, experiment.seeds, experiment.steps, shared, share)
    return Prepared(experiment, built, shared, find_trackers(request.log))


def _check_folder(request: Request) -> None:
    """Refuses a folder that is not the request's to write to."""
    out = request.folder
    if (out / training.CONFIG).exists():
        if not request.resume:
            raise UserError(f"{out} is a run already: --resume goes on with it, --out names another folder")
    elif out.exists() and not _vacant(out):
        raise UserError(f"{out} exists and is no run: name another folder")


@contextlib.contextmanager
def _writing(out: Path, say: Callable[[str], None], patience: float) -> Iterator[Lock]:
    """Makes the run folder and holds its lock; takes back the folders that it made where nothing was written."""
    made = [path for path in (out, *out.parents) if not path.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {out}: {error.strerror}") from error
    try:
        with locked(out, say, patience) as lock:
            yield lock
    finally:
        with contextlib.suppress(OSError):  # one is not empty
            for path in made:
                path.rmdir()


def _vacant(out: Path) -> bool:
    """A folder with nothing in it, but for what a process killed while it wrote its configuration may leave."""
    return out.is_dir() and all(path.name == LOCK or path.name.endswith(SUFFIX) for path in out.iterdir())


def _same(out: Path, asked: Experiment, request: Request) -> Experiment:
    """The run's own experiment with the steps asked for, if any were; refuses where anything else differs."""
    check_resumable(out)
    before, _ = read_config(out)
    # What followed from the first `steps` stays: the length of a chunk, and of a schedule that nobody asked for.
    kept = {"anneal_updates"} & before.hyper.keys() if "anneal_updates" not in request.hyper else set()
    schedule = {name: before.hyper[name] for name in kept}
    steps = before.steps if request.steps is None else asked.steps
    asked = dataclasses.replace(asked, steps=steps, chunk=before.chunk, hyper=asked.hyper | schedule)
    for field in dataclasses.fields(Experiment):
        old, new = getattr(before, field.name), getattr(asked, field.name)
        if isinstance(old, dict):  # of many entries, name those that differ
            changed = [name for name in old.keys() | new.keys() if old.get(name) != new.get(name)]
            old, new = ({name: each.get(name) for name in sorted(changed)} for each in (old, new))
        if field.name != "steps" and old != new:
            raise UserError(f"cannot resume {out}: {field.name} was {old} and is now {new}; only steps may differ")
    return asked
