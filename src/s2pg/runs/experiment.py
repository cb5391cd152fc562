"""One training run by names: what `s2pg train` and `s2pg.train` do, and how to load what they leave."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from s2pg.actor import Actor
from s2pg.algorithms import Algorithm
from s2pg.config import methods
from s2pg.config import oldpresets as presets
from s2pg.envs.base import Env
from s2pg.envs.host import HostTask
from s2pg.envs.mujoco.task import MJX_ONLY
from s2pg.envs.tasks import describe, make, prefix_of
from s2pg.errors import UserError
from s2pg.io import checkpoint, provenance
from s2pg.io.atomic import SUFFIX
from s2pg.io.sinks import Row, read_metrics, write_json
from s2pg.runs import training
from s2pg.runs.session import Session
from s2pg.types import Box, Discrete, Spec

SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Everything needed to repeat a run; all values resolved."""

    algorithm: str
    task: str
    options: dict[str, Any]
    memory: str
    kernel: str
    critic: str
    hyper: dict[str, Any]
    steps: int
    seeds: tuple[int, ...]
    chunk: int
    episodes: int

    def build(self, spec: Spec) -> Algorithm:
        return methods.build(self.algorithm, spec, methods.parse(self.memory), self.kernel, self.critic, self.hyper)


def resolve(
    algorithm: str,
    env: Env | HostTask,
    *,
    memory: str = "s2pg",
    kernel: str | None = None,
    critic: str | None = None,
    hyper: dict[str, Any] | None = None,
    steps: int | None = None,
    seeds: Sequence[int] = (0,),
    episodes: int | None = None,
    borders: int = 50,
) -> tuple[Experiment, Algorithm]:
    """Checks every name and number, and fills in presets."""
    label = methods.parse(memory)
    methods.algorithm_class(algorithm)
    kernel = kernel or label.default_kernel
    task, options = describe(env)
    methods.check(algorithm, label, kernel, env.spec)
    place = presets.place(task, options)
    steps = presets.default_steps(algorithm, place, label) if steps is None else steps
    if type(steps) is not int or steps < 1:
        raise UserError(f"steps must be a whole number of 1 or more, not {steps}")
    given = methods.parse_hyper(algorithm, kernel, hyper or {})
    full = presets.resolve(algorithm, place, label, kernel, env.spec, given, steps)
    critic = critic or presets.default_critic(algorithm, place, label)
    whole = seeds and all(type(seed) is int for seed in seeds)
    if not whole or len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) >= 2**32:
        raise UserError(f"seeds must be different whole numbers from 0 to 2^32 - 1, not {list(seeds)}")
    episodes = (64 if isinstance(env, Env) else 10) if episodes is None else episodes
    if episodes < 1:
        raise UserError(f"episodes must be 1 or more, not {episodes}")
    if borders < 1:
        raise UserError(f"borders must be 1 or more, not {borders}")
    built = methods.build(algorithm, env.spec, label, kernel, critic, full)
    chunk = training.updates_per_chunk(built, steps, borders)
    options = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
    return (
        Experiment(algorithm, task, options, memory, kernel, critic, full, steps, tuple(seeds), chunk, episodes),
        built,
    )


def _config(experiment: Experiment, spec: Spec) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        **dataclasses.asdict(experiment),
        "spec": _spec_to_json(spec),
        "versions": provenance.versions(),
        "hardware": provenance.hardware(),
    }


def _spec_to_json(spec: Spec) -> dict[str, Any]:
    action = spec.action
    if isinstance(action, Box):  # as text: JSON knows no infinity
        space: dict[str, Any] = {"low": [str(x) for x in action.low], "high": [str(x) for x in action.high]}
        space["shape"] = action.shape
    else:
        space = {"n": action.n, "start": action.start}
    return {"views": spec.views, "action": space, "horizon": spec.horizon, "dt": spec.dt}


