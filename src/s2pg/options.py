"""Describes a setting once: its default, what it means and which values it may have.

Algorithms, memory rules and tasks declare a setting as a field, `clip: float = option(0.2, "...", above=0)`; kernels
and functions as an argument, `width: Annotated[int, Option("...", low=1)] = 64`. Listings, checks and docs read it.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from s2pg.errors import UserError, unknown

METADATA = "option"


@dataclasses.dataclass(frozen=True)
class Option:
    """What a setting means, and its bounds: `low` and `high` belong to the range, `above` and `below` do not."""

    help: str = ""
    low: int | float | None = None
    high: int | float | None = None
    above: int | float | None = None
    below: int | float | None = None
    choices: tuple[str, ...] = ()
    replay: bool = False  # a hyper-parameter only where an algorithm learns from a replay buffer
    said: Any = None  # what listings show in place of the default

    def check(self, what: str, value: Any) -> None:
        """Refuses a value outside the bounds or the choices; `what` names the setting in the message."""
        if value is None:  # the default of a setting that may be left open
            return
        if self.choices:
            if value not in self.choices:
                raise unknown(what, str(value), self.choices)
            return
        inside = (
            (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )
        if not inside:
            raise UserError(f"{what} must be {self._range()}, not {value}")

    def _range(self) -> str:
        if self.low is not None and self.high is not None:
            return f"between {self.low:g} and {self.high:g}"
        ends = (
            (self.low, "{:g} or more"),
            (self.above, "above {:g}"),
            (self.high, "at most {:g}"),
            (self.below, "below {:g}"),
        )
        return " and ".join(text.format(end) for end, text in ends if end is not None)


class Setting(NamedTuple):
    """A declared setting: its default (`Parameter.empty`: it must be given), its type (None: any), its meaning."""

    default: Any
    kind: type | None
    option: Option

    @property
    def required(self) -> bool:
        """Tells whether the caller has to give it."""
        return self.default is inspect.Parameter.empty

    def parse(self, what: str, value: Any) -> Any:
        """The value, which may come as text, in the type of the setting; checks its bounds."""
        value = _coerce(what, value, self.kind)
        self.option.check(what, value)
        return value


def option(default: Any, help: str, **bounds: Any) -> Any:
    """A static field with a default, a meaning and bounds (see `Option`)."""
    return eqx.field(static=True, default=default, metadata={METADATA: Option(help, **bounds)})


def required(help: str, **bounds: Any) -> Any:
    """A static field without a default."""
    return eqx.field(static=True, metadata={METADATA: Option(help, **bounds)})


def redefine(cls: type, name: str, default: Any) -> Any:
    """The field of a base class with another default, meaning and bounds unchanged."""
    kept = next(field.metadata for field in dataclasses.fields(cls) if field.name == name)
    return eqx.field(static=True, default=default, metadata={METADATA: kept[METADATA]})


def field_settings(cls: type) -> dict[str, Setting]:
    """The settings that a class declares as fields with `option` or `required`."""
    hints = _hints(cls)
    found = {}
    for field in dataclasses.fields(cls):
        if METADATA in field.metadata:
            default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
            found[field.name] = Setting(default, _kind(hints.get(field.name), default), field.metadata[METADATA])
    return found


def argument_settings(maker: Callable[..., Any], keyword_only: bool = False) -> dict[str, Setting]:
    """The arguments of a function or constructor; `Annotated[int, Option(...)]` says what one means."""
    hints = _hints(maker.__init__ if isinstance(maker, type) else maker)
    found = {}
    for each in inspect.signature(maker).parameters.values():
        if each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL):
            continue
        if keyword_only and each.kind is not each.KEYWORD_ONLY:
            continue
        hint, meaning = hints.get(each.name), Option()
        if typing.get_origin(hint) is typing.Annotated:
            hint, *rest = typing.get_args(hint)
            meaning = next((one for one in rest if isinstance(one, Option)), meaning)
        found[each.name] = Setting(each.default, _kind(hint, each.default), meaning)
    return found


def check_fields(thing: Any, owner: str) -> None:
    """Refuses a made thing of which a field is out of its bounds."""
    for name, setting in field_settings(type(thing)).items():
        setting.option.check(f"{name} of {owner}", getattr(thing, name))


def parse_all(
    settings: Mapping[str, Setting], given: Mapping[str, Any], owner: str, one: Callable[[str], str]
) -> dict[str, Any]:
    """Values that may come as text, in their types, checked; `one` names a setting in messages."""
    for name in given:
        if name not in settings:
            raise unknown(owner, name, settings)
    return {name: settings[name].parse(one(name), value) for name, value in given.items()}


def literal(value: Any) -> Any:
    """Text that spells a Python value becomes that value; other text stays as it is."""
    if isinstance(value, str):
        with contextlib.suppress(Exception):  # not a Python value
            return ast.literal_eval({"true": "True", "false": "False"}.get(value, value))
    return value


def _coerce(what: str, value: Any, kind: type | None) -> Any:
    if kind is None:
        return value
    value = value.item() if isinstance(value, np.generic) else value
    given = str(value) if kind is str else literal(value)
    # 3 is a fine float and 3.0 a fine int, but True is neither, though Python counts it among the ints.
    number = isinstance(given, int | float) and not isinstance(given, bool) and abs(given) <= sys.float_info.max
    if kind in (str, bool) and isinstance(given, kind):
        return given
    if number and (kind is float or (kind is int and float(given).is_integer())):
        return kind(given)
    raise UserError(f"{what} must be {kind.__name__}, not {value!r}")


def _kind(hint: Any, default: Any) -> type | None:
    """The type that text is read as: the annotated one, or without an annotation that of the default."""
    if hint in (int, float, str, bool):
        return hint
    told = hint is None or typing.get_origin(hint) is typing.Literal
    return type(default) if told and isinstance(default, int | float | str) else None


def _hints(thing: Any) -> dict[str, Any]:
    """Annotations by name; of those that name what exists for type checkers only, as many as can be read."""
    thing = thing.func if isinstance(thing, functools.partial) else thing
    try:
        return typing.get_type_hints(thing, include_extras=True)
    except (NameError, TypeError):
        known, found = getattr(thing, "__globals__", {}), {}
        for name, annotation in getattr(thing, "__annotations__", {}).items():
            with contextlib.suppress(Exception):  # what `get_type_hints` does, one by one: this one cannot be read
                found[name] = eval(annotation, known) if isinstance(annotation, str) else annotation
        return found
