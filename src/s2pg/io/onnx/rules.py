"""How each primitive of JAX is said in ONNX: one rule a line where operators are the same, a function where not."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

import numpy as np

from s2pg.errors import UserError
from s2pg.io.onnx.graph import Graph, Operation
from s2pg.io.onnx.tidy import GEMM, only, product

Rule = Callable[[Graph, Operation], Any]

# Primitives that only move entries, as told by their other inputs, which must be known.
MOVES = ("gather", "dynamic_slice", "rev", "tile")


def inexpressible(op: Operation) -> UserError:
    """The refusal of a primitive."""
    return UserError(
        f"this policy cannot be written as ONNX: there is no rule for JAX's primitive '{op.primitive.name}'"
    )


def same(kind: str, **attributes: Any) -> Rule:
    """An operator with the same inputs and output."""
    return lambda graph, op: graph.node(kind, op.inputs, op.outputs[0].name, **attributes)


def logical(kind: str) -> Rule:
    """An operator on truth values; on whole numbers JAX means their bits, for which there is no rule."""

    def rule(graph: Graph, op: Operation) -> None:
        if op.inputs[0].dtype != bool:
            raise inexpressible(op)
        graph.node(kind, op.inputs, op.outputs[0].name)

    return rule


def number(op: Operation, value: float | int) -> np.ndarray:
    """A constant of the kind that the first input is."""
    return np.asarray(value, op.inputs[0].dtype)


def with_number(kind: str, value: float | int) -> Rule:
    """An operator of two inputs, the second of which is a constant."""
    return lambda graph, op: graph.node(kind, [op.inputs[0], number(op, value)], op.outputs[0].name)


def after(first: Rule, kind: str, *numbers: float) -> Rule:
    """Another operator behind a rule, with constants beside what comes out of that."""

    def rule(graph: Graph, op: Operation) -> None:
        between = op.outputs[0]._replace(name=f"{op.outputs[0].name}_")
        first(graph, op._replace(outputs=[between]))
        graph.node(kind, [between, *(number(op, value) for value in numbers)], op.outputs[0].name)

    return rule


def reshape(graph: Graph, op: Operation) -> None:
    """Also squeezes and adds axes; shapes are known."""
    graph.node("Reshape", [op.inputs[0], np.array(op.outputs[0].shape, np.int64)], op.outputs[0].name)


def broadcast(graph: Graph, op: Operation) -> None:
    """Repetition along axes that are there already: `tidy` has put them in, unless they are all that is new."""
    (x,), (out,) = op.inputs, op.outputs
    kind = "Reshape" if np.prod(x.shape) == np.prod(out.shape) else "Expand"
    graph.node(kind, [x, np.array(out.shape, np.int64)], out.name)


def cut(graph: Graph, op: Operation) -> None:
    """A slice with known ends."""
    begin, end, strides = op.params["start_indices"], op.params["limit_indices"], op.params["strides"]
    tables = [begin, end, range(len(begin)), strides or [1] * len(begin)]
    graph.node("Slice", [op.inputs[0], *(np.array(list(each), np.int64) for each in tables)], op.outputs[0].name)


def split(graph: Graph, op: Operation) -> None:
    """Pieces of known sizes along an axis."""
    sizes = np.array(op.params["sizes"], np.int64)
    graph.node("Split", [op.inputs[0], sizes], [each.name for each in op.outputs], axis=op.params["axis"])


def stack(graph: Graph, op: Operation) -> None:
    """Side by side along a new axis."""
    axis, lined = op.params["axis"], []
    for each in op.inputs:
        shape = (*each.shape[:axis], 1, *each.shape[axis:])
        lined.append(graph.node("Reshape", [each, np.array(shape, np.int64)]))
    graph.node("Concat", lined, op.outputs[0].name, axis=axis)


def unstack(graph: Graph, op: Operation) -> None:
    """Undoes `stack`."""
    axis, names = op.params["axis"], [f"{each.name}_" for each in op.outputs]
    graph.node("Split", [op.inputs[0], np.ones(len(names), np.int64)], names, axis=axis)
    for name, each in zip(names, op.outputs, strict=True):
        graph.node("Reshape", [name, np.array(each.shape, np.int64)], each.name)


def padded(graph: Graph, op: Operation) -> None:
    """Around the edges; neither between entries nor by less than nothing."""
    before, after, between = zip(*op.params["padding_config"], strict=True)
    if any(between) or min(*before, *after) < 0:
        raise inexpressible(op)
    graph.node("Pad", [op.inputs[0], np.array([*before, *after], np.int64), op.inputs[1]], op.outputs[0].name)


def dot(graph: Graph, op: Operation) -> None:
    """A matrix product where it is one, Einstein's sum convention for the rest."""
    (left, right), batch = op.params["dimension_numbers"]
    a, b = op.inputs[:2]
    if product(op):
        graph.node("MatMul", [a, b], op.outputs[0].name)
        return
    letters = iter(string.ascii_lowercase)
    one, two = [next(letters) for _ in a.shape], [next(letters) for _ in b.shape]
    for i, j in (*zip(*batch, strict=True), *zip(left, right, strict=True)):
        two[j] = one[i]
    shared = [one[i] for i in batch[0]]
    gone = {one[i] for i in left} | set(shared)
    rest = [letter for letter in (*one, *two) if letter not in gone]
    equation = f"{''.join(one)},{''.join(two)}->{''.join((*shared, *rest))}"
    graph.node("Einsum", [a, b], op.outputs[0].name, equation=equation)


