"""Policies as files for robots: the contract, what is noted beside it, and whether a file does what the policy does.

    obs [1, N], state [1, M], first [1] -> action [1, A], next_state [1, M]        all float32

Normaliser, hidden entries, previous action, scaling, clipping and the reset are inside. `first` = 1 begins an episode,
whatever `state` holds; afterwards `next_state` goes back in as it came. The policy acts deterministically. Metadata is
JSON: inside an ONNX file under the key `s2pg`, beside a StableHLO file in `FILE.json`.
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from s2pg.errors import UserError, unknown
from s2pg.flat import FlatPolicy
from s2pg.io.atomic import replacing
from s2pg.io.onnx import convert
from s2pg.types import Box, Discrete, Space

SCHEMA = 1
KEY = "s2pg"  # of the metadata in an ONNX file
OUTPUTS = ("action", "next_state")
NEEDS = {"onnx": "onnx", "stablehlo": "flatbuffers"}  # formats, and the package that writes each
PLATFORMS = ("cpu", "cuda")  # that a StableHLO file holds programs for
# A file is refused if more steps in a hundred than this differ by more from the policy: single ones may, where two
# logits are equal but for rounding, or a phase is just about to wrap.
FEW, FAR = 1.0, 1e-4


class Difference(NamedTuple):
    """The largest differences between a file and its policy over an episode."""

    steps: int
    step: float  # of actions and states after one step, both from the file's own state
    action: float  # of actions, each from its own state, carried along from the first step
    far: int  # steps that differ by more than `FAR` from the same state


def require(format: str) -> None:
    """Refuses a format that is unknown, or whose package is missing."""
    if format not in NEEDS:
        raise unknown("format", format, NEEDS)
    if importlib.util.find_spec(NEEDS[format]) is None:
        raise UserError(f"--format {format} needs the package {NEEDS[format]}: pip install 's2pg[export]'")


def signature(policy: FlatPolicy) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the inputs."""
    return {"obs": (1, policy.size), "state": (1, policy.initial.size), "first": (1,)}


def contract(policy: FlatPolicy, obs: Array, state: Array, first: Array) -> tuple[Array, Array]:
    """What a file computes."""
    action, after = jax.vmap(policy.step)(obs, state, first)
    return action.reshape(1, -1).astype(jnp.float32), after


def describe(policy: FlatPolicy, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata: what a robot has to know, and `facts` of where the policy comes from."""
    z = policy.initial[: policy.initial.size - policy.spec.action.size]
    return {
        "schema": SCHEMA,
        "views": [{"name": name, "size": size} for name, size in policy.views.items()],
        "hidden": sorted(policy.hide),
        "state": {"z": z.size, "previous_action": policy.spec.action.size},
        "z_0": [float(x) for x in z],
        "action": _space(policy.spec.action),
        "dt": policy.spec.dt,
        **facts,
    }


def _space(space: Space) -> dict[str, Any]:
    """Actions as the environment has them; a bound that is none is null."""
    if isinstance(space, Box):
        low, high = ([x if math.isfinite(x) else None for x in side] for side in (space.low, space.high))
        return {"kind": "box", "size": space.size, "shape": list(space.shape or space.drawn), "low": low, "high": high}
    if isinstance(space, Discrete):
        return {"kind": "discrete", "size": 1, "shape": [], "n": space.n, "start": space.start}
    start = np.broadcast_to(space.start, len(space.sizes)).tolist()
    shape = list(space.shape or space.drawn)
    return {"kind": "multidiscrete", "size": len(start), "shape": shape, "n": list(space.sizes), "start": start}


def encode(policy: FlatPolicy, format: str, metadata: Mapping[str, Any]) -> bytes:
    """The file's content."""
    inputs = signature(policy)
    if format == "onnx":
        model = convert(lambda *given: contract(policy, *given), inputs, OUTPUTS)
        model.metadata_props.add(key=KEY, value=json.dumps(metadata))
        return model.SerializeToString(deterministic=True)
    from jax import export

    like = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in inputs.values()]
    program = jax.jit(lambda obs, state, first: contract(policy, obs, state, first))
    return bytes(export.export(program, platforms=PLATFORMS)(*like).serialize())


def write(path: Path, content: bytes, format: str, metadata: Mapping[str, Any]) -> None:
    """Puts the file in place, and metadata beside one that cannot hold them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(content)
    if format != "onnx":
        with replacing(beside(path)) as file:
            file.write(json.dumps(metadata, indent=2).encode() + b"\n")


def beside(path: Path) -> Path:
    """Where the metadata of a file lies that cannot hold them."""
    return path.with_name(f"{path.name}.json")


def player(content: bytes, format: str) -> Any:
    """A function that computes what a file does, by the runtime it is made for; None where that is not installed."""
    if format == "stablehlo":
        from jax import export

        called = jax.jit(export.deserialize(bytearray(content)).call)
        return lambda *given: tuple(map(np.asarray, called(*given)))
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return lambda *given: tuple(session.run(OUTPUTS, dict(zip(("obs", "state", "first"), given, strict=True))))


def compare(policy: FlatPolicy, play: Any, observations: np.ndarray) -> Difference:
    """Plays the observations [T, N] of an episode, which begins with a state that is no number, by file and policy."""
    reference = jax.jit(lambda *given: contract(policy, *given))
    own = theirs = np.full((1, policy.initial.size), np.nan, np.float32)
    first, step, apart, far = np.ones(1, np.float32), 0.0, 0.0, 0
    for each in np.asarray(observations, np.float32)[:, None]:
        action, after = play(each, theirs, first)
        same_action, same_after = map(np.asarray, reference(each, theirs, first))
        own_action, own = map(np.asarray, reference(each, own, first))
        now = max(_gap(action, same_action), _gap(after, same_after))
        step, apart, far = max(step, now), max(apart, _gap(action, own_action)), far + (now > FAR)
        theirs, first = after, np.zeros(1, np.float32)
    return Difference(len(observations), step, apart, far)


def _gap(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference; what is no number in one of them is infinitely far off."""
    gap = np.where(np.isnan(a) & np.isnan(b), 0.0, np.abs(a - b))
    return float(np.max(np.where(np.isnan(gap), np.inf, gap), initial=0.0))


def judge(found: Difference) -> None:
    """Refuses a file that does something else than its policy."""
    if 100 * found.far > FEW * found.steps and found.far > 1:
        raise UserError(
            f"the file does not do what the policy does, and was not written: {found.far} of {found.steps} steps"
            f" differ by more than {FAR:g}, by up to {found.step:.2g}"
        )
