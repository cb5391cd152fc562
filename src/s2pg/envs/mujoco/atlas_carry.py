"""Atlas with a box in its arms: a table of its body parts, and its models with boxes of other weights.

Numbers are those of the Atlas in LocoMuJoCo 0.4.1 (MIT, (c) 2024 Al-Hafez; after Roboti LLC and OSRF drcsim) as its
task `carry` holds it: back and arms stiff, so that they are one part with the pelvis. Frames have x forward, z up.
"""

from __future__ import annotations

from typing import Any

from s2pg.envs.mujoco.anatomy import SPHERE, Joint, Part, build, mirrored, root

WEIGHTS = (0.1, 1.0, 5.0, 10.0)  # the released ones, in kg
LIMIT = 0.95  # of each motor's control, as released
CAMERA = '<camera name="track" mode="trackcom" pos="0 -4 0" xyaxes="1 0 0 0 0 1"/>'
X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
BACK, RIGHT, DOWN = (-1.0, 0.0, 0.0), (0.0, -1.0, 0.0), (0.0, 0.0, -1.0)
BOX, HALF = (0.7075, 0.0, -0.038), (0.1, 0.27, 0.1)  # where the box is held, and half of its edges
# The corners of both boxes that the released foot is made of, but for two that lie within: x and y.
CORNERS = (
    (-0.0905, 0.0669435),
    (-0.0905, -0.0669435),
    (0.1365, 0.0669435),
    (0.1365, -0.0669435),
    (0.1725, 0.04),
    (0.1725, -0.04),
)
SOLE = -0.074119

TRUNK = (
    Part(
        "pelvis", "world", (0.0, 0.0, 0.94), 135.4406, (0.056408116334883, 0.001326777448504, 0.446287306896401),
        (9.4272997659578, 11.7978790755169, 10.24410442260026, -0.00430224303858, 2.40395959535118, 0.0264979710295),
        joints=root((X, Y, Z, RIGHT, X, Z)),
        capsules=(
            ((0.0, -0.06, 0.02, 0.0, 0.06, 0.02), 0.1),
            *(((-0.05, side * 0.08, 0.25, -0.08, side * 0.08, 0.58), 0.15) for side in (1, -1)),
            ((0.05, 0.0, 0.85, 0.1, 0.0, 0.85), 0.08),
            *(((-0.05, 0.0, 0.66, 0.128, side * 0.226, 0.69), 0.08) for side in (1, -1)),
            *(((0.128, side * 0.226, 0.69, 0.281, side * 0.336, 0.498), 0.06) for side in (1, -1)),
            *(((0.281, side * 0.336, 0.498, 0.659, side * 0.32, 0.025), 0.05) for side in (1, -1)),
        ),
    ),
)  # fmt: skip
LEG = (
    Part(
        "l_uglut", "pelvis", (0.0, 0.089, 0.0), 1.959, (0.00529262, -0.00344732, 0.00313046), (
            0.000742760011498, 0.000688179017016, 0.000412419971486, -3.79607281e-08, -2.795488253777e-05,
            -3.2734974e-08,
        ),
        joints=(Joint("hip_flexion_l", RIGHT, (-0.786794, 0.786794), 840.0),),
    ),
    Part(
        "l_lglut", "l_uglut", (0.0, 0.0, 0.0), 0.898, (0.0133341, 0.0170484, -0.0312052), (
            0.000691325841219, 0.001268561180995, 0.001064869977786, -2.243466995373e-05, 2.505080254853e-06,
            0.000137862877397,
        ),
        joints=(Joint("hip_adduction_l", BACK, (-0.523599, 0.523599), 530.0),),
        capsules=(((0.0, 0.0, 0.0, 0.05, 0.0225, -0.066), 0.06),),
    ),
    Part(
        "l_uleg", "l_lglut", (0.05, 0.0225, -0.066), 8.204, (0.0, 0.0, -0.21), (0.09, 0.09, 0.02, 0.0, 0.0, 0.0),
        joints=(Joint("hip_rotation_l", DOWN, (-1.61234, 1.61234), 275.0),),
        capsules=(((0.0, 0.0, -0.04, -0.05, 0.0, -0.36), 0.08),),
    ),
    Part(
        "l_lleg", "l_uleg", (-0.05, 0.0, -0.374), 4.515, (0.001, 0.0, -0.187),
        (0.077000040390688, 0.076, 0.009999999609312, 0.0, -0.002999995211643, 0.0),
        joints=(Joint("knee_angle_l", RIGHT, (-2.35637, 0.174), 890.0),),
        capsules=(((0.0, 0.0, 0.0, 0.0, 0.0, -0.4), 0.06),),
    ),
    Part(
        "l_talus", "l_lleg", (0.0, 0.0, -0.422), 2.535, (0.025668639053254, 0.0, -0.063696252465483),
        (0.002543623514398, 0.007628515521203, 0.008099641756805, 0.0, 0.000214974852071, 0.0),
        joints=(Joint("ankle_angle_l", RIGHT, (-1.0, 1.0), 740.0),),
        capsules=tuple(((-0.06, y, -0.045, 0.14, y, -0.045), 0.028) for y in (-0.035, 0.035)),
        soles=tuple((x, y, SOLE + SPHERE) for x, y in CORNERS),
    ),
)  # fmt: skip

PARTS = (*TRUNK, *LEG, *mirrored(LEG, across=1, ends=("l", "r")))
JOINTS = tuple(joint.name for part in PARTS for joint in part.joints)


def atlas(weight: float) -> Any:
    """Compiles the model with a box of so many kg."""
    x, y, z = (half**2 for half in HALF)
    moments = tuple(weight / 3 * both for both in (y + z, x + z, x + y))
    box = Part("weight", "pelvis", (0.0, 0.0, 0.0), weight, BOX, (*moments, 0.0, 0.0, 0.0), box=(BOX, HALF))
    return build("atlas-carry", (*PARTS, box), JOINTS[6:], LIMIT, CAMERA)
