"""Motions that are made up, for tests of bodies."""

import numpy as np

from s2pg.clip import Clip


def stride(joints, period=1.03, seconds=0.998, rate=500.0):
    """A made-up stride: every angle a sine of its own phase, the root at 1.3 m/s."""
    at = np.arange(round(seconds * rate) + 1) / rate
    omega, phase = 2 * np.pi / period, np.arange(len(joints))[None]
    qpos = 0.05 * np.sin(omega * at[:, None] + phase)
    qvel = 0.05 * omega * np.cos(omega * at[:, None] + phase)
    qpos[:, 0], qvel[:, 0], qpos[:, 2], qvel[:, 2] = 1.3 * at, 1.3, 0.0, 0.0
    return Clip(1.0 / rate, tuple(joints), qpos, qvel)


def write_motion(path, joints, clip, **more):
    columns = {f"q_{name}": clip.positions[:, i] for i, name in enumerate(joints)}
    columns |= {f"dq_{name}": clip.velocities[:, i] for i, name in enumerate(joints)}
    np.savez(path, **columns | more)
    return str(path)
