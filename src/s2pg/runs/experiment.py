"""A request with every name checked and every value filled in, and the `config.json` that keeps it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from s2pg.algorithms import Algorithm, find_algorithm
from s2pg.config import build, hyper, labels, presets
from s2pg.config.presets import Situation
from s2pg.envs.base import Env
from s2pg.envs.host import HostTask
from s2pg.envs.tasks import describe
from s2pg.errors import UserError
from s2pg.io import provenance
from s2pg.io.folder import CONFIG, READABLE, SCHEMA, read_object
from s2pg.io.sinks import write_object
from s2pg.runs import training
from s2pg.runs.request import Request
from s2pg.types import Box, Discrete, MultiDiscrete, Spec


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
        """The algorithm that this describes."""
        return build.build(self.algorithm, spec, labels.parse(self.memory), self.kernel, self.critic, self.hyper)


def resolve(request: Request, env: Env | HostTask) -> tuple[Experiment, Algorithm]:
    """Checks every name and number, and fills in presets; `env` is the task that the request names."""
    choice = labels.parse(request.memory)
    find_algorithm(request.algorithm)
    kernel = request.kernel or choice.label.kernel
    task, options = describe(env)
    spec = env.spec  # looked up once: a task may have to trace itself for it
    build.check(request.algorithm, choice, kernel, spec)
    situation = Situation(task, options.get("backend"), choice.label.pattern, kernel)
    preset = presets.values(request.algorithm, situation)
    request.check()
    steps = preset.steps if request.steps is None else request.steps
    given = hyper.parse(request.algorithm, kernel, request.hyper)
    full = presets.resolve(request.algorithm, preset, choice, kernel, spec, given, steps)
    critic = request.critic or preset.critic
    episodes = (64 if isinstance(env, Env) else 10) if request.episodes is None else request.episodes
    built = build.build(request.algorithm, spec, choice, kernel, critic, full)
    chunk = training.updates_per_chunk(built.plan, steps, request.borders)
    options = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
    found = Experiment(
        request.algorithm, task, options, request.memory, kernel, critic, full, steps, request.seeds, chunk, episodes
    )
    return found, built


def write_config(out: Path, experiment: Experiment, spec: Spec, demos: Path | None = None, devices: int = 1) -> None:
    """Writes `config.json`; of demonstrations it keeps the name, checkpoints keep their fingerprint.

    How many devices share the lanes is a note on hardware: a run may go on with another number.
    """
    facts: dict[str, Any] = {"demos": demos.name} if demos else {}
    facts |= {"versions": provenance.versions(), "hardware": provenance.hardware() | {"devices_used": devices}}
    config = {"schema": SCHEMA, **dataclasses.asdict(experiment), "spec": _spec_to_json(spec), **facts}
    write_object(out / CONFIG, config)


def read_config(out: Path) -> tuple[Experiment, Spec]:
    """The experiment and the task's spec of a run folder."""
    config = _load(out)
    try:
        fields: dict[str, Any] = {field.name: config[field.name] for field in dataclasses.fields(Experiment)}
        fields["seeds"] = tuple(fields["seeds"])
        # A run from before a hyper-parameter was there has its default. One whose default changed what is learned asks
        # for another schema: such a run would go on as something else.
        fields["hyper"] = hyper.defaults(fields["algorithm"], fields["kernel"]) | fields["hyper"]
        return Experiment(**fields), _spec_from_json(config["spec"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(out, error) from error


def check_resumable(out: Path) -> None:
    """Refuses to go on with a run whose training state this version cannot read."""
    config = _load(out)
    if config["schema"] != SCHEMA:
        version = dict(config.get("versions", {})).get("s2pg", "an earlier version")
        raise UserError(f"{out} was made by s2pg {version} and can be evaluated, not resumed: train it anew")


def _load(out: Path) -> dict[str, Any]:
    training.require_run(out)
    config = read_object(out / CONFIG)
    schema = config.get("schema")
    if not isinstance(schema, int) or schema not in READABLE:
        known = ", ".join(map(str, READABLE))
        raise UserError(f"{out} has schema {schema!r}; this version of s2pg reads {known}")
    return config


def _damaged(out: Path, error: Exception) -> UserError:
    return UserError(f"{out / CONFIG} is damaged: {type(error).__name__} {error}")


def _spec_to_json(spec: Spec) -> dict[str, Any]:
    space = dataclasses.asdict(spec.action)
    if isinstance(spec.action, Box):  # as text: JSON knows no infinity
        space |= {side: [str(x) for x in space[side]] for side in ("low", "high")}
    return {"views": spec.views, "action": space, "horizon": spec.horizon, "dt": spec.dt}


def _spec_from_json(spec: dict[str, Any]) -> Spec:
    action = spec["action"]
    shape = None if action.get("shape") is None else tuple(action["shape"])
    if "n" in action:
        space = Discrete(action["n"], action["start"])
    elif "sizes" in action:
        space = MultiDiscrete(tuple(action["sizes"]), tuple(action["start"]), shape)
    else:
        space = Box(tuple(map(float, action["low"])), tuple(map(float, action["high"])), shape)
    return Spec(views=spec["views"], action=space, horizon=spec["horizon"], dt=spec.get("dt", 1.0))
