"""Builds MuJoCo models from tables of body parts, at any size and without meshes.

A part is rigid; parts without joints become one with the part they hang on when the model is compiled. Only spheres
under the soles touch the ground: where a foot is a box, MJX finds other contacts than C does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from s2pg.envs.mujoco.models import mujoco

Vector = tuple[float, ...]
SPHERE = 0.01  # radius of those under the soles of a grown robot, in metres
TIMESTEP = 0.002
COLOUR, WEIGHT_COLOUR = "0.75 0.6 0.45 1", "0.6 0.1 0.5 1"
SCENE = """
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1=".4 .5 .6" rgb2="0 0 0" width="100" height="100"/>
    <texture name="tiles" type="2d" builtin="checker" rgb1=".2 .3 .4" rgb2=".1 .15 .2" width="100" height="100"/>
    <material name="ground" texture="tiles" texrepeat="1 1" texuniform="true" reflectance="0.2"/>
  </asset>"""


@dataclasses.dataclass(frozen=True)
class Joint:
    """A joint in its part's frame: ranges in radians (none: free), gear in newton metres."""

    name: str
    axis: Vector
    range: Vector = ()
    gear: float = 0.0
    damping: float = 0.0
    stiffness: float = 0.0
    armature: float = 0.01
    slide: bool = False


@dataclasses.dataclass(frozen=True)
class Part:
    """A rigid part: where it hangs on its parent, what it weighs, how it turns and what it looks like."""

    name: str
    parent: str
    pos: Vector
    mass: float
    com: Vector
    inertia: Vector  # about the centre of mass: xx, yy, zz, xy, xz, yz
    quat: Vector = (1.0, 0.0, 0.0, 0.0)
    joints: tuple[Joint, ...] = ()
    capsules: tuple[tuple[Vector, float], ...] = ()  # both ends, and a radius
    box: tuple[Vector, Vector] | None = None  # its centre and half of its edges
    soles: tuple[Vector, ...] = ()  # centres of the spheres that touch the ground


def root(axes: Sequence[Vector]) -> tuple[Joint, ...]:
    """Makes the six joints by which LocoMuJoCo's robots move through the world, in its order."""
    names = ("tx", "tz", "ty", "tilt", "list", "rotation")
    pairs = enumerate(zip(names, axes, strict=True))
    return tuple(Joint(f"pelvis_{name}", axis, armature=0.0, slide=i < 3) for i, (name, axis) in pairs)


def mirrored(parts: Sequence[Part], across: int, ends: tuple[str, str]) -> tuple[Part, ...]:
    """Makes the parts of the other side, as in a mirror across an axis; `ends` is what names end with, or begin."""

    def place(vector: Vector) -> Vector:
        return tuple(-x if i % 3 == across else x for i, x in enumerate(vector))

    def turn(axis: Vector) -> Vector:
        return tuple(x if i == across else -x for i, x in enumerate(axis))

    def name(text: str) -> str:
        here, there = ends
        if text.endswith(f"_{here}"):
            return text.removesuffix(here) + there
        return there + text.removeprefix(here) if text.startswith(f"{here}_") else text

    def other(part: Part) -> Part:
        products = ((0, 1), (0, 2), (1, 2))
        return dataclasses.replace(
            part,
            name=name(part.name),
            parent=name(part.parent),
            pos=place(part.pos),
            com=place(part.com),
            quat=(part.quat[0], *turn(part.quat[1:])),
            inertia=part.inertia[:3]
            + tuple(-x if across in pair else x for x, pair in zip(part.inertia[3:], products, strict=True)),
            joints=tuple(
                dataclasses.replace(joint, name=name(joint.name), axis=turn(joint.axis)) for joint in part.joints
            ),
            capsules=tuple((place(ends), radius) for ends, radius in part.capsules),
            soles=tuple(map(place, part.soles)),
        )

    return tuple(map(other, parts))


