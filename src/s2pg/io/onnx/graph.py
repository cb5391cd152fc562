"""ONNX graphs in the making: values, the operations that make them, and nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

OPSET, IR = 17, 8  # what onnxruntime 1.17 still reads


class Value(NamedTuple):
    """An array whose content is not known while tracing."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    given: bool = True  # whether it depends on the inputs; others are computed before anything is written


class Operation(NamedTuple):
    """A primitive applied to values and arrays, inlined out of whatever called it."""

    primitive: Any
    inputs: list[Any]
    outputs: list[Value]
    params: Mapping[str, Any]


class Graph:
    """The nodes and constants written so far."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._constants: dict[tuple, tuple[str, np.ndarray]] = {}

    def node(
        self, kind: str, inputs: Sequence[Any], outputs: str | Sequence[str] | None = None, **attributes: Any
    ) -> str:
        """Adds a node; inputs are values, names of other nodes, or numbers. Returns the name of its (first) output."""
        from onnx import helper

        names = [outputs] if isinstance(outputs, str) else outputs or [f"n{len(self._nodes)}"]
        self._nodes.append(helper.make_node(kind, [self._name(each) for each in inputs], list(names), **attributes))
        return names[0]

    def _name(self, what: Any) -> str:
        if isinstance(what, str | Value):
            return what if isinstance(what, str) else what.name
        array = np.ascontiguousarray(what).reshape(np.shape(what))  # the former makes vectors of scalars
        key = (array.dtype.str, array.shape, array.tobytes())
        return self._constants.setdefault(key, (f"c{len(self._constants)}", array))[0]

    def model(self, inputs: Sequence[Value], outputs: Mapping[str, Any]) -> Any:
        """All of it as a model."""
        from onnx import helper, numpy_helper

        def told(name: str, shape: Sequence[int], dtype: Any) -> Any:
            return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape))

        graph = helper.make_graph(
            self._nodes,
            "policy",
            [told(each.name, each.shape, each.dtype) for each in inputs],
            [told(name, aval.shape, aval.dtype) for name, aval in outputs.items()],
            [numpy_helper.from_array(array, name) for name, array in self._constants.values()],
        )
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(graph, opset_imports=[opset], ir_version=IR, producer_name="s2pg")
