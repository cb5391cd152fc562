"""From the names of memory rules to the rules themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from s2pg.config.labels import Choice
from s2pg.memory import CarryRule, DrawRule, Memory, PathwiseRule, UnrollRule
from s2pg.options import field_settings


def memory_rule(choice: Choice, hyper: Mapping[str, Any]) -> Memory:
    """The memory rule of a label with these hyper-parameters."""
    length = choice.length
    makers = {
        "draw": lambda: DrawRule(**_fields(DrawRule, hyper)),
        "pathwise": lambda: PathwiseRule(length=length, **_fields(PathwiseRule, hyper)),
        "unroll": lambda: UnrollRule(length, False, **_fields(UnrollRule, hyper)),
        "unroll-last": lambda: UnrollRule(length, True, **_fields(UnrollRule, hyper)),
        "carry": lambda: CarryRule(length - 1),
    }
    return makers[choice.label.rule]()


def _fields(rule: type, hyper: Mapping[str, Any]) -> dict[str, Any]:
    """What the hyper-parameters say of a rule; the rest keeps its defaults."""
    return {name: hyper[name] for name in field_settings(rule) if name in hyper}
