"""The bodies of the imitation experiments: their models at every size and weight, motions, rewards and ends."""

import importlib.util
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import s2pg
from s2pg.envs import tasks
from s2pg.envs.mujoco import models, released
from s2pg.envs.mujoco.atlas_carry import JOINTS as ATLAS_JOINTS
from s2pg.envs.mujoco.atlas_carry import WEIGHTS, atlas
from s2pg.envs.mujoco.bodies import BODIES, LOADS, AtlasOptions, HumanoidOptions
from s2pg.envs.mujoco.definition import Physics
from s2pg.envs.mujoco.device import DeviceRobot
from s2pg.envs.mujoco.host import HostRobot
from s2pg.envs.mujoco.humanoid_ages import JOINTS, MOTORS, SIZES, humanoid
from s2pg.envs.mujoco.mjx import mjx
from s2pg.envs.mujoco.motions import closed, frames, tracking_reward
from s2pg.envs.mujoco.parity import BOUNDS, differences
from s2pg.errors import UserError
from strides import stride, write_motion

MUJOCO = models.mujoco()
ROBOT_JOINTS = {"humanoid-ages": JOINTS, "atlas-carry": ATLAS_JOINTS}
OPTIONS = {"humanoid-ages": HumanoidOptions, "atlas-carry": AtlasOptions}
VALUES = {"humanoid-ages": SIZES, "atlas-carry": WEIGHTS}


@pytest.fixture
def demos(tmp_path):
    return {id: write_motion(tmp_path / f"{id}.npz", joints, stride(joints)) for id, joints in ROBOT_JOINTS.items()}


def _dynamics(model, qpos, qvel=0.0):
    """The mass matrix without the motors' rotors, forces of gravity and motion, and centres of mass."""
    data, matrix = MUJOCO.MjData(model), np.zeros((model.nv, model.nv))
    data.qpos[:], data.qvel[:] = qpos, qvel
    MUJOCO.mj_forward(model, data)
    MUJOCO.mj_fullM(model, data, matrix)
    return matrix - np.diag(model.dof_armature), data.qfrc_bias.copy(), data.xipos.copy()


def test_models_have_the_joints_motors_and_masses_of_the_released_ones():
    adult, carrying = humanoid(1.0), atlas(5.0)
    for model, joints, motors, shape in (
        (adult, JOINTS, MOTORS, (19, 19, 13, 9)),
        (carrying, ATLAS_JOINTS, ATLAS_JOINTS[6:], (16, 16, 10, 12)),
    ):
        assert (model.nq, model.nv, model.nu, model.nbody) == shape
        assert tuple(model.joint(i).name for i in range(model.njnt)) == joints
        assert tuple(model.actuator(i).name for i in range(model.nu)) == motors
        assert model.opt.timestep == 0.002 and model.opt.integrator == MUJOCO.mjtIntegrator.mjINT_IMPLICITFAST
    assert JOINTS[:3] == ATLAS_JOINTS[:3] == ("pelvis_tx", "pelvis_tz", "pelvis_ty")
    assert MOTORS[:4] == ("lumbar_extension", "lumbar_bending", "lumbar_rotation", "hip_flexion_r")
    assert ATLAS_JOINTS[6] == "hip_flexion_l" and JOINTS[6] == "hip_flexion_r"
    assert adult.body_mass.sum() == pytest.approx(86.6272) and carrying.body_mass.sum() == pytest.approx(171.6626 + 5)
    assert adult.actuator_ctrlrange[:, 1].tolist() == [1.0] * 13
    assert carrying.actuator_ctrlrange[:, 1].tolist() == [0.95] * 10