def _spec_from_json(spec: dict[str, Any]) -> Spec:
    action = spec["action"]
    if "n" in action:
        space = Discrete(action["n"], action["start"])
    else:
        shape = None if action["shape"] is None else tuple(action["shape"])
        space = Box(tuple(map(float, action["low"])), tuple(map(float, action["high"])), shape)
    return Spec(views=spec["views"], action=space, horizon=spec["horizon"], dt=spec.get("dt", 1.0))


def read_config(out: Path) -> tuple[Experiment, Spec]:
    training.require_run(out)
    try:
        config = json.loads((out / training.CONFIG).read_text())
        if config.get("schema") != SCHEMA:
            raise UserError(f"{out} has schema {config.get('schema')!r}; this version of s2pg reads {SCHEMA}")
        fields: dict[str, Any] = {field.name: config[field.name] for field in dataclasses.fields(Experiment)}
        fields["seeds"] = tuple(fields["seeds"])
        # A run from before a hyper-parameter was there has its default.
        fields["hyper"] = methods.hyper_defaults(fields["algorithm"], fields["kernel"]) | fields["hyper"]
        return Experiment(**fields), _spec_from_json(config["spec"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{out / training.CONFIG} is damaged: {type(error).__name__} {error}") from error


def default_folder(task: str, algorithm: str, memory: str, kernel: str | None = None) -> Path:
    """runs/TASK-ALGORITHM-MEMORY, and -KERNEL where it is not the one that goes with the memory rule."""
    other = f"-{kernel}" if kernel not in (None, methods.parse(memory).default_kernel) else ""
    return Path("runs") / f"{task}-{algorithm}-{memory}{other}".replace(":", "-").replace("/", "-")


def train(
    algorithm: str,
    env: str | Env | HostTask,
    *,
    memory: str = "s2pg",
    kernel: str | None = None,
    critic: str | None = None,
    hyper: dict[str, Any] | None = None,
    steps: int | None = None,
    seeds: Sequence[int] = (0,),
    out: str | Path | None = None,
    resume: bool = False,
    episodes: int | None = None,
    borders: int = 50,
    report: Callable[[training.Border], None] = lambda border: None,
    say: Callable[[str], None] = print,
) -> Run:
    """Trains a policy and returns its run.

    `env` is a task's name or what `s2pg.make` returned; `memory` a label such as s2pg, bptt-8, window-8, none or
    oracle; `critic` the view the critic reads, "policy" or "critic" (privileged). What is left out comes from the
    presets. The run folder is `out`, by default runs/TASK-ALGORITHM-MEMORY, with another kernel than the usual one
    -KERNEL. There are about `borders` evaluations and checkpoints on the way.
    """
    env = make(env) if isinstance(env, str) else env
    experiment, built = resolve(
        algorithm, env, memory=memory, kernel=kernel, critic=critic, hyper=hyper, steps=steps, seeds=seeds,
        episodes=episodes, borders=borders,
    )  # fmt: skip
    out = Path(out) if out else default_folder(experiment.task, algorithm, memory, experiment.kernel)
    if (out / training.CONFIG).exists():
        if not resume:
            raise UserError(f"{out} is a run already: --resume goes on with it, --out names another folder")
        experiment = _same(out, experiment, own_steps=steps is None, own_schedule="anneal_updates" not in (hyper or {}))
        built = experiment.build(env.spec)
    elif out.exists() and not _vacant(out):
        raise UserError(f"{out} exists and is no run: name another folder")
    if experiment.memory == "s2pg-pathwise" and experiment.critic != "critic":
        say("s2pg-pathwise learns memory through its critic; one that reads the policy's view seldom knows enough")
    training.check(built, env.spec, experiment.seeds, experiment.steps)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {out}: {error.strerror}") from error
    if not (out / training.CONFIG).exists() or experiment.steps > read_config(out)[0].steps:
        write_json(out / training.CONFIG, _config(experiment, env.spec))
    schedule = experiment.hyper.get("anneal_updates", 0) * built.lanes * built.steps
    if 0 < schedule < experiment.steps - built.lanes * built.steps:
        say(f"the learning rate reaches 0 after {schedule:,} steps; what follows learns nothing")
    training.train(
        built, env, seeds=experiment.seeds, steps=experiment.steps, out=out, chunk=experiment.chunk,
        episodes=experiment.episodes, resume=resume, report=report, say=say,
    )  # fmt: skip
    return Run(out)


def _vacant(out: Path) -> bool:
    """A folder with nothing in it, but for what a process killed while it wrote its configuration may leave."""
    return out.is_dir() and all(path.name.endswith(SUFFIX) for path in out.iterdir())


def _same(out: Path, asked: Experiment, own_steps: bool, own_schedule: bool) -> Experiment:
    """The run's own experiment with the steps asked for, if any were; refuses where anything else differs."""
    before, _ = read_config(out)
    # What followed from the first `steps` stays: the length of a chunk, and of a schedule that nobody asked for.
    kept = {"anneal_updates"} & before.hyper.keys() if own_schedule else set()
    schedule = {name: before.hyper[name] for name in kept}
    steps = before.steps if own_steps else asked.steps
    asked = dataclasses.replace(asked, steps=steps, chunk=before.chunk, hyper=asked.hyper | schedule)
    for field in dataclasses.fields(Experiment):
        old, new = getattr(before, field.name), getattr(asked, field.name)
        if isinstance(old, dict):  # of many entries, name those that differ
            changed = [name for name in old.keys() | new.keys() if old.get(name) != new.get(name)]
            old, new = ({name: each.get(name) for name in sorted(changed)} for each in (old, new))
        if field.name != "steps" and old != new:
            raise UserError(f"cannot resume {out}: {field.name} was {old} and is now {new}; only steps may differ")
    return asked


class Run:
    """A run folder: its configuration, metrics and policies."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.experiment, self.spec = read_config(self.path)

    @property
    def metrics(self) -> list[Row]:
        return read_metrics(self.path / training.METRICS)

    def env(self, **other: Any) -> Env | HostTask:
        """Its task, with other options where they are given."""
        own = self.experiment.options
        if other.get("backend", own.get("backend")) != own.get("backend"):  # what is said of one is not of the other
            own = {name: value for name, value in own.items() if name not in MJX_ONLY}
        return make(self.experiment.task, **own | other)

    def policy(self, seed: int | None = None, explore: bool = False) -> Policy:
        seed = self.experiment.seeds[0] if seed is None else seed
        if seed not in self.experiment.seeds:
            raise UserError(f"{self.path} has no seed {seed}; it has {', '.join(map(str, self.experiment.seeds))}")
        file = training.policy_file(self.path, seed)
        if not file.exists():
            raise UserError(f"{self.path} has no policy yet: it was stopped before its first checkpoint")
        built = self.experiment.build(self.spec)
        state = eqx.filter_eval_shape(lambda key: built.init(self.spec, key=key), jax.random.key(0))
        found, _ = checkpoint.load(file, {"kernel": state.kernel, "normaliser": state.normaliser})
        # A robot's hidden entries are not in its policy's view at all; those of others are seen as 0.
        hide = self.experiment.options.get("hide", ()) if prefix_of(self.experiment.task) else ()
        return Policy(built.actor(state._replace(**found), explore), self.spec, tuple(hide))


@dataclasses.dataclass(frozen=True)
class Policy:
    """A trained policy."""

    actor: Actor
    spec: Spec
    hide: tuple[int, ...] = ()  # entries of a Gymnasium observation that it was trained without

    def session(self, explore: bool = False, seed: int = 0) -> Session:
        """An object that keeps z for the caller: `a = session(obs)`, `session.reset()`."""
        return Session(dataclasses.replace(self.actor, explore=explore), self.spec, seed, self.hide)


def load(run: str | Path, seed: int | None = None) -> Policy:
    """The policy of a run; of its first seed unless one is named."""
    return Run(run).policy(seed)