def select(graph: Graph, op: Operation) -> None:
    """The second case where the predicate holds; more than two cases are not known here."""
    which, *cases = op.inputs
    if len(cases) != 2 or which.dtype != bool:
        raise inexpressible(op)
    graph.node("Where", [which, cases[1], cases[0]], op.outputs[0].name)


def finite(graph: Graph, op: Operation) -> None:
    """Neither infinite nor NaN."""
    bad = graph.node("Or", [graph.node("IsNaN", op.inputs), graph.node("IsInf", op.inputs)])
    graph.node("Not", [bad], op.outputs[0].name)


def clamp(graph: Graph, op: Operation) -> None:
    """Within bounds: one operator for those that are the same number for all entries."""
    low, x, high = op.inputs
    if only(low) is None or only(high) is None:
        graph.node("Min", [graph.node("Max", [x, low]), high], op.outputs[0].name)
    else:
        graph.node("Clip", [x, only(low), only(high)], op.outputs[0].name)


def larger(graph: Graph, op: Operation) -> None:
    """Against 0 it has a name of its own, under which runtimes make it a part of the product before it."""
    x = [each for each in op.inputs if only(each) != 0.0]
    relu = len(x) == 1 and x[0].shape == op.outputs[0].shape and op.outputs[0].dtype == np.float32
    graph.node("Relu" if relu else "Max", x if relu else op.inputs, op.outputs[0].name)


def gemm(graph: Graph, op: Operation) -> None:
    """A matrix product and what is added to it; `tidy` finds them."""
    graph.node("Gemm", op.inputs, op.outputs[0].name)


def cast(graph: Graph, op: Operation) -> None:
    """Another type of number."""
    from onnx import helper

    to = helper.np_dtype_to_tensor_dtype(np.dtype(op.params.get("new_dtype", op.outputs[0].dtype)))
    graph.node("Cast", [op.inputs[0]], op.outputs[0].name, to=to)


def squared(graph: Graph, op: Operation) -> None:
    """A product, which is rounded as JAX rounds it."""
    graph.node("Mul", [op.inputs[0]] * 2, op.outputs[0].name)


def power(graph: Graph, op: Operation) -> None:
    """A whole power."""
    exponent = op.params["y"]
    (squared if exponent == 2 else with_number("Pow", exponent))(graph, op)


def nearest(graph: Graph, op: Operation) -> None:
    """The nearest whole number; halves go to the even one, or away from 0."""
    x, out = op.inputs[0], op.outputs[0].name
    if int(op.params["rounding_method"]) == 1:
        graph.node("Round", [x], out)
    else:
        up = graph.node("Floor", [graph.node("Add", [graph.node("Abs", [x]), number(op, 0.5)])])
        graph.node("Mul", [graph.node("Sign", [x]), up], out)


