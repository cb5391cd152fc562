"""Motions: read by the names of joints, closed into cycles, and what following one is worth."""

import jax.numpy as jnp
import numpy as np
import pytest

from s2pg.clip import Clip
from s2pg.envs.mujoco.humanoid_ages import JOINTS
from s2pg.envs.mujoco.motions import closed, frames, tracking_reward
from s2pg.errors import UserError
from strides import stride, write_motion


def test_a_motion_is_read_by_the_names_of_its_joints(tmp_path):
    clip = stride(JOINTS)
    parts = (np.concatenate([0.4 * part, part]) for part in (clip.positions, clip.velocities))
    many, count = Clip(clip.dt, clip.joints, *parts), clip.frames
    path = write_motion(
        tmp_path / "a.npz", JOINTS, many, split_points=np.array([0, count, 2 * count]), q_other=np.zeros(3)
    )
    found = frames(path, JOINTS)
    np.testing.assert_array_equal(found.positions, clip.positions)
    np.testing.assert_array_equal(found.velocities, clip.velocities)
    assert found.dt == 1 / 500
    assert frames(write_motion(tmp_path / "b.npz", JOINTS, clip, frequency=100.0), JOINTS).dt == 1 / 100
    back = frames(path, JOINTS[::-1])
    np.testing.assert_array_equal(back.positions, clip.positions[:, ::-1])


@pytest.mark.parametrize(("period", "seconds", "count"), [(1.03, 0.998, 103), (0.85, 1.1, 85)])
def test_a_stride_is_closed_into_a_cycle(period, seconds, count):
    """Whether it lacks a little of its period or goes on beyond it."""
    cycle = closed(stride(JOINTS, period, seconds))
    assert cycle.positions.shape == (count, 19) and cycle.dt == 1 / 100
    exact = stride(JOINTS, period, period, rate=count / period)
    np.testing.assert_allclose(cycle.positions[:, 3:], exact.positions[:count, 3:], atol=2e-3)
    np.testing.assert_allclose(cycle.velocities[:, 3:], exact.velocities[:count, 3:], atol=2e-2)
    np.testing.assert_allclose(cycle.velocities[:, 0], 1.3, rtol=1e-2)


def test_tracking_is_worth_one_on_the_motion_and_less_beside_it():
    """Worked out by hand: angles off by 0.1 and 0.2, their velocities by 1 and 2, height by 0.02, speed by 0.1."""
    goal = np.zeros(6)
    assert tracking_reward(np, goal, goal, goal, goal, np.array(1.0)) == pytest.approx(1.0)
    qpos, qvel = np.array([5.0, 7.0, 0.02, 0.1, 0.2, 0.0]), np.array([0.1, 0.0, 0.0, 1.0, 2.0, 0.0])
    for size in (1.0, 0.4):
        wanted = 0.5 * np.exp(-0.1) + 0.2 * np.exp(-0.1) + 0.3 * np.exp((-20 * 0.0004 - 5 * 0.01) / size**2)
        for xp in (np, jnp):
            found = tracking_reward(xp, *map(xp.asarray, (qpos, qvel, goal, goal)), xp.asarray(size))
            assert float(found) == pytest.approx(wanted, rel=1e-5)


def test_motions_that_are_none_are_told_in_one_line(tmp_path):
    clip = stride(JOINTS)
    text = tmp_path / "text.npz"
    text.write_text("no archive")
    short = write_motion(tmp_path / "short.npz", JOINTS, stride(JOINTS, seconds=0.0))
    broken = write_motion(tmp_path / "nan.npz", JOINTS, clip, **{f"q_{JOINTS[2]}": np.full(clip.frames, np.nan)})
    timeless = write_motion(tmp_path / "timeless.npz", JOINTS, clip, frequency=0.0)
    other = tmp_path / "other.npz"
    np.savez(other, **{f"q_{name}": np.zeros(3) for name in ("pelvis_tx", "pelvis_tz", "pelvis_y")})
    pickled = tmp_path / "object.npz"
    np.savez(pickled, **{f"{kind}_{name}": np.array([{}] * 3) for kind in ("q", "dq") for name in JOINTS})
    for path, message in (
        (text, "is no .npz file of a motion"),
        (pickled, "is no .npz file of a motion"),
        (short, "must be one number a frame"),
        (broken, "positions of a clip is not finite in row 0"),
        (timeless, "has a frequency of 0"),
        (other, "has no member q_pelvis_ty of this robot; near it: q_pelvis_y"),
    ):
        with pytest.raises(UserError) as error:
            frames(path, JOINTS)
        assert message in str(error.value) and "\n" not in str(error.value)
