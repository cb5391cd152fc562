"""The humanoid of four ages: an adult's table of body parts, and its models at other sizes.

Numbers are those of the humanoid driven by torques in LocoMuJoCo 0.4.1 (MIT, (c) 2024 Al-Hafez; after G. Zhao and
Hamner et al. 2010), with stiff arms and feet as in its POMDP task. Frames have x forward, y up and z to the right.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from s2pg.envs.mujoco.anatomy import SPHERE, Joint, Part, bounded, build, mirrored, root, scaled

SIZES = (0.4, 0.6, 0.8, 1.0)  # a toddler, a child of five, one of twelve, an adult
LEAST_INERTIA = 1e-3  # what the released file asks MuJoCo's compiler for
CAMERA = '<camera name="track" mode="trackcom" pos="0 0 4" xyaxes="1 0 0 0 1 0"/>'
X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


def _part(name: str, parent: str, pos: tuple, mass: float, com: tuple, inertia: tuple, **more: Any) -> Part:
    return Part(name, parent, pos, mass, com, (*inertia, 0.0, 0.0, 0.0), **more)


def _sole() -> tuple[tuple[float, ...], ...]:
    """Spheres that touch the ground where the corners of the released foot would: a box turned by -0.15 about y."""
    half, centre, turn = (0.112, 0.03, 0.05), (-0.09, 0.019, 0.0), -0.15
    cos, sin = math.cos(turn), math.sin(turn)
    corners = [(along * half[0], side * half[2]) for along in (-1, 1) for side in (-1, 1)]
    return tuple(
        (centre[0] + cos * x + sin * z, centre[1] - half[1] + SPHERE, centre[2] - sin * x + cos * z) for x, z in corners
    )


def _lumbar(name: str, axis: tuple, range: tuple, gear: float, stiffness: float) -> Joint:
    return Joint(f"lumbar_{name}", axis, range, gear, 5.0, stiffness)


TRUNK = (
    _part(
        "pelvis", "world", (0.0, 0.0, 0.975), 13.5729922649758, (-0.0721882, 0.0, 0.0), (0.123517, 0.104653, 0.0695686),
        quat=(1.0, 1.0, 0.0, 0.0), joints=root((X, Z, Y, Z, X, Y)),
        capsules=(((-0.07, 0.0, -0.07, -0.07, 0.0, 0.07), 0.09),),
    ),
)  # fmt: skip
LEG = (
    _part(
        "femur_r", "pelvis", (-0.0721882, -0.0674914, 0.0852576), 10.7198633143794, (0.0, -0.154514, 0.0),
        (0.127486, 0.0334185, 0.134436), capsules=(((0.0, 0.0, 0.0, 0.0, -0.36, 0.0), 0.065),),
        joints=(
            Joint("hip_flexion_r", Z, (-0.787, 0.787), 275.0, 5.0, 10.0),
            Joint("hip_adduction_r", X, (-0.524, 0.524), 530.0, 5.0, 10.0),
            Joint("hip_rotation_r", Y, (-2.0944, 2.0944), 600.0, 5.0, 20.0),
        ),
    ),
    _part(
        "tibia_r", "femur_r", (-0.00167398, -0.365545, 0.0), 4.27289367601238, (0.0, -0.208485, 0.0),
        (0.072432, 0.00732943, 0.073438), joints=(Joint("knee_angle_r", Z, (-2.0944, 0.174533), 600.0, 1.0, 1.0),),
        capsules=(((0.0, 0.0, 0.0, 0.0, -0.47, 0.0), 0.045),),
    ),
    _part(
        "talus_r", "tibia_r", (0.0, -0.480173, 0.0), 0.11524999800438, (0.0, 0.0, 0.0), (0.00143714,) * 3,
        joints=(Joint("ankle_angle_r", (-0.105014, -0.174022, 0.979126), (-1.5708, 1.5708), 500.0, 1.0, 10.0),),
    ),
    _part(
        "calcn_r", "talus_r", (-0.0544606, -0.0468448, 0.00884412), 1.44062497505475, (0.106552, 0.0319656, 0.0),
        (0.00183186, 0.00510303, 0.00536472),
    ),
    _part(
        "toes_r", "calcn_r", (0.190515, -0.00213104, 0.00115076), 0.249631495677486, (0.036867, 0.00639311, -0.0186466),
        (0.000130847, 0.000261694, 0.00130847), soles=_sole(), capsules=(((-0.17, 0.02, 0.0, 0.0, 0.02, 0.0), 0.03),),
    ),
)  # fmt: skip
TORSO = (
    _part(
        "torso", "pelvis", (-0.10282, 0.0832155, 0.0), 30.9176559646429, (-0.0323208, 0.344755, 0.0),
        (1.97246, 1.01064, 1.9148),
        joints=(
            _lumbar("extension", Z, (-1.5708, 0.377), 160.0, 10.0),
            _lumbar("bending", X, (-0.754, 0.754), 160.0, 10.0),
            _lumbar("rotation", Y, (-0.754, 0.754), 100.0, 20.0),
        ),
        capsules=(((0.0, 0.08, 0.0, 0.0, 0.4, 0.0), 0.11), ((0.03, 0.6, 0.0, 0.05, 0.66, 0.0), 0.09)),
    ),
)  # fmt: skip
ARM = (
    _part(
        "humerus_r", "torso", (0.00339907, 0.400239, 0.183151), 2.34245620943902, (0.0, -0.193252, 0.0),
        (0.0190007, 0.00655464, 0.0213276), quat=(1.0, 0.1, 1.0, -0.1),
        capsules=(((0.0, 0.0, 0.0, 0.015, -0.33, -0.011), 0.04),),
    ),
    _part(
        "ulna_r", "humerus_r", (0.0154412, -0.336305, -0.0112719), 0.700143737876607, (0.0, -0.133575, 0.0),
        (0.00419295, 0.000874829, 0.00454826), quat=(1.0, -0.6, 0.0, 0.0),
        capsules=(((0.0, 0.0, 0.0, -0.017, -0.33, 0.044), 0.032),),
    ),
    _part(
        "radius_r", "ulna_r", (-0.00745535, -0.0144153, 0.0289071), 0.700143737876607, (0.0, -0.133575, 0.0),
        (0.00419295, 0.000874829, 0.00454826),
    ),
    _part(
        "hand_r", "radius_r", (-0.00974948, -0.261376, 0.0150836), 0.527268740870037, (0.0, -0.0725565, 0.0),
        (0.00116715, 0.000715732, 0.00175335),
    ),
)  # fmt: skip


def _left(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Mirrors parts of the right side; the released left ankle has a range of its own."""
    narrow = lambda joint: (  # noqa: E731
        dataclasses.replace(joint, range=(-1.0472, 1.0472)) if joint.name == "ankle_angle_l" else joint
    )
    found = mirrored(parts, across=2, ends=("r", "l"))
    return tuple(dataclasses.replace(part, joints=tuple(map(narrow, part.joints))) for part in found)


ADULT = (*TRUNK, *LEG, *_left(LEG), *TORSO, *ARM, *_left(ARM))
JOINTS = tuple(joint.name for part in ADULT for joint in part.joints)
MOTORS = (*JOINTS[16:], *JOINTS[6:16])  # the released order: lumbar, right, left


def humanoid(size: float, torque: int = 2, released: bool = False) -> Any:
    """Compiles the model of a size.

    `released` scales as LocoMuJoCo does: centres of mass stay where an adult's are, and moments of inertia are bounded
    after scaling, which gives small bodies too much of it.
    """
    if released:
        parts = [bounded(scaled(part, size, torque, coms=False), LEAST_INERTIA) for part in ADULT]
    else:
        parts = [scaled(bounded(part, LEAST_INERTIA), size, torque) for part in ADULT]
    return build("humanoid-ages", parts, MOTORS, 1.0, CAMERA, size)
