"""The tasks by name: `make("recall", k=32)`, and back again with `describe`."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
import weakref
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from s2pg.envs import brax, gymnasium, gymnax, playground
from s2pg.envs.base import Env
from s2pg.envs.gymnasium import GymTask
from s2pg.envs.host import HostTask
from s2pg.envs.mujoco.task import ROBOT_TASKS
from s2pg.envs.pendulum import MaskedPendulum
from s2pg.envs.pointmass import PointMassDoor, PointMassGoal
from s2pg.envs.recall import Recall
from s2pg.envs.repeat import RepeatFirst, RepeatPrevious
from s2pg.errors import UserError, unknown
from s2pg.options import Setting, argument_settings, field_settings, literal, parse_all

Task = Env | HostTask
Maker = Callable[..., Task]  # a class or a function; a subclass of Env, as a rule

TASKS: dict[str, Maker] = {
    "pointmass-goal": PointMassGoal,
    "pointmass-door": PointMassDoor,
    "recall": Recall,
    "repeat-previous": RepeatPrevious,
    "repeat-first": RepeatFirst,
    "masked-pendulum": MaskedPendulum,
    **ROBOT_TASKS,
}
BUILT_IN = frozenset(TASKS)
# Environments of other libraries: what makes one from its name, prefix included, and options that it checks itself.
PREFIXES: dict[str, Maker] = {
    gymnasium.PREFIX: GymTask,
    brax.PREFIX: brax.make,
    playground.PREFIX: playground.make,
    gymnax.PREFIX: gymnax.make,
}
OTHERS = {
    gymnasium.PREFIX: "Any Gymnasium environment, such as gym:Pendulum-v1.",
    brax.PREFIX: "A Brax environment: brax:ant (s2pg[brax]).",
    playground.PREFIX: "A MuJoCo Playground environment (s2pg[playground]).",
    gymnax.PREFIX: "A gymnax environment: gymnax:CartPole-v1 (s2pg[gymnax]).",
}
WIDTH = 56  # of a description: it stands in a table of a terminal of 80 columns
# What tasks that do not know it were made as, for as long as they live. By identity: equal ones may have other names.
_MADE: dict[int, tuple[str, dict[str, Any]]] = {}


@runtime_checkable
class _Named(Protocol):
    """A task that knows what it was made as."""

    @property
    def id(self) -> str: ...

    @property
    def options(self) -> dict[str, Any]: ...


@runtime_checkable
class _Settings(Protocol):
    """A maker that lists what it can be given, where its signature does not."""

    def settings(self) -> dict[str, Setting]: ...


def register_task(name: str, maker: Maker) -> None:
    """Makes a task of the user's own known by name.

    `maker` is a subclass of `s2pg.envs.base.Env`, or a class or function that returns such a task or a `HostTask`.
    Its fields or arguments are the options of the task.
    """
    prefix = prefix_of(name)
    if prefix:
        raise UserError(f"task name '{name}' must not begin with '{prefix}'")
    if not callable(maker):
        raise UserError(f"task '{name}' must be a class or a function, not {maker!r}")
    if TASKS.get(name, maker) is not maker:
        raise UserError(f"task name '{name}' is taken by {getattr(TASKS[name], '__name__', TASKS[name])}")
    TASKS[name] = maker


def descriptions() -> dict[str, str]:
    """Describes each task in one short line, the first of its docstring; those of other libraries stand last."""
    lines = {name: (maker.__doc__ or "").strip().partition("\n")[0] for name, maker in TASKS.items()}
    lines |= {f"{prefix}ID": text for prefix, text in OTHERS.items()}
    return {name: textwrap.shorten(line, WIDTH, placeholder=" ...") for name, line in lines.items()}


def about(task: str) -> str:
    """Describes a task at length: its docstring, or that of what makes environments of its library."""
    maker = _maker(task)
    return inspect.cleandoc(maker.__doc__ or "")


def task_settings(task: str) -> dict[str, Setting]:
    """Lists the options of a task; those of other libraries take more, which go to what makes the environment."""
    maker = _maker(task)
    if isinstance(maker, _Settings):
        return maker.settings()
    found = argument_settings(maker)
    if isinstance(maker, type) and issubclass(maker, Env):
        declared = field_settings(maker)
        return {name: declared.get(name, setting) for name, setting in found.items()}
    return {name: setting for name, setting in found.items() if not (prefix_of(task) and name == "id")}


def make(task: str, **options: Any) -> Task:
    """Makes a task from its name and options; values may come as text, as they do from a command line."""
    maker, settings = _maker(task), task_settings(task)

    def one(name: str) -> str:
        return f"{name} of {task}"

    if prefix_of(task):
        values = {name: literal(value) for name, value in options.items()}
        known = {name: settings[name].parse(one(name), values[name]) for name in settings if name in values}
        return maker(task, **values | known)
    values = parse_all(settings, options, f"option of task {task}", one)
    for name, setting in settings.items():
        if setting.required and name not in values:
            raise UserError(f"task {task} needs the option '{name}'")
    made = maker(**values)
    if not isinstance(made, Env | HostTask):
        raise UserError(f"task '{task}' made a {type(made).__name__}, which is neither an Env nor a HostTask")
    own = _own_description(made)
    if own is None or own[0] != task:
        _MADE[id(made)] = task, values
        weakref.finalize(made, _MADE.pop, id(made), None)
    return made


def describe(env: Task) -> tuple[str, dict[str, Any]]:
    """Tells how to make it again: `name, options = describe(env)`, then `make(name, **options)`."""
    found = _MADE.get(id(env)) or _own_description(env)
    if found is None:
        raise UserError(f"{type(env).__name__} has no name as a task; give it one with register_task")
    return found


def prefix_of(task: str) -> str | None:
    """Tells which library's environment a task is, if it is one's."""
    return next((prefix for prefix in PREFIXES if task.startswith(prefix)), None)


def _maker(task: str) -> Maker:
    prefix = prefix_of(task)
    if not prefix and task not in TASKS:
        raise unknown("task", task, [*TASKS, *(f"{prefix}<id>" for prefix in PREFIXES)])
    return PREFIXES[prefix] if prefix else TASKS[task]


def _own_description(env: Task) -> tuple[str, dict[str, Any]] | None:
    """The name and options that a task knows itself, or those that its class and fields tell."""
    if isinstance(env, _Named):
        return env.id, env.options
    name = next((name for name, maker in TASKS.items() if type(env) is maker), None)
    if name is None or not isinstance(env, Env):
        return None
    return name, {field.name: getattr(env, field.name) for field in dataclasses.fields(env) if field.init}
