"""Capsules on a plane in MuJoCo Warp with the contact frames that C MuJoCo gives them; `contacts` says why.

Imported only where Warp is installed: its functions are compiled from their source.
"""

# Warp's own stubs do not take what its compiler does.
# pyright: reportArgumentType=false, reportCallIssue=false, reportMissingImports=false

import inspect
from collections.abc import Callable
from typing import Any

import warp as wp
from mujoco.mjx.third_party.mujoco_warp._src import collision_primitive

_CORE = collision_primitive.plane_capsule


def _compiled(function: Callable) -> Any:
    """A function of Warp's, from the source itself: whatever checks types at run time has wrapped it by now."""
    return wp.func(inspect.unwrap(function))


@_compiled
def _frame(normal: wp.vec3, axis: wp.vec3):
    along = axis - normal * wp.dot(normal, axis)
    length = wp.length(along)
    # One that stands upright has no direction on the ground, and any will do.
    sideways = wp.vec3(0.0, 1.0, 0.0)
    if wp.abs(normal[1]) >= 0.5:
        sideways = wp.vec3(0.0, 0.0, 1.0)
    if length > 1.0e-6:
        sideways = along / length
    across = wp.cross(normal, sideways)
    return wp.matrix_from_rows(normal, sideways, across)


@_compiled
def _plane_capsule(normal: wp.vec3, ground: wp.vec3, centre: wp.vec3, axis: wp.vec3, radius: float, half: float):
    distances, points, _ = _CORE(normal, ground, centre, axis, radius, half)
    return distances, points, _frame(normal, axis)


def install() -> None:
    """Puts them in the place of Warp's own, before its first kernel is compiled."""
    collision_primitive.plane_capsule = _plane_capsule
