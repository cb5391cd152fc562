"""From what JAX traces of a function to ONNX nodes, primitive by primitive.

Calls are inlined, what does not depend on the inputs is computed now, and what no output needs is left out. All
shapes are fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core

from s2pg.errors import UserError
from s2pg.io.onnx.graph import Graph, Operation, Value
from s2pg.io.onnx.rules import MOVES, RULES, inexpressible
from s2pg.io.onnx.tidy import tidied

# What other primitives are made of, by the parameter that holds it.
CALLS = {
    "jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr", "checkpoint": "jaxpr",
    "remat": "jaxpr", "remat2": "jaxpr", "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}  # fmt: skip


def convert(
    function: Callable[..., Sequence[Any]], inputs: Mapping[str, tuple[int, ...]], outputs: Sequence[str]
) -> Any:
    """An ONNX model of a function of float32 arrays of these shapes, with its outputs under these names."""
    from onnx import checker

    like = [jax.ShapeDtypeStruct(shape, np.float32) for shape in inputs.values()]
    traced = jax.make_jaxpr(function)(*like)
    given = [Value(name, shape, np.dtype(np.float32)) for name, shape in inputs.items()]
    operations: list[Operation] = []
    results = _inline(traced.jaxpr, traced.consts, given, operations)
    operations, results = tidied(*_folded(_needed(operations, results), results))
    graph = Graph()
    for operation in _needed(operations, results):
        _write(graph, operation)
    for name, result in zip(outputs, results, strict=True):
        graph.node("Identity", [result], name)
    model = graph.model(given, dict(zip(outputs, traced.out_avals, strict=True)))
    checker.check_model(model, full_check=True)
    return model


def _inline(jaxpr: Any, consts: Sequence[Any], given: Sequence[Any], into: list[Operation]) -> list[Any]:
    """Appends the operations of a traced program, calls replaced by what they call; returns its results."""
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    known |= dict(zip(jaxpr.invars, given, strict=True))
    look = lambda atom: atom.val if isinstance(atom, core.Literal) else known[atom]  # noqa: E731
    for equation in jaxpr.eqns:
        inputs = [look(atom) for atom in equation.invars]
        if (held := CALLS.get(equation.primitive.name)) in equation.params:
            inner = equation.params[held]
            inner, own = (inner.jaxpr, inner.consts) if isinstance(inner, core.ClosedJaxpr) else (inner, ())
            results = _inline(inner, own, inputs, into)
        else:
            depends = any(isinstance(each, Value) and each.given for each in inputs)
            avals = [out.aval for out in equation.outvars]
            results = [Value(f"v{len(into)}_{i}", aval.shape, aval.dtype, depends) for i, aval in enumerate(avals)]
            into.append(Operation(equation.primitive, inputs, results, equation.params))
        known |= dict(zip(equation.outvars, results, strict=True))
    return [look(atom) for atom in jaxpr.outvars]


def _needed(operations: Sequence[Operation], results: Sequence[Any]) -> list[Operation]:
    """Those that the results depend on: log-probabilities, for one, nobody asks for."""
    wanted, kept = {each.name for each in results if isinstance(each, Value)}, []
    for operation in reversed(operations):
        if any(each.name in wanted for each in operation.outputs):
            wanted |= {each.name for each in operation.inputs if isinstance(each, Value)}
            kept.append(operation)
    return kept[::-1]


def _folded(operations: Sequence[Operation], results: Sequence[Any]) -> tuple[list[Operation], list[Any]]:
    """The same with arrays in place of what does not depend on the inputs, all computed in one program."""
    early = [operation for operation in operations if not operation.outputs[0].given]
    late = [operation for operation in operations if operation.outputs[0].given]

    def compute() -> dict[str, Any]:
        found: dict[str, Any] = {}
        for primitive, inputs, outputs, params in early:
            made = primitive.bind(*(found[each.name] if isinstance(each, Value) else each for each in inputs), **params)
            made = made if primitive.multiple_results else [made]
            found |= {each.name: array for each, array in zip(outputs, made, strict=True)}
        read = [each for operation in late for each in operation.inputs] + list(results)
        return {each.name: found[each.name] for each in read if isinstance(each, Value) and not each.given}

    found = jax.jit(compute)() if early else {}
    known = lambda each: np.asarray(found.get(each.name) if isinstance(each, Value) else each)  # noqa: E731
    fill = lambda all: [each if isinstance(each, Value) and each.given else known(each) for each in all]  # noqa: E731
    return [operation._replace(inputs=fill(operation.inputs)) for operation in late], fill(results)


def _write(graph: Graph, operation: Operation) -> None:
    name = operation.primitive.name
    if name in MOVES and not any(isinstance(each, Value) for each in operation.inputs[1:]):
        _move(graph, operation)
    elif name in RULES:
        RULES[name](graph, operation)
    else:
        raise inexpressible(operation)


def _move(graph: Graph, operation: Operation) -> None:
    """What only moves entries: the primitive applied to their numbers says where each comes from."""
    source, *others = operation.inputs
    numbers = np.arange(int(np.prod(source.shape)), dtype=np.int32).reshape(source.shape)
    origin = np.asarray(operation.primitive.bind(numbers, *others, **operation.params))
    if origin.size and not 0 <= origin.min() <= origin.max() < max(numbers.size, 1):
        raise UserError(f"the primitive '{operation.primitive.name}' of this policy reaches out of bounds")
    flat = graph.node("Reshape", [source, np.array([-1], np.int64)])
    graph.node("Gather", [flat, origin.astype(np.int64)], operation.outputs[0].name, axis=0)