def summed(graph: Graph, op: Operation) -> None:
    """A sum over axes, which this operator alone reads as an input."""
    axes = np.array(op.params["axes"], np.int64)
    graph.node("ReduceSum", [op.inputs[0], axes], op.outputs[0].name, keepdims=0)


def reduced(kind: str) -> Rule:
    """Any other reduction over axes."""
    return lambda graph, op: graph.node(
        kind, op.inputs, op.outputs[0].name, axes=[int(axis) for axis in op.params["axes"]], keepdims=0
    )


def best(kind: str) -> Rule:
    """The number of the largest or smallest entry, the first of equal ones."""

    def rule(graph: Graph, op: Operation) -> None:
        found = graph.node(kind, op.inputs, axis=int(op.params["axes"][0]), keepdims=0)
        cast(graph, op._replace(inputs=[found], params={"new_dtype": op.params["index_dtype"]}))

    return rule


def added_up(graph: Graph, op: Operation) -> None:
    """Running sums along an axis."""
    axis = np.asarray(op.params["axis"], np.int64)
    graph.node("CumSum", [op.inputs[0], axis], op.outputs[0].name, reverse=int(op.params["reverse"]))


RULES: dict[str, Rule] = {
    "add": same("Add"), "sub": same("Sub"), "mul": same("Mul"), "div": same("Div"), "neg": same("Neg"),
    "add_any": same("Add"), "max": larger, "min": same("Min"), "pow": same("Pow"), "rem": same("Mod", fmod=1),
    "abs": same("Abs"), "sign": same("Sign"), "floor": same("Floor"), "ceil": same("Ceil"), "round": nearest,
    "exp": same("Exp"), "log": same("Log"), "sqrt": same("Sqrt"), "logistic": same("Sigmoid"), "erf": same("Erf"),
    "rsqrt": after(same("Sqrt"), "Reciprocal"), "log1p": after(with_number("Add", 1.0), "Log"),
    "exp2": lambda graph, op: graph.node("Pow", [number(op, 2.0), op.inputs[0]], op.outputs[0].name),
    "expm1": after(same("Exp"), "Sub", 1.0), "square": squared, "integer_pow": power,
    "sin": same("Sin"), "cos": same("Cos"), "tan": same("Tan"), "asin": same("Asin"), "acos": same("Acos"),
    "atan": same("Atan"), "sinh": same("Sinh"), "cosh": same("Cosh"), "tanh": same("Tanh"), "asinh": same("Asinh"),
    "acosh": same("Acosh"), "atanh": same("Atanh"),
    "eq": same("Equal"), "ne": after(same("Equal"), "Not"), "lt": same("Less"), "le": same("LessOrEqual"),
    "gt": same("Greater"), "ge": same("GreaterOrEqual"), "and": logical("And"), "or": logical("Or"),
    "xor": logical("Xor"), "not": logical("Not"), "is_finite": finite, "select_n": select, "clamp": clamp,
    "convert_element_type": cast, "copy": same("Identity"), "copy_p": same("Identity"),
    "stop_gradient": same("Identity"),
    "reshape": reshape, "squeeze": reshape, "expand_dims": reshape, "broadcast_in_dim": broadcast, "slice": cut,
    "split": split, "stack": stack, "unstack": unstack, "pad": padded, "transpose": lambda graph, op: graph.node(
        "Transpose", op.inputs, op.outputs[0].name, perm=[int(axis) for axis in op.params["permutation"]]
    ),
    "concatenate": lambda graph, op: graph.node(
        "Concat", op.inputs, op.outputs[0].name, axis=int(op.params["dimension"])
    ),
    "dot_general": dot, GEMM: gemm, "reduce_sum": summed, "reduce_max": reduced("ReduceMax"),
    "reduce_min": reduced("ReduceMin"), "reduce_prod": reduced("ReduceProd"), "argmax": best("ArgMax"),
    "argmin": best("ArgMin"), "cumsum": added_up,
}  # fmt: skip
