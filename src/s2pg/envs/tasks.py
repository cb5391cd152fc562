"""The tasks by name: `make("recall", k=32)`, and back again with `describe`."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import typing
from collections.abc import Callable
from typing import Any

from s2pg.envs import brax, gymnasium, gymnax, playground
from s2pg.envs.base import Env
from s2pg.envs.gymnasium import GymTask
from s2pg.envs.host import HostTask
from s2pg.envs.mujoco.task import ROBOT_TASKS
from s2pg.envs.pendulum import MaskedPendulum
from s2pg.envs.pointmass import PointMassDoor, PointMassGoal
from s2pg.envs.recall import Recall
from s2pg.errors import UserError, unknown

# What makes each: a subclass of Env, or a function that returns a task with an `id` and `options` of its own.
TASKS: dict[str, Any] = {
    "pointmass-goal": PointMassGoal,
    "pointmass-door": PointMassDoor,
    "recall": Recall,
    "masked-pendulum": MaskedPendulum,
    **ROBOT_TASKS,
}
# Environments of other libraries: what makes one from its name, prefix included, and options that it checks itself.
PREFIXES: dict[str, Callable[..., Env | HostTask]] = {
    gymnasium.PREFIX: GymTask,
    brax.PREFIX: brax.make,
    playground.PREFIX: playground.make,
    gymnax.PREFIX: gymnax.make,
}


def register_task(name: str, cls: type) -> None:
    """Makes a task of the user's own known by name."""
    prefix = prefix_of(name)
    if prefix:
        raise UserError(f"task name '{name}' must not begin with '{prefix}'")
    if not (isinstance(cls, type) and issubclass(cls, Env)):
        raise UserError(f"task '{name}' must be a subclass of s2pg.envs.base.Env")
    if TASKS.get(name, cls) is not cls:
        raise UserError(f"task name '{name}' is taken by {TASKS[name].__name__}")
    TASKS[name] = cls


def descriptions() -> dict[str, str]:
    """One line about each task: the first of its docstring."""
    return {name: (cls.__doc__ or "").strip().partition("\n")[0] for name, cls in TASKS.items()}


def make(task: str, **options: Any) -> Env | HostTask:
    """A task from its name and options; values may come as text, as they do from a command line."""
    prefix = prefix_of(task)
    if prefix:
        return PREFIXES[prefix](task, **{name: _literal(value) for name, value in options.items()})
    if task not in TASKS:
        raise unknown("task", task, [*TASKS, *(f"{prefix}<id>" for prefix in PREFIXES)])
    maker = TASKS[task]
    known = inspect.signature(maker).parameters
    for name in options:
        if name not in known:
            raise unknown(f"option of task {task}", name, known)
    for name, parameter in known.items():
        if name not in options and parameter.default is parameter.empty:
            raise UserError(f"task {task} needs the option '{name}'")
    types = typing.get_type_hints(maker)
    return maker(**{name: _coerce(task, name, value, types.get(name)) for name, value in options.items()})


def describe(env: Env | HostTask) -> tuple[str, dict[str, Any]]:
    """How to make it again: `name, options = describe(env)`, then `make(name, **options)`."""
    own: Any = env
    if hasattr(own, "id") and hasattr(own, "options"):
        return own.id, own.options
    for name, maker in TASKS.items():
        if type(env) is maker:
            return name, {field.name: getattr(env, field.name) for field in dataclasses.fields(own) if field.init}
    raise UserError(f"{type(env).__name__} has no name as a task; give it one with register_task")


def prefix_of(task: str) -> str | None:
    """Which library's environment a task is, if it is one's."""
    return next((prefix for prefix in PREFIXES if task.startswith(prefix)), None)


def _coerce(task: str, name: str, value: Any, kind: Any) -> Any:
    if kind not in (int, float, str, bool):
        return value
    given = _literal(value) if kind is not str else value
    # 3 is a fine float and 3.0 a fine int, but True is neither, though Python counts it among the ints.
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if isinstance(given, kind) and (number or kind in (str, bool)):
        return given
    if number and (kind is float or (kind is int and float(given).is_integer())):
        return kind(given)
    raise UserError(f"option '{name}' of task {task} must be {kind.__name__}, not {value!r}")


def _literal(value: Any) -> Any:
    """Text that spells a Python value becomes that value; other text stays as it is."""
    if isinstance(value, str):
        try:
            return ast.literal_eval({"true": "True", "false": "False"}.get(value, value))
        except Exception:  # not a Python value
            pass
    return value
