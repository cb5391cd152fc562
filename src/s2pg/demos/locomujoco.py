"""The three layouts of LocoMuJoCo: clips and transitions of its 0.x versions, trajectories of its 1.x versions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from s2pg.clip import Clip, speeds
from s2pg.columns import numbers, pieces
from s2pg.demos.data import Demonstrations
from s2pg.demos.members import Members
from s2pg.errors import UserError
from s2pg.types import POLICY

POSITION, VELOCITY, SPLITS, FREQUENCY = "q_", "dq_", "split_points", "frequency"
CLIP_RATE = 500.0  # frames a second of clips of 0.x, which do not say it
TRANSITIONS = {"states", "next_states", "actions", "absorbing", "last"}
TRAJECTORY = {"qpos", "qvel", SPLITS, "jnt_type", FREQUENCY}
WIDTHS = {0: 7, 1: 4, 2: 1, 3: 1}  # positions of MuJoCo's joints: free, ball, slide, hinge


def is_clip(members: set[str]) -> bool:
    """Tells a clip by its joints: each has a member for positions and one for velocities."""
    joints = {name.removeprefix(POSITION) for name in members if name.startswith(POSITION)}
    return bool(joints) and all(VELOCITY + joint in members for joint in joints)


def read_clip(path: Path, joints: Sequence[str] | None = None) -> Clip | list[Clip]:
    """Reads a clip; a file with split points holds several, in a list."""
    with Members(path) as members:
        known = tuple(name.removeprefix(POSITION) for name in members if name.startswith(POSITION))
        positions = _side_by_side(members, POSITION, known)
        velocities = _side_by_side(members, VELOCITY, known)
        if len(positions) != len(velocities):
            raise UserError(f"{path} has {len(positions)} positions and {len(velocities)} velocities")
        parts = pieces(members[SPLITS], len(positions), str(path)) if SPLITS in members else [slice(None)]
        dt = 1.0 / (_frequency(members) if FREQUENCY in members else CLIP_RATE)
    clips = [Clip(dt, known, positions[part], velocities[part]) for part in parts]
    clips = clips if joints is None else [clip.order(joints) for clip in clips]
    return clips if len(clips) > 1 else clips[0]


def _side_by_side(members: Members, prefix: str, joints: Sequence[str]) -> np.ndarray:
    columns = [members[prefix + joint] for joint in joints]
    lengths = {column.shape for column in columns}
    if len(lengths) > 1 or columns[0].ndim != 1:
        raise UserError(f"members {prefix}... of {members.path} are no vectors of one length")
    return np.stack(columns, axis=1)


def read_transitions(path: Path, joints: Sequence[str] | None = None) -> Demonstrations:
    """Reads a "perfect" set: states are the view `policy`, their columns in the order of the observation there."""
    if joints is not None:
        raise UserError(f"{path} holds transitions: name its columns, not joints")
    with Members(path) as members:
        states, next_states, actions = (np.atleast_2d(members[name]) for name in ("states", "next_states", "actions"))
        absorbing, last = (numbers(name, members[name], bool).reshape(-1) for name in ("absorbing", "last"))
        rewards = np.asarray(members["rewards"]).reshape(-1) if "rewards" in members else None
    if len(absorbing) != len(last):
        raise UserError(f"{path} has {len(absorbing)} rows of absorbing and {len(last)} of last")
    ends = absorbing | last
    first = np.concatenate([[True], ends[:-1]])[: len(ends)]
    return Demonstrations(
        {POLICY: states}, {POLICY: next_states}, actions, absorbing, first, reward=rewards,
        notes={"source": f"LocoMuJoCo 0.x, {path.name}"},
    )  # fmt: skip


def read_trajectories(path: Path, joints: Sequence[str] | None = None) -> list[Clip]:
    """Reads a file of 1.x, of which members with Python objects are left alone.

    `joints` orders the columns; where the file's own names cannot be read, it names them.
    """
    with Members(path) as members:
        known = _joint_names(members, joints)
        kinds = numbers("jnt_type", members["jnt_type"], float).reshape(-1).tolist()
        if len(kinds) != len(known):
            raise UserError(f"{path} has {len(kinds)} types of joints and {len(known)} names")
        positions, velocities = np.atleast_2d(members["qpos"]), np.atleast_2d(members["qvel"])
        frequency = _frequency(members)
        parts = pieces(members[SPLITS], len(positions), str(path))
    if strange := set(kinds) - WIDTHS.keys():
        raise UserError(f"{path} has a joint of type {strange.pop():g}, which MuJoCo does not know")
    widths = tuple(WIDTHS[kind] for kind in kinds)
    if (positions.shape[1], velocities.shape[1]) != (sum(widths), sum(map(speeds, widths))):
        raise UserError(f"qpos and qvel of {path} do not have the columns of its joints")
    clips = [Clip(1.0 / frequency, known, positions[part], velocities[part], None, widths) for part in parts]
    return clips if joints is None else [clip.order(joints) for clip in clips]


def _frequency(members: Members) -> float:
    """Frames a second."""
    found = numbers(FREQUENCY, members[FREQUENCY], float).reshape(-1)
    if len(found) != 1 or not 0.0 < found[0] < np.inf:
        raise UserError(f"{members.path} has a frequency of {', '.join(map(str, found.tolist()))}")
    return float(found[0])


def _joint_names(members: Members, joints: Sequence[str] | None) -> tuple[str, ...]:
    try:
        return tuple(map(str, members["joint_names"].reshape(-1).tolist()))
    except UserError:
        if joints is None:
            raise
        return tuple(joints)
