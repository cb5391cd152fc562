"""Motions of a robot's joints: read from files, closed into cycles, and what following one is worth.

A file is an .npz with members `q_<joint>` and `dq_<joint>`, one number a frame, as LocoMuJoCo's clips have them; a
member `frequency` may say how many frames a second has (500 without it). Of clips of several sizes, one after another
(`split_points`), the last is taken: the adult's.
"""

from __future__ import annotations

import difflib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from s2pg.clip import Clip
from s2pg.errors import UserError

RATE = 500.0  # frames a second of LocoMuJoCo's clips
BRIDGE = 0.032  # seconds that close a clip of a stride
CONTROL_RATE = 100  # frames a second of a cycle, one for each decision
ROOT = 3  # leading positions that are lengths; the others are angles


def frames(path: str | Path, joints: Sequence[str]) -> Clip:
    """Reads a motion of these joints; other joints of the file are left out."""
    try:
        with np.load(path, allow_pickle=False) as file:
            wanted = [f"{kind}_{joint}" for kind in ("q", "dq") for joint in joints]
            for name in wanted:
                if name not in file:
                    raise _missing(path, name, file.files)
            columns = [file[name] for name in wanted]
            splits = file.get("split_points")
            rate = float(file["frequency"]) if "frequency" in file else RATE
    except FileNotFoundError:
        raise UserError(f"demos: there is no file {path}") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, TypeError) as error:
        raise UserError(f"demos: {path} is no .npz file of a motion ({error})") from None
    if len({column.shape for column in columns}) > 1 or columns[0].ndim != 1 or len(columns[0]) < 2:
        raise UserError(f"demos: members of {path} must be one number a frame, as many in each")
    if not 0.0 < rate < np.inf:
        raise UserError(f"demos: {path} has a frequency of {rate:g}")
    try:
        start = int(splits[-2]) if splits is not None and len(splits) > 1 else 0
        qpos, qvel = np.split(np.stack(columns, axis=1).astype(float)[start:], 2, axis=1)
        return Clip(1.0 / rate, tuple(joints), qpos, qvel)
    except (UserError, ValueError, TypeError) as error:
        raise UserError(f"demos: {path}: {error}") from None


def _missing(path: str | Path, name: str, there: Sequence[str]) -> UserError:
    near = difflib.get_close_matches(name, there, n=3, cutoff=0.5)
    hint = f"near it: {', '.join(near)}" if near else f"it has {', '.join(sorted(there)[:6]) or 'nothing'} ..."
    return UserError(f"demos: {path} has no member {name} of this robot; {hint}")


def closed(clip: Clip, bridge: float = BRIDGE) -> Clip:
    """Closes a clip of a stride into a cycle by a cubic bridge from its end to its beginning, at 100 frames a second.

    It is cut where the beginning is what the end leads to: a clip that lacks a little of a stride stays whole, and one
    that goes on beyond it is shortened.
    """
    assert clip.dt is not None
    qpos, qvel, count, rate = clip.positions, clip.velocities, clip.frames, 1.0 / clip.dt
    if count < 4:
        raise UserError(f"a motion of {count} frames is too short to be closed")
    ends = np.arange(count // 2, count)
    ahead = bridge * (qvel[ends] + qvel[0]) / 2
    gap = (qpos[0] - qpos[ends] - ahead)[:, 2:]  # nothing says where on the ground a stride ends
    push = np.gradient(qvel, axis=0) * rate
    turn = bridge * (qvel[0] - qvel[ends] - bridge * (push[ends] + push[0]) / 2)
    end = int(ends[np.argmin(np.square(gap).sum(axis=1) + np.square(turn).sum(axis=1))])
    goal = qpos[0].copy()
    goal[:2] = qpos[end, :2] + ahead[end - ends[0], :2]
    inside = np.arange(1, max(2, round(bridge * rate))) / (bridge * rate)
    bridged = _bridge(qpos[end], qvel[end], goal, qvel[0], inside, bridge)
    seconds = np.concatenate([np.arange(end + 1) / rate, end / rate + inside * bridge])
    period = end / rate + bridge
    steps = max(1, round(period * CONTROL_RATE))
    at = np.arange(steps) * period / steps
    whole = [np.concatenate(parts) for parts in ((qpos[: end + 1], bridged[0]), (qvel[: end + 1], bridged[1]))]
    # The last moments lie between the end of the bridge and the first frame.
    seconds, last = np.append(seconds, period), (goal, qvel[0])
    whole = [np.concatenate([rows, row[None]]) for rows, row in zip(whole, last, strict=True)]
    sampled = [np.stack([np.interp(at, seconds, column) for column in rows.T], axis=1) for rows in whole]
    return Clip(1.0 / CONTROL_RATE, clip.joints, sampled[0], sampled[1] * period * CONTROL_RATE / steps)


def _bridge(q0: Any, v0: Any, q1: Any, v1: Any, at: np.ndarray, seconds: float) -> tuple[np.ndarray, np.ndarray]:
    """Evaluates the cubic between two states at shares of the time between them: positions and velocities."""
    t = at[:, None]
    rise, slope = q1 - q0, seconds * v0
    a, b = slope + seconds * v1 - 2 * rise, 3 * rise - 2 * slope - seconds * v1
    return q0 + t * (slope + t * (b + t * a)), (slope + t * (2 * b + 3 * t * a)) / seconds


def resized(xp: Any, vector: Any, size: Any) -> Any:
    """Scales the lengths of a frame, or their velocities, to a robot of another size; angles are the same."""
    return xp.concatenate([vector[..., :ROOT] * xp.asarray(size)[..., None], vector[..., ROOT:]], axis=-1)


def tracking_reward(xp: Any, qpos: Any, qvel: Any, goal_qpos: Any, goal_qvel: Any, size: Any) -> Any:
    """Rewards being where a motion is, up to 1 for a step.

    0.5 exp(-2 |dq|^2) + 0.2 exp(-0.02 |ddq|^2) + 0.3 exp(-20 (dh/S)^2 - 5 |dv/S|^2): differences of angles, of their
    velocities, of the root's height and of its velocity; S is the robot's size.
    """
    off, fast = qpos - goal_qpos, qvel - goal_qvel
    square = lambda x: xp.sum(x * x, axis=-1)  # noqa: E731
    height, speed = off[..., ROOT - 1] / size, square(fast[..., :ROOT]) / size**2
    pose = 0.5 * xp.exp(-2.0 * square(off[..., ROOT:])) + 0.2 * xp.exp(-0.02 * square(fast[..., ROOT:]))
    return pose + 0.3 * xp.exp(-20.0 * height * height - 5.0 * speed)
