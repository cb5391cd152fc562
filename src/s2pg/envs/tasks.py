"""The tasks by name: `make("recall", k=32)`, and back again with `describe`."""

from __future__ import annotations

import ast
import dataclasses
import typing
from typing import Any

from s2pg.envs.base import Env
from s2pg.envs.gymnasium import PREFIX, GymTask
from s2pg.envs.pendulum import MaskedPendulum
from s2pg.envs.pointmass import PointMassDoor, PointMassGoal
from s2pg.envs.recall import Recall
from s2pg.errors import UserError, unknown

TASKS: dict[str, type[Env]] = {
    "pointmass-goal": PointMassGoal,
    "pointmass-door": PointMassDoor,
    "recall": Recall,
    "masked-pendulum": MaskedPendulum,
}


def register_task(name: str, cls: type) -> None:
    """Makes a task of the user's own known by name."""
    if name.startswith(PREFIX):
        raise UserError(f"task name '{name}' must not begin with '{PREFIX}'")
    if not (isinstance(cls, type) and issubclass(cls, Env)):
        raise UserError(f"task '{name}' must be a subclass of s2pg.envs.base.Env")
    if TASKS.get(name, cls) is not cls:
        raise UserError(f"task name '{name}' is taken by {TASKS[name].__name__}")
    TASKS[name] = cls


def descriptions() -> dict[str, str]:
    """One line about each task: the first of its docstring."""
    return {name: (cls.__doc__ or "").strip().partition("\n")[0] for name, cls in TASKS.items()}


def make(task: str, **options: Any) -> Env | GymTask:
    """A task from its name and options; values may come as text, as they do from a command line."""
    if task.startswith(PREFIX):
        return GymTask(task, **{name: _literal(value) for name, value in options.items()})
    if task not in TASKS:
        raise unknown("task", task, [*TASKS, f"{PREFIX}<id>"])
    cls = TASKS[task]
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    for name in options:
        if name not in fields:
            raise unknown(f"option of task {task}", name, fields)
    for name, field in fields.items():
        if name not in options and field.default is field.default_factory is dataclasses.MISSING:
            raise UserError(f"task {task} needs the option '{name}'")
    types = typing.get_type_hints(cls)
    return cls(**{name: _coerce(task, name, value, types[name]) for name, value in options.items()})


def describe(env: Env | GymTask) -> tuple[str, dict[str, Any]]:
    """How to make it again: `name, options = describe(env)`, then `make(name, **options)`."""
    if isinstance(env, GymTask):
        return env.id, env.options
    for name, cls in TASKS.items():
        if type(env) is cls:
            return name, {field.name: getattr(env, field.name) for field in dataclasses.fields(env) if field.init}
    raise UserError(f"{type(env).__name__} has no name as a task; give it one with register_task")


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
