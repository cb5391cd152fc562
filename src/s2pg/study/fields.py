"""Keys and values of study files, checked one by one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from s2pg.errors import UserError, unknown

# What a cell can say; options.NAME and hyper.NAME are axes as well.
AXES: dict[str, type] = {
    "task": str, "algorithm": str, "memory": str, "kernel": str, "critic": str, "demos": str,
    "steps": int, "episodes": int, "borders": int,
}  # fmt: skip
TABLES = ("options", "hyper")
WORDS = {str: "a text", int: "a whole number", float: "a number"}


def known(kind: str, given: Iterable[str], names: Iterable[str]) -> None:
    """Refuses a key that nobody asks for."""
    for key in given:
        if key not in names:
            raise unknown(kind, key, names)


def table(where: str, value: Any) -> Mapping[str, Any]:
    """The value, which must be a table."""
    if not isinstance(value, dict):
        raise UserError(f"{where} must be a table, not {value!r}")
    return value


def tables(name: str, found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those that are written `[[name]]`."""
    value = found.get(name, [])
    if not isinstance(value, list) or not all(isinstance(each, dict) and each for each in value):
        raise UserError(f"'{name}' is written [[{name}]], with keys beneath")
    return value


def typed(name: str, value: Any, kind: type) -> Any:
    """The value in its type; 4e6 is a whole number too."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if kind is str and isinstance(value, str) and value:
        return value
    if number and (kind is float or float(value).is_integer()) and kind is not str:
        return kind(value)
    raise UserError(f"'{name}' must be {WORDS[kind]}, not {value!r}")


def flat(where: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """`{task = ..., hyper = {size = ...}}` as task and hyper.size."""
    known(f"key of {where}", given, (*AXES, *TABLES))
    found = {}
    for key, value in given.items():
        if key in TABLES:
            found |= {f"{key}.{name}": inner for name, inner in table(f"'{key}' of {where}", value).items()}
        else:
            found[key] = value
    return found


def value_of(key: str, value: Any) -> Any:
    """One value of an axis, in its type; those of options and hyper-parameters are checked by what they belong to."""
    if key in AXES:
        return typed(key, value, AXES[key])
    if isinstance(value, list):
        return [value_of(key, each) for each in value]
    if not isinstance(value, str | int | float):
        raise UserError(f"'{key}' must be a text, a number, true or false, or a list of these, not {value!r}")
    return value
