"""How much arithmetic a function does in products of matrices, counted in its traced program."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax


def matrix_flops(function: Callable[..., Any], *args: Any) -> float:
    """2 m n k for every product that the outputs need, as often as it runs; loops without a known length count once."""
    from jax.interpreters.partial_eval import dce_jaxpr

    traced = jax.make_jaxpr(function)(*args).jaxpr
    needed, _ = dce_jaxpr(traced, [True] * len(traced.outvars))
    return _count(needed)


def _count(jaxpr: Any) -> float:
    found = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            found += 2.0 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)
            continue
        inner = sum(_count(getattr(each, "jaxpr", each)) for each in _programs(equation.params))
        found += inner * (equation.params["length"] if equation.primitive.name == "scan" else 1)
    return found


def _programs(params: dict[str, Any]) -> list[Any]:
    """The programs within an equation: bodies of loops, called functions."""
    values = [each for value in params.values() for each in (value if isinstance(value, tuple | list) else (value,))]
    return [each for each in values if hasattr(each, "eqns") or hasattr(each, "jaxpr")]
