"""Where the arrays of a loop lie: on one device, or with the lanes spread over several and all else whole on each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from s2pg.envs.base import Env
from s2pg.envs.host import HostTask
from s2pg.errors import UserError
from s2pg.loops.base import Loop
from s2pg.sharding import LANES, spread, whole, within


def check(devices: int, env: Env | HostTask, lanes: int) -> None:
    """Refuses a number of devices that this machine has not, or that cannot share the lanes of a task."""
    if type(devices) is not int or devices < 1:
        raise UserError(f"devices must be a whole number of 1 or more, not {devices}")
    if devices == 1:
        return
    if not isinstance(env, Env):
        raise UserError("this task is stepped by the host, which has no lanes on devices: --devices must be 1")
    if not env.divides:
        other = ", or backend=mjx" if getattr(env, "backend", None) == "warp" else ""
        raise UserError(f"this task steps all its lanes on one device: --devices must be 1{other}")
    there = jax.local_devices()
    if devices > len(there):
        raise UserError(f"there are no {devices} devices: JAX sees {len(there)} here, of kind {there[0].device_kind}")
    if lanes % devices:
        near = max(1, round(lanes / devices)) * devices
        raise UserError(f"{lanes} lanes cannot be shared equally by {devices} devices: --hyper lanes={near} can")


class Layout:
    """Compiles and places for a number of devices; for one, as JAX does by itself."""

    def __init__(self, devices: int = 1):
        self.mesh: Mesh | None = None
        self.whole: Any = None  # where an array lies that every device has
        self.loop: Any = None  # where each part of a loop lies
        if devices > 1:
            there = np.asarray(jax.local_devices()[:devices])
            self.mesh = Mesh(there, (LANES,), axis_types=(AxisType.Auto,))
            self.whole = NamedSharding(self.mesh, PartitionSpec())
            lanes: Any = NamedSharding(self.mesh, PartitionSpec(None, LANES))  # behind the axis of seeds
            self.loop = Loop(self.whole, lanes, self.whole, self.whole, self.whole)

    def jit(self, function: Callable, takes: PyTree, gives: PyTree, **options: Any) -> Any:
        """Compiles a function; `takes` and `gives` say where its arguments and results lie.

        Both are told, so that what a chunk hands to the next one, or a checkpoint to the first, is never another case.
        """
        mesh = self.mesh
        if mesh is None:
            return jax.jit(function, **options)

        def spread_out(*given: Any) -> Any:
            with within(mesh):
                return function(*given)

        return jax.jit(spread_out, in_shardings=takes, out_shardings=gives, **options)

    def put(self, tree: PyTree) -> PyTree:
        """The same, whole on each device."""
        return jax.device_put(tree, self.whole)

    def placed(self, shapes: Loop) -> Loop:
        """The shapes of a loop, with where its arrays lie: what is loaded into them goes there at once."""
        if self.mesh is None:
            return shapes
        return jax.tree.map(
            lambda where, part: jax.tree.map(
                lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), part
            ),
            self.loop,
            shapes,
        )


def laid(loop: Loop) -> Loop:
    """The loop of one seed while it is traced: XLA would else be free to lay out anew what an update leaves behind."""
    return loop._replace(train=whole(loop.train), carry=spread(loop.carry))
