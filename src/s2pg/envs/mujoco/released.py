"""Finds the models of LocoMuJoCo 0.4 where that package is installed, and changes them as its tasks do.

The package itself is never imported: it would ask for MushroomRL and dm_control.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from s2pg.envs.mujoco.models import mujoco
from s2pg.errors import UserError

INSTALL = "pip install --no-deps loco-mujoco==0.4.1"
WELDED = ("subtalar", "mtp", "arm", "elbow", "pro_sup", "wrist", "back", "l_arm", "r_arm")
# How the humanoid holds its arms, and Atlas its box.
ARMS = {
    "humerus_l": (1.0, -0.1, -1.0, -0.1),
    "ulna_l": (1.0, 0.6, 0.0, 0.0),
    "humerus_r": (1.0, 0.1, 1.0, -0.1),
    "ulna_r": (1.0, -0.6, 0.0, 0.0),
}
CARRYING = {"r_clav": (1.0, 0.0, -0.35, 0.0), "l_clav": (0.0, -0.35, 0.0, 1.0)}


def humanoid(size: float, torque: int, sound: bool = False) -> Any:
    """Compiles the humanoid of its POMDP task; centres of mass stay where the adult's are, as they do there.

    `sound` scales them as everything else.
    """
    spec = _spec("humanoid/humanoid_torque.xml")
    for mesh in spec.meshes:
        mesh.scale = mesh.scale * size
    for body in spec.bodies[1:]:
        body.pos = body.pos * size
        if sound:
            body.ipos = body.ipos * size
        body.mass = body.mass * size**3
        body.fullinertia = body.fullinertia * size**5
    for motor in spec.actuators:
        motor.gear = motor.gear * size**torque
    _weld(spec)
    for side, turn in (("l", 0.15), ("r", -0.15)):
        spec.body(f"toes_{side}").add_geom(
            name=f"foot_box_{side}",
            type=mujoco().mjtGeom.mjGEOM_BOX,
            size=[0.112 * size, 0.03 * size, 0.05 * size],
            pos=[-0.09 * size, 0.019 * size, 0.0],
            quat=[math.cos(turn / 2), 0.0, math.sin(turn / 2), 0.0],
            rgba=[0.5, 0.5, 0.5, 0.5],
            margin=0.001,
            condim=1,
        )
    for name in ("r_foot", "r_bofoot", "l_foot", "l_bofoot"):
        geom = spec.geom(name)
        geom.contype = geom.conaffinity = 0
    return _compiled(spec, ARMS)


def atlas(weight: float) -> Any:
    """Compiles Atlas with a box of this weight before it."""
    spec = _spec("atlas/atlas.xml")
    _weld(spec)
    spec.body("utorso").add_body(name="weight").add_geom(
        type=mujoco().mjtGeom.mjGEOM_BOX,
        size=[0.1, 0.27, 0.1],
        pos=[0.72, 0.0, -0.25],
        mass=weight,
        rgba=[0.6, 0.0, 0.5, 1.0],
        contype=0,
        margin=0.001,
    )
    return _compiled(spec, CARRYING)


def _spec(file: str) -> Any:
    found = importlib.util.find_spec("loco_mujoco")
    if found is None or not found.submodule_search_locations:
        raise UserError(f"model=loco-mujoco needs its models: {INSTALL}")
    path = Path(found.submodule_search_locations[0]) / "environments" / "data" / file
    if not path.exists():
        raise UserError(f"loco-mujoco has no {file}, which its version 0.4.1 has: {INSTALL}")
    return mujoco().MjSpec.from_file(str(path))


def _weld(spec: Any) -> None:
    """Takes joints away that its tasks do without, and what belongs to them."""
    gone = {joint.name for joint in spec.joints if joint.name.startswith(WELDED)}
    _delete(spec, [each for each in spec.equalities if each.name1 in gone])
    _delete(spec, [motor for motor in spec.actuators if motor.target in gone])
    _delete(spec, [joint for joint in spec.joints if joint.name in gone])


def _delete(spec: Any, elements: Iterable[Any]) -> None:
    for each in elements:
        spec.delete(each)


def _compiled(spec: Any, turned: dict[str, tuple[float, ...]]) -> Any:
    for name, quat in turned.items():
        spec.body(name).quat = quat
    return spec.compile()