@pytest.mark.parametrize("size", SIZES[:3])
def test_a_smaller_body_is_the_same_body_in_other_units(size):
    """Mass S^3, lengths S: at the same angles, torques of gravity are S^4 and moments of inertia S^5 of the adult's."""
    qpos = np.random.default_rng(0).uniform(-0.3, 0.3, 19)
    qpos[:3] = 0.0
    (big, weight, places), (small, light, near) = (_dynamics(humanoid(each), qpos) for each in (1.0, size))
    np.testing.assert_allclose(small[3:, 3:], size**5 * big[3:, 3:], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(small[:3, :3], size**3 * big[:3, :3], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(light[3:], size**4 * weight[3:], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(near, size * places, atol=1e-12)
    for torque in (2, 3):
        gears = humanoid(size, torque).actuator_gear[:, 0] / humanoid(1.0).actuator_gear[:, 0]
        np.testing.assert_allclose(gears, size**torque)


def test_the_released_scaling_leaves_centres_of_mass_where_an_adults_are():

    def trunk(model):
        """How high the centre of mass of trunk and arms is above the pelvis."""
        return model.body("torso").pos[1] + model.body("torso").ipos[1]

    assert trunk(humanoid(1.0)) == pytest.approx(trunk(humanoid(1.0, released=True)))
    assert trunk(humanoid(0.4)) == pytest.approx(0.4 * trunk(humanoid(1.0)))
    assert trunk(humanoid(0.4, released=True)) > 0.75 * trunk(humanoid(1.0))
    assert humanoid(0.4, released=True).body_mass.sum() == pytest.approx(5.5441408)


def test_both_sides_of_a_body_are_alike():
    for model, across in ((humanoid(1.0), 2), (atlas(1.0), 1)):
        for i in range(1, model.nbody):
            name = model.body(i).name
            other = name[:-1] + "l" if name.endswith("_r") else "l" + name[1:] if name.startswith("r_") else ""
            if other:
                sign = np.where(np.arange(3) == across, -1.0, 1.0)
                np.testing.assert_allclose(model.body(i).ipos, sign * model.body(other).ipos, atol=1e-12)
                np.testing.assert_allclose(model.body(i).inertia, model.body(other).inertia, rtol=1e-9)


@pytest.mark.parametrize(("id", "spheres"), [("humanoid-ages", 8), ("atlas-carry", 12)])
def test_a_body_stands_on_its_soles_and_nothing_else_touches(id, spheres):
    for model in HostRobot(id, OPTIONS[id](**{"weights": "grid"} if id == "atlas-carry" else {})).variants.models:
        touching = np.flatnonzero(model.geom_conaffinity)
        assert len(touching) == spheres and (model.geom_contype[touching] == 0).all()
        data = MUJOCO.MjData(model)
        MUJOCO.mj_forward(model, data)
        lowest = (data.geom_xpos[touching, 2] - model.geom_size[touching, 0]).min()
        assert 0.0 < lowest < 0.005
        data.qpos[2] -= lowest + 0.002
        MUJOCO.mj_forward(model, data)
        assert data.ncon == spheres


@pytest.mark.parametrize("id", BODIES)
def test_the_pool_holds_all_that_differs_between_models(id):
    options = OPTIONS[id](**{"weights": "grid"} if id == "atlas-carry" else {})
    env = DeviceRobot(id, options)
    base = jax.tree_util.tree_leaves_with_path(mjx().put_model(env.variants.models[0]))
    np.testing.assert_allclose(env.hidden[:, 0], VALUES[id])
    for k, model in enumerate(env.variants.models):
        for (path, leaf), plain in zip(base, jax.tree.leaves(mjx().put_model(model)), strict=True):
            name = jax.tree_util.keystr(path).strip(".")
            # Means only say when the solver has done; those of the first, lightest model are the strictest.
            if not np.array_equal(leaf, plain) and not name.startswith("stat."):
                np.testing.assert_allclose(env.pool[name][k], plain, rtol=1e-6, err_msg=name)
    assert {"body_mass", "body_ipos", "dof_M0", "body_invweight0"} <= set(env.pool)


def test_uniform_weights_are_drawn_from_many():
    lanes = HostRobot("atlas-carry").lanes([0], 200)
    drawn = lanes.reset().obs["critic"][0, :, -1]
    assert len(np.unique(drawn)) > LOADS / 2 and drawn.min() >= np.float32(0.1) and drawn.max() <= 10.0
    assert np.diff(np.unique(drawn)).max() < 1.0


@pytest.mark.parametrize("id", BODIES)
def test_every_lane_has_the_model_that_its_critic_sees_and_its_policy_does_not(id):
    options = {"weights": "grid"} if id == "atlas-carry" else {}
    task = HostRobot(id, OPTIONS[id](horizon=2, **options))
    lanes, joints = task.lanes([0], 24), len(ROBOT_JOINTS[id])
    assert task.spec.views["policy"] == 2 * joints - 2 and task.spec.views["critic"] == 2 * joints - 1
    step, seen = lanes.reset(), set()
    for _ in range(3):
        for i, model in enumerate(lanes.simulations.models):
            hidden = float(step.obs["critic"][0, i, -1])
            wanted = 86.6272 * hidden**3 if id == "humanoid-ages" else 171.6626 + hidden
            assert model.body_mass.sum() == pytest.approx(wanted, rel=1e-6)
            seen.add(round(hidden, 4))
        np.testing.assert_array_equal(step.obs["policy"], step.obs["critic"][..., :-1])
        step = lanes.step(np.zeros((1, 24, task.model.nu), np.float32))
    assert seen == set(VALUES[id])
    hiding = HostRobot(id, OPTIONS[id](hide="velocities"))
    assert hiding.spec.views["policy"] == joints - 2 and hiding.spec.views["critic"] == 2 * joints - 1


@pytest.mark.parametrize(("gait", "speed"), [("walk", 1.25), ("run", 2.5)])
def test_the_speed_of_the_size_is_rewarded(gait, speed):
    for size in SIZES:
        robots = HostRobot("humanoid-ages", HumanoidOptions(gait=gait, size=size)).simulations(1)
        robots.begin(0, np.random.default_rng(0))
        moved = robots.move([0], np.zeros((1, 13)))
        velocity = robots.data[0].qvel[0]
        assert moved.reward[0] == pytest.approx(np.exp(-((velocity - size * speed) ** 2)))
    still = np.exp(-((0.0 - 1.25) ** 2))
    atlas_robot = HostRobot("atlas-carry", AtlasOptions(weight=3.0)).simulations(1)
    atlas_robot.place_at(0, atlas_robot.models[0].qpos0, np.zeros(16))
    assert atlas_robot.move([0], np.zeros((1, 10))).reward[0] == pytest.approx(still, abs=1e-3)


@pytest.mark.parametrize("id", BODIES)
def test_a_trunk_out_of_bounds_ends_the_episode_as_released(id):
    joints, size = ROBOT_JOINTS[id], np.array([[1.0]])
    for joint, bounds in BODIES[id].bounds.items():
        for bound in bounds:
            for inside in (True, False):
                qpos = np.zeros((1, len(joints)))
                qpos[0, joints.index(joint)] = bound * (0.99 if inside else 1.01)
                physics = Physics(qpos, np.zeros_like(qpos), qpos[:, 0])
                _, ended = BODIES[id].outcome(np, qpos[:, 0], physics, np.zeros((1, 1)), 0.01, size, 0)
                assert ended[0] != inside, (joint, bound)
    task = HostRobot(id)
    lanes = task.lanes([0], 2)
    lanes.reset()
    lanes.simulations.data[0].qpos[3] = 0.5  # bent forward or back
    step = lanes.step(np.zeros((1, 2, task.model.nu), np.float32))
    assert step.terminated.tolist() == [[True, False]] and step.first.tolist() == [[True, False]]


@pytest.mark.parametrize("id", BODIES)
def test_episodes_are_cut_resumed_and_survive_a_broken_simulation(id, demos):
    task = HostRobot(id, OPTIONS[id](horizon=6, demos=demos[id], noise=0.1))
    lanes, resumed = task.lanes([0], 4), task.lanes([0], 4)
    lanes.reset()
    actions = np.random.default_rng(0).uniform(-1, 1, (12, 1, 4, task.model.nu)).astype(np.float32)
    steps = [lanes.step(action) for action in actions[:9]]
    assert steps[5].truncated.any() and not any(step.diverged.any() for step in steps)
    again, exact = resumed.restore(lanes.snapshot())
    assert exact
    np.testing.assert_array_equal(again.obs["critic"], steps[-1].obs["critic"])
    for action in actions[9:]:
        one, other = lanes.step(action), resumed.step(action)
        np.testing.assert_array_equal(one.obs["critic"], other.obs["critic"])
    lanes.simulations.data[1].qvel[:] = np.nan
    step = lanes.step(actions[0])
    assert step.diverged[0].tolist() == [False, True, False, False] and step.terminated[0, 1]
    assert step.reward[0, 1] == 0.0 and all(np.isfinite(view).all() for view in step.obs.values())


def test_robots_fall_without_torque_and_no_simulation_breaks_down(demos):
    for id in BODIES:
        task = HostRobot(id, OPTIONS[id](demos=demos[id]))
        lanes, ended = task.lanes([0], 16), 0
        lanes.reset()
        for _ in range(120):
            step = lanes.step(np.zeros((1, 16, task.model.nu), np.float32))
            ended += int(step.terminated.sum())
            assert not step.diverged.any()
        assert ended >= 16


@pytest.mark.parametrize("id", BODIES)
def test_episodes_begin_in_frames_of_the_motion_at_their_size(id, demos):
    clip, joints = frames(demos[id], ROBOT_JOINTS[id]), len(ROBOT_JOINTS[id])
    robots = HostRobot(id, OPTIONS[id](demos=demos[id])).simulations(1)
    found = set()
    for seed in range(20):
        robots.begin(0, np.random.default_rng(seed))
        size = robots.hidden[0, 0] if id == "humanoid-ages" else 1.0
        data, frame = robots.data[0], int(robots.frame[0])
        np.testing.assert_allclose(data.qpos[3:], clip.positions[frame, 3:])
        np.testing.assert_allclose(data.qvel[3:], clip.velocities[frame, 3:])
        np.testing.assert_allclose(data.qvel[:3], size * clip.velocities[frame, :3])
        assert data.qpos[:2].tolist() == [0.0, 0.0] and data.qpos[2] == size * clip.positions[frame, 2]
        found.add(frame)
    assert len(found) > 10 and joints == data.qpos.size


@pytest.mark.parametrize("id", BODIES)
def test_a_tracked_motion_goes_on_with_every_step_and_the_critic_sees_it(id, demos):
    joints, options = len(ROBOT_JOINTS[id]), OPTIONS[id](demos=demos[id], reward="tracking")
    task = HostRobot(id, options)
    cycle = closed(frames(demos[id], ROBOT_JOINTS[id]))
    assert task.spec.views["critic"] == 2 * joints - 2 + 1 + 2 + 2 * joints - 2
    assert task.spec.views["policy"] == 2 * joints - 2
    robots = task.simulations(1)
    robots.begin(0, np.random.default_rng(3))
    first = int(robots.frame[0])
    for step in range(110):  # round the cycle and on
        frame = (first + step) % 103
        size = robots.hidden[0, 0] if id == "humanoid-ages" else 1.0
        goal = np.concatenate([cycle.positions[frame], cycle.velocities[frame]])
        goal[:3] *= size
        goal[joints : joints + 3] *= size
        shown = robots.views["critic"][0, 2 * joints - 1 :]
        np.testing.assert_allclose(shown[2:], goal[2:], atol=1e-5)
        np.testing.assert_allclose(np.arctan2(*shown[:2]) % (2 * np.pi), 2 * np.pi * frame / 103, atol=1e-4)
        ahead = (frame + 1) % 103
        qpos, qvel = cycle.positions[ahead].copy(), cycle.velocities[ahead].copy()
        qpos[:3] *= size
        qvel[:3] *= size
        now = robots.data[0]
        moved = robots.move([0], np.zeros((1, robots.models[0].nu)))
        wanted = tracking_reward(np, now.qpos, now.qvel, qpos, qvel, np.array(size))
        assert moved.reward[0] == pytest.approx(float(wanted))
        robots.place_at(0, qpos, qvel)


@cache
def _stepped(id, path):
    """One robot on the device, following a motion: its first states and what a step came to."""
    env = DeviceRobot(id, OPTIONS[id](demos=path, reward="tracking", horizon=1))
    keys = jax.random.split(jax.random.key(0), 8)
    with jax.numpy_rank_promotion("allow"):  # MJX adds matrices and vectors
        state, begun = jax.jit(jax.vmap(env.reset))(keys)
        still = jnp.zeros((8, env.action.size))
        _, step = jax.jit(jax.vmap(env.step))(state, still, keys)
    return env, state, begun, step


def test_on_the_device_a_motion_is_followed_as_on_the_host(demos):
    id = "humanoid-ages"
    env, state, begun, step = _stepped(id, demos[id])
    host = HostRobot(id, OPTIONS[id](demos=demos[id], reward="tracking")).simulations(8)
    inner = state.inner
    for i in range(8):
        host.remodel(i, np.asarray(env.hidden[inner.which[i]]))
        host.frame[i] = inner.frame[i]
        host.place_at(i, *(np.asarray(part[i], float) for part in inner.physics[:2]))
    np.testing.assert_allclose(begun.obs["critic"], host.views["critic"], atol=1e-5)
    moved = host.move(range(8), np.zeros((8, 13)))
    np.testing.assert_allclose(step.reward, moved.reward, atol=1e-3)
    np.testing.assert_allclose(step.last_obs["critic"], host.views["critic"], atol=1e-2)
    assert step.truncated.all() and not step.diverged.any()
    assert len(set(np.asarray(inner.frame).tolist())) > 4 and (np.asarray(step.reward) > 0.5).all()


@pytest.mark.parametrize("id", [pytest.param(id, marks=pytest.mark.slow) for id in BODIES])
def test_a_step_in_mjx_is_one_in_c_at_every_size_and_weight(id):
    lanes = 32 if id == "humanoid-ages" else LOADS
    with jax.numpy_rank_promotion("allow"):
        found = differences(id, "mjx", lanes)
    assert not found.broken(BOUNDS[id]), found.report()


@pytest.mark.parametrize(
    ("id", "options", "message"),
    [
        ("humanoid-ages", {"size": 0.5}, "size of humanoid-ages must be 0.4, 0.6, 0.8 or 1, or 0 for any"),
        ("humanoid-ages", {"gait": "jog"}, "unknown gait of humanoid-ages 'jog'"),
        ("humanoid-ages", {"torque": 4}, "torque of humanoid-ages must be between 2 and 3, not 4"),
        ("humanoid-ages", {"weight": 3}, "unknown option of task humanoid-ages 'weight'"),
        ("humanoid-ages", {"masses": 0.3}, "unknown option of task humanoid-ages 'masses'"),
        ("atlas-carry", {"weight": 11}, "weight of atlas-carry must be between 0 and 10, not 11"),
        ("atlas-carry", {"weight": 0.01}, "weight of atlas-carry must be between 0.1 and 10, not 0.01"),
        ("atlas-carry", {"weights": "three"}, "unknown weights of atlas-carry 'three'; known: grid, uniform"),
        ("atlas-carry", {"reward": "tracking", "demos": "none"}, "needs a motion: demos=own or demos=FILE.npz"),
        ("atlas-carry", {"demos": "nowhere.npz"}, "demos: there is no file nowhere.npz"),
    ],
)  # fmt: skip
def test_mistakes_in_a_body_are_told_in_one_line(id, options, message):
    for backend in ("gymnasium", "mjx"):
        with pytest.raises(UserError) as error:
            tasks.make(id, backend=backend, **options)
        assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("id", "options", "speed"),
    [("humanoid-ages", {}, 1.35), ("humanoid-ages", {"gait": "run"}, 1.9), ("atlas-carry", {}, 1.35)],
)
def test_a_motion_comes_with_every_body_and_is_nearly_a_cycle(id, options, speed):
    robot = BODIES[id].configured(OPTIONS[id](**options))
    assert robot.motion.dt == pytest.approx(0.01) and robot.motion.velocities[:, 0].mean() == pytest.approx(
        speed, abs=0.05
    )
    cycle = closed(robot.motion).positions[:, 2:]
    steps = np.abs(np.diff(cycle, axis=0, append=cycle[:1]))
    assert steps[-1].max() <= 1.5 * steps[:-1].max()  # its end leads to its beginning as any frame to the next


def test_bodies_are_listed_and_made_again_from_their_description(demos):
    for id in BODIES:
        assert "LocoMuJoCo" in tasks.descriptions()[id] and "MJX" in tasks.about(id)
        settings = tasks.task_settings(id)
        assert {"demos", "reward", "model", "hide", "backend"} <= set(settings) and "masses" not in settings
        assert settings["hide"].default == "none"
    made = s2pg.make("humanoid-ages", backend="gymnasium", size="0.6", demos=demos["humanoid-ages"], gait="run")
    name, full = tasks.describe(made)
    assert name == "humanoid-ages" and full["size"] == 0.6 and full["gait"] == "run"
    assert tasks.make(name, **full).spec == made.spec


def test_the_released_models_are_for_the_host_and_need_their_package(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^model=loco-mujoco needs its models: pip install [^\n]*$"):
        tasks.make("atlas-carry", model="loco-mujoco", backend="gymnasium")
    with pytest.raises(UserError, match=r"model=loco-mujoco of atlas-carry is for backend=gymnasium"):
        tasks.make("atlas-carry", model="loco-mujoco", backend="mjx")


@pytest.mark.skipif(importlib.util.find_spec("loco_mujoco") is None, reason="loco-mujoco is not installed")
def test_our_models_move_as_the_released_ones():
    """Where the released files are: mass matrices and bias forces at random states."""
    pairs = [(humanoid(size, released=True), released.humanoid(size, 2)) for size in SIZES]
    pairs += [(humanoid(1.0), released.humanoid(1.0, 2))] + [(atlas(each), released.atlas(each)) for each in WEIGHTS]
    random = np.random.default_rng(0)
    for ours, theirs in pairs:
        assert [ours.joint(i).name for i in range(ours.njnt)] == [theirs.joint(i).name for i in range(ours.njnt)]
        np.testing.assert_allclose(ours.actuator_gear, theirs.actuator_gear)
        for _ in range(10):
            state = random.uniform(-0.4, 0.4, ours.nq), random.normal(0, 2, ours.nv)
            for one, other in zip(_dynamics(ours, *state)[:2], _dynamics(theirs, *state)[:2], strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6 * np.abs(other).max())
