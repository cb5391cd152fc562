"""Capsules on a plane in MJX with the contact frames that C MuJoCo gives them.

The pyramid that stands for the cone of friction is not round: how its edges lie about the normal decides how much a
foot slides. C lays one along the capsule, however steep it stands; MJX 3.17 does so below 60 degrees only.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

_TABLE = threading.RLock()  # MJX has one table of collisions for the whole process
CONTACTS = 2  # one at either end


@contextlib.contextmanager
def as_in_c() -> Iterator[None]:
    """What is traced within this collides so; nobody else's simulations change."""
    from mujoco.mjx import GeomType
    from mujoco.mjx._src import collision_driver

    table, pair = collision_driver._COLLISION_FUNC, (GeomType.PLANE, GeomType.CAPSULE)
    with _TABLE:
        before, table[pair] = table[pair], _collide
        try:
            yield
        finally:
            table[pair] = before


def _collide(model: Any, data: Any, _: Any, geoms: Array) -> tuple[Array, Array, Array]:
    """(distance, point, frame) of all contacts of pairs (plane, capsule), as MJX asks for them."""
    planes, capsules = geoms.T
    found = jax.vmap(_ends)(
        data.geom_xmat[planes][..., 2],
        data.geom_xpos[planes],
        data.geom_xmat[capsules][..., 2],
        data.geom_xpos[capsules],
        model.geom_size[capsules],
    )
    distance, point, frame = (part.reshape(-1, *part.shape[2:]) for part in found)
    return distance, point, frame


_collide.ncon = CONTACTS  # pyright: ignore[reportFunctionMemberAccess] - where MJX looks for it


def _ends(normal: Array, ground: Array, axis: Array, centre: Array, size: Array) -> tuple[Array, Array, Array]:
    radius, half = size[0], size[1]
    ends = centre[None] + jnp.array([[1.0], [-1.0]]) * (half * axis)[None]
    distance = (ends - ground[None]) @ normal - radius
    point = ends - (radius + distance / 2)[:, None] * normal[None]
    along = axis - normal * jnp.dot(normal, axis)
    length = jnp.linalg.norm(along)
    # One that stands upright has no direction on the ground, and any will do.
    sideways = jnp.where(jnp.abs(normal[1]) < 0.5, jnp.array([0.0, 1.0, 0.0]), jnp.array([0.0, 0.0, 1.0]))
    along = jnp.where(length > 1e-6, along / jnp.maximum(length, 1e-6), sideways)
    frame = jnp.stack([normal, along, jnp.cross(normal, along)])
    return distance, point, jnp.broadcast_to(frame, (CONTACTS, 3, 3))