def scaled(part: Part, size: float, torque: int = 2, coms: bool = True) -> Part:
    """Makes a part so many times as long: mass grows with size^3, inertia with size^5, torques with size^torque.

    `coms` False leaves centres of mass where the grown robot has them. Damping, stiffness and armature stay.
    """

    def length(vector: Vector) -> Vector:
        return tuple(size * x for x in vector)

    return dataclasses.replace(
        part,
        pos=length(part.pos),
        mass=part.mass * size**3,
        com=length(part.com) if coms else part.com,
        inertia=tuple(x * size**5 for x in part.inertia),
        joints=tuple(dataclasses.replace(joint, gear=joint.gear * size**torque) for joint in part.joints),
        capsules=tuple((length(ends), size * radius) for ends, radius in part.capsules),
        soles=tuple(map(length, part.soles)),
    )


def bounded(part: Part, least: float) -> Part:
    """Raises moments of inertia to a least one, then evens out those that no body can have, as MuJoCo's compiler may.

    For parts that turn about their own axes only.
    """
    moments = [max(x, least) for x in part.inertia[:3]]
    if 2 * max(moments) > sum(moments):
        moments = [sum(moments) / 3] * 3
    return dataclasses.replace(part, inertia=(*moments, 0.0, 0.0, 0.0))


def build(name: str, parts: Sequence[Part], motors: Sequence[str], limit: float, camera: str, size: float = 1.0) -> Any:
    """Compiles a robot; `motors` are joints in the order of actions, which go from -limit to limit."""
    joints = {joint.name: joint for part in parts for joint in part.joints}
    gears = (f'<motor name="{each}" joint="{each}" gear="{joints[each].gear!r}"/>' for each in motors)
    return mujoco().MjModel.from_xml_string(f"""<mujoco model="{name}">
  <compiler angle="radian" fusestatic="true"/>
  <option timestep="{TIMESTEP}" integrator="implicitfast"/>
  <default>
    <geom contype="0" conaffinity="0" rgba="{COLOUR}"/>
    <motor ctrllimited="true" ctrlrange="{-limit} {limit}"/>
    <default class="sole"><geom type="sphere" size="{SPHERE * size!r}" margin="0.001" conaffinity="1"/></default>
  </default>{SCENE}
  <worldbody>
    <light directional="true" dir="0 0.3 -1" diffuse="0.9 0.9 0.9" castshadow="false"/>
    <geom name="floor" type="plane" size="500 500 0.125" material="ground" rgba="0.8 0.9 0.8 1" contype="1"/>
    {_bodies(parts, "world", camera)}
  </worldbody>
  <actuator>{"".join(gears)}</actuator>
</mujoco>""")


def _bodies(parts: Sequence[Part], parent: str, camera: str = "") -> str:
    """Writes the parts that hang on one, and whatever hangs on them."""
    return "".join(
        f'<body name="{part.name}" pos="{_text(part.pos)}" quat="{_text(part.quat)}">'
        f'<inertial pos="{_text(part.com)}" mass="{part.mass!r}" fullinertia="{_text(part.inertia)}"/>'
        f"{camera}{''.join(map(_joint, part.joints))}{_geoms(part)}{_bodies(parts, part.name)}</body>"
        for part in parts
        if part.parent == parent
    )


def _joint(joint: Joint) -> str:
    limits = f'limited="true" range="{_text(joint.range)}"' if joint.range else 'limited="false"'
    kind = "slide" if joint.slide else "hinge"
    return (
        f'<joint name="{joint.name}" type="{kind}" axis="{_text(joint.axis)}" {limits} damping="{joint.damping}"'
        f' stiffness="{joint.stiffness}" armature="{joint.armature}"/>'
    )


def _geoms(part: Part) -> str:
    soles = (f'<geom class="sole" pos="{_text(centre)}"/>' for centre in part.soles)
    capsules = (f'<geom type="capsule" fromto="{_text(ends)}" size="{radius!r}"/>' for ends, radius in part.capsules)
    box = ""
    if part.box:
        centre, half = map(_text, part.box)
        box = f'<geom type="box" pos="{centre}" size="{half}" rgba="{WEIGHT_COLOUR}"/>'
    return "".join([*soles, *capsules, box])


def _text(numbers: Vector) -> str:
    return " ".join(map(repr, numbers))
