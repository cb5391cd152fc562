"""Robots on the host: the same as Gymnasium's, what is seen of them, what they weigh, and when they break down."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import gymnasium
import jax
import numpy as np
import pytest

import s2pg
from s2pg.envs.mujoco import models
from s2pg.envs.mujoco.definition import LARGEST
from s2pg.envs.mujoco.host import HostRobot, Simulations
from s2pg.envs.mujoco.options import RobotOptions
from s2pg.envs.mujoco.randomise import MassScaler, draw_masses
from s2pg.envs.mujoco.robots import ROBOTS
from s2pg.envs.mujoco.task import NAMES
from s2pg.io.sinks import read_metrics

MUJOCO = models.mujoco()


def _actions(task, lanes, steps, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (steps, *lanes, task.model.nu)).astype(np.float32)


def _assert_same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("id", NAMES)
def test_a_robot_moves_shows_pays_and_ends_as_gymnasiums_does(id, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # Gymnasium's cheetah makes MuJoCo write a log file
    theirs, ours = gymnasium.make(NAMES[id]).unwrapped, HostRobot(id).simulations(1)

    def begin(seed):
        observation, _ = theirs.reset(seed=seed)
        ours.place_at(0, theirs.data.qpos, theirs.data.qvel)
        np.testing.assert_array_equal(ours.views["critic"][0], observation.astype(np.float32))

    begin(0)
    theirs.action_space.seed(0)
    ended = 0
    for _ in range(1000):
        action = theirs.action_space.sample()
        observation, reward, terminated, *_ = theirs.step(action)
        moved = ours.move([0], action[None])
        np.testing.assert_array_equal(ours.views["critic"][0], observation.astype(np.float32))
        assert moved.reward[0] == pytest.approx(reward, abs=1e-6)
        assert moved.terminated[0] == terminated and not moved.diverged[0]
        if terminated:
            ended += 1
            begin(ended)
    assert (ended > 0) == ROBOTS[id].ends


@pytest.mark.parametrize("id", NAMES)
def test_speeds_and_blows_beyond_the_usual_count_as_gymnasium_counts_them(id, tmp_path, monkeypatch):
    """Robots thrown about: where velocities, forces and costs are clipped, and states are no longer healthy."""
    monkeypatch.chdir(tmp_path)
    theirs, ours = gymnasium.make(NAMES[id]).unwrapped, HostRobot(id).simulations(1)
    random, ends = np.random.default_rng(0), set()
    for seed in range(120):
        theirs.reset(seed=seed)
        MUJOCO.mj_resetData(theirs.model, theirs.data)
        qpos = theirs.init_qpos + random.normal(0, 0.4, theirs.model.nq)
        theirs.set_state(qpos, random.normal(0, random.choice([1, 10, 60]), theirs.model.nv))
        ours.place_at(0, theirs.data.qpos, theirs.data.qvel)
        action = theirs.action_space.sample()
        observation, reward, terminated, *_ = theirs.step(action)
        moved = ours.move([0], action[None])
        assert moved.diverged[0] == (
            np.abs(theirs.data.qvel).max() > LARGEST
        )  # seen once: 7e8, which no robot survives
        if moved.diverged[0]:
            continue
        np.testing.assert_array_equal(ours.views["critic"][0], observation.astype(np.float32))
        assert moved.reward[0] == pytest.approx(reward, abs=1e-6)
        assert moved.terminated[0] == terminated
        ends.add(terminated)
    assert ends == ({True, False} if ROBOTS[id].ends else {False})


@pytest.mark.parametrize("id", NAMES)
def test_episodes_begin_around_rest_as_gymnasiums_do(id, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    theirs, ours = gymnasium.make(NAMES[id]).unwrapped, HostRobot(id).simulations(1)
    starts = {"theirs": [], "ours": []}
    for seed in range(200):
        theirs.reset(seed=seed)
        ours.begin(0, np.random.default_rng(seed))
        for name, data in (("theirs", theirs.data), ("ours", ours.data[0])):
            starts[name].append(np.concatenate([data.qpos - theirs.init_qpos, data.qvel]))
    for part in (slice(0, theirs.model.nq), slice(theirs.model.nq, None)):
        one, other = (np.stack(start)[:, part] for start in starts.values())
        assert one.std() == pytest.approx(other.std(), rel=0.1)
        assert np.abs(one).max() == pytest.approx(np.abs(other).max(), rel=0.3)
        assert abs(other.mean()) < 0.1 * other.std()


# Worked out from the models: positions less the hidden ones in front, velocities, and for the last two robots
# 78 = 13 bodies x 6 forces of contact, 130 = 13 x 10 inertias, 78 = 13 x 6 velocities of bodies and 17 motors.
FULL = {"halfcheetah": 17, "hopper": 11, "walker2d": 17, "ant": 105, "humanoid": 348}
LINKS = {"halfcheetah": 7, "hopper": 4, "walker2d": 7, "ant": 13, "humanoid": 13}
SEEN = {
    "velocities": {"halfcheetah": 8, "hopper": 5, "walker2d": 8, "ant": 13 + 78, "humanoid": 22 + 78},
    "positions": {"halfcheetah": 9, "hopper": 6, "walker2d": 9, "ant": 92, "humanoid": 326},
    "contact_forces": {"ant": 27, "humanoid": 270},
    "velocities, contact_forces": {"ant": 13, "humanoid": 22},
    "none": FULL,
    (0, 2, 2): {id: full - 2 for id, full in FULL.items()},
    "velocities,0": {"halfcheetah": 7, "hopper": 4, "walker2d": 7, "ant": 90, "humanoid": 99},
}


@pytest.mark.parametrize("masses", [0.0, 0.3])
@pytest.mark.parametrize("id", NAMES)
def test_the_policy_sees_what_is_not_hidden_and_the_critic_everything(id, masses):
    for hide, seen in SEEN.items():
        if id not in seen:
            continue
        task = HostRobot(id, RobotOptions(hide=hide, masses=masses))
        critic = FULL[id] + (LINKS[id] if masses else 0)
        assert task.spec.views == {"policy": seen[id], "critic": critic, "previous_action": task.model.nu}
        step = task.lanes([0], 2).reset()
        assert {name: view.shape for name, view in step.obs.items()} == {
            name: (1, 2, size) for name, size in task.spec.views.items()
        }
        assert all(view.dtype == np.float32 and np.isfinite(view).all() for view in step.obs.values())
        assert not set(task.robot_views.shown) & ({0, 2} if isinstance(hide, tuple) else set())
        np.testing.assert_array_equal(step.obs["policy"], step.obs["critic"][..., task.robot_views.shown])


@pytest.mark.parametrize("masses", [0.0, 0.3])
@pytest.mark.parametrize("id", NAMES)
def test_the_policy_sees_nothing_of_velocities_and_masses(id, masses):
    robots = HostRobot(id, RobotOptions(masses=masses)).simulations(2)
    for i in range(2):
        robots.begin(i, np.random.default_rng(i))
        robots.place_at(i, robots.models[i].qpos0 + 0.01, np.full(robots.models[i].nv, float(i)))
    views = robots.views
    np.testing.assert_array_equal(*views["policy"])
    assert (views["critic"][0] != views["critic"][1]).any()
    robots.place_at(1, robots.models[1].qpos0 + 0.02, np.zeros(robots.models[1].nv))
    assert (views["policy"][0] != views["policy"][1]).any()


@pytest.mark.parametrize("id", NAMES)
def test_masses_inertias_and_what_the_critic_sees_of_them_agree_after_every_reset(id):
    task = HostRobot(id, RobotOptions(masses=0.3, horizon=2))
    lanes, base = task.lanes([0], 2), task.model
    step, totals = lanes.reset(), []
    for action in _actions(task, (1, 2), 8):
        for i, model in enumerate(lanes.simulations.models):
            heavier = step.obs["critic"][0, i, -LINKS[id] :]
            assert np.abs(heavier).max() <= 0.3
            scale = np.append(1.0, 1.0 + heavier)
            np.testing.assert_allclose(model.body_mass, base.body_mass * scale, rtol=1e-6)
            np.testing.assert_allclose(model.body_inertia, base.body_inertia * scale[:, None], rtol=1e-6)
            np.testing.assert_allclose(model.body_subtreemass[0], model.body_mass.sum(), rtol=1e-6)
            assert model.body_mass[0] == base.body_mass[0]  # the world
            totals.append(float(model.body_mass.sum()))
        step = lanes.step(action)
    # Five episodes in each of the two lanes, each with masses of its own for as long as it lasts.
    assert len(set(totals)) == 8
    assert [one == other for one, other in pairwise(totals[::2])] == [True, False] * 3 + [True]


def test_the_robot_of_the_task_itself_is_weighed_by_nobody():
    task = HostRobot("hopper", RobotOptions(masses=0.5))
    mass = task.model.body_mass.copy()
    task.lanes([0], 3).reset()
    np.testing.assert_array_equal(task.model.body_mass, mass)
    np.testing.assert_array_equal(mass, models.load(ROBOTS["hopper"].xml).body_mass)


def test_masses_are_spread_evenly_or_over_three_values():
    random = np.random.default_rng(0)
    uniform, three = (
        np.concatenate([draw_masses(7, 0.3, spread, random) for _ in range(500)]) for spread in ("uniform", "three")
    )
    assert np.abs(uniform).max() <= 0.3 and uniform.std() == pytest.approx(0.3 / np.sqrt(3), rel=0.05)
    values, counts = np.unique(three, return_counts=True)
    np.testing.assert_allclose(values, [-0.3, 0.0, 0.3], atol=1e-12)
    assert counts.min() > 1000
    obs = HostRobot("hopper", RobotOptions(masses=0.3, spread="three")).lanes([0], 20).reset().obs["critic"][..., -4:]
    np.testing.assert_allclose(np.unique(obs), np.float32([-0.3, 0.0, 0.3]))


def test_the_same_seed_weighs_the_same_and_every_lane_otherwise():
    task = HostRobot("halfcheetah", RobotOptions(masses=0.3))
    one, same, other = (task.lanes([seed], 4).reset().obs["critic"][0, :, -7:] for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert len(np.unique(np.concatenate([one, other]), axis=0)) == 8


@pytest.mark.parametrize("id", NAMES)
def test_weighing_again_and_again_leaves_no_trace(id):
    model, random = models.load(ROBOTS[id].xml), np.random.default_rng(0)
    fresh, used = MassScaler(model), MassScaler(model)
    for _ in range(100):
        used.weigh(draw_masses(LINKS[id], 0.9, "uniform", random))
    heavier = draw_masses(LINKS[id], 0.3, "uniform", random)
    one, other = fresh.weigh(heavier), used.weigh(heavier)
    names = [name for name in dir(model) if isinstance(getattr(model, name), np.ndarray)]
    assert {"body_mass", "body_invweight0", "dof_M0", "qpos0"} <= set(names)
    for name in names:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize("id", NAMES)
def test_heavier_robots_fall_alike_and_accelerate_less(id):
    """Robots in the air, their links 30 % heavier: physics that anybody can check."""
    weighed, found = MassScaler(models.load(ROBOTS[id].xml)), {}
    for heavier in (0.0, 0.3):
        model = weighed.weigh(np.full(LINKS[id], heavier))
        data, jacobian = MUJOCO.MjData(model), np.zeros((3, model.nv))

        def acceleration(push=0.0, control=0.0, model=model, data=data, jacobian=jacobian):
            """Of the centre of mass, and of the joints, at rest 5 m above the ground."""
            MUJOCO.mj_resetData(model, data)
            data.qpos[2 if model.nq > model.nv else 1] += 5.0
            data.qfrc_applied[0], data.ctrl[:] = push, control  # along x, and by the motors
            MUJOCO.mj_forward(model, data)
            MUJOCO.mj_jacSubtreeCom(model, data, jacobian, 0)
            return jacobian @ data.qacc, data.qacc.copy(), data.qfrc_actuator.copy()

        fall, _, _ = acceleration()
        pushed, _, _ = acceleration(push=100.0)
        (_, still, _), (_, moving, torque) = acceleration(), acceleration(control=0.3)
        found[heavier] = fall, (pushed - fall)[0] * model.body_mass.sum(), pushed[0], torque @ (moving - still)
    (fall, force, quick, lively), (same_fall, same_force, slow, dull) = found.values()
    np.testing.assert_allclose(fall, [0, 0, -9.81], atol=1e-6)
    np.testing.assert_allclose(same_fall, fall, atol=1e-6)
    assert force == pytest.approx(100.0) and same_force == pytest.approx(100.0)
    assert quick / slow == pytest.approx(1.3, rel=1e-6)
    assert 1.0 < lively / dull < 1.3  # between: rotors of the motors weigh what they did


def test_noise_is_on_what_the_policy_sees_alone_and_has_the_asked_for_size():
    clear, noisy = (HostRobot("halfcheetah", RobotOptions(noise=noise)).lanes([0, 1], 4) for noise in (0.0, 0.1))
    task = HostRobot("halfcheetah")
    steps = [(clear.reset(), noisy.reset())]
    steps += [(clear.step(action), noisy.step(action)) for action in _actions(task, (2, 4), 50)]
    for one, other in steps:
        np.testing.assert_array_equal(one.obs["critic"], other.obs["critic"])
        np.testing.assert_array_equal(one.obs["previous_action"], other.obs["previous_action"])
    noise = np.stack([other.obs["policy"] - one.obs["policy"] for one, other in steps])
    assert noise.std() == pytest.approx(0.1, rel=0.05) and abs(noise.mean()) < 0.01
    assert len(np.unique(noise)) > 0.99 * noise.size
    again = HostRobot("halfcheetah", RobotOptions(noise=0.1)).lanes([0, 1], 4)
    np.testing.assert_array_equal(again.reset().obs["policy"], steps[0][1].obs["policy"])
    assert (noisy.reset(stream=1).obs["policy"] != steps[0][1].obs["policy"]).all()


@pytest.mark.parametrize("value", [np.nan, 1e12, 1e7])
@pytest.mark.parametrize("warmed_up", [0, 1, 5])
@pytest.mark.parametrize("id", NAMES)
def test_a_simulation_that_breaks_down_ends_its_episode_and_no_other(
    id, warmed_up, value, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    task = HostRobot(id, RobotOptions(masses=0.3, noise=0.1))
    lanes, healthy = task.lanes([0], 3), task.lanes([0], 3)
    before, _ = lanes.reset(), healthy.reset()
    for action in 0.1 * _actions(task, (1, 3), warmed_up):
        before, _ = lanes.step(action), healthy.step(action)
    assert not before.first.any() or warmed_up == 0
    lanes.simulations.data[1].qvel[:] = value
    action = np.zeros((1, 3, task.model.nu), np.float32)
    step, other = lanes.step(action), healthy.step(action)
    assert step.diverged.tolist() == step.terminated.tolist() == step.first.tolist() == [[False, True, False]]
    assert not step.truncated.any() and step.reward[0, 1] == 0.0
    np.testing.assert_array_equal(step.last_obs["critic"][0, 1], before.obs["critic"][0, 1])  # the last that was good
    np.testing.assert_array_equal(step.reward[0, ::2], other.reward[0, ::2])
    for name in step.obs:
        assert np.isfinite(step.obs[name]).all() and np.isfinite(step.last_obs[name]).all()
        np.testing.assert_array_equal(step.obs[name][0, ::2], other.obs[name][0, ::2])
    assert not lanes.step(action).diverged.any()
    assert not list(tmp_path.iterdir()) and not "".join(capfd.readouterr())  # MuJoCo itself would tell, and write a log


def test_all_lanes_may_break_down_at_once():
    task = HostRobot("hopper", RobotOptions(noise=0.1))
    lanes = task.lanes([0], 2)
    lanes.reset()
    for data in lanes.simulations.data:
        data.qvel[:] = np.nan
    step = lanes.step(np.zeros((1, 2, 3), np.float32))
    assert step.diverged.all() and all(np.isfinite(view).all() for view in step.obs.values())


def test_training_counts_broken_simulations_and_goes_on(tmp_path, monkeypatch):
    run, calls = Simulations._run, []

    def breaking(self, lanes, controls):
        if len(self.data) == 3:  # those of training
            calls.append(1)
            if len(calls) in (3, 4, 13):
                self.data[1].qvel[:] = np.nan
        return run(self, lanes, controls)

    monkeypatch.setattr(Simulations, "_run", breaking)
    hyper = {"lanes": 3, "steps": 8, "size": 4, "width": 4, "epochs": 1, "minibatches": 1}
    env = HostRobot("halfcheetah", RobotOptions(horizon=20))
    options = {"memory": "none", "hyper": hyper, "steps": 3 * 8 * 4, "borders": 4, "episodes": 1, "seeds": [0]}
    s2pg.train("ppo", env, out=tmp_path / "run", **options)
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert len(rows) == 4
    assert [row["diverged"] for row in rows] == [2, 1, 0, 0]
    assert all(np.isfinite([row["value_loss"], row["eval_return"]]).all() for row in rows)


@pytest.mark.parametrize("id", NAMES)
def test_two_threads_simulate_what_one_does(id):
    task, found = HostRobot(id, RobotOptions(masses=0.3, noise=0.1)), []
    for threads in (1, 2):
        lanes = task.lanes([0, 1], 3)
        lanes.simulations.close()
        lanes.simulations._threads = threads
        lanes.simulations._pool = ThreadPoolExecutor(1) if threads > 1 else None
        found.append([lanes.reset(), *(lanes.step(action) for action in _actions(task, (2, 3), 40))])
        lanes.close()
    _assert_same(*found)
    assert ROBOTS[id].ends == any(step.terminated.any() for step in found[0])


def test_lanes_of_the_same_seed_have_the_same_episodes_whatever_runs_beside_them():
    task = HostRobot("hopper", RobotOptions(masses=0.3, noise=0.1))
    actions = _actions(task, (1, 2), 120)
    wide, alone = task.lanes([4, 9], 2), task.lanes([9], 2)
    np.testing.assert_array_equal(wide.reset().obs["critic"][1], alone.reset().obs["critic"][0])
    for action in actions:
        both, one = wide.step(np.concatenate([-action, action])), alone.step(action)
        for a, b in zip(jax.tree.leaves(both), jax.tree.leaves(one), strict=True):
            np.testing.assert_array_equal(a[1:], b)
    assert alone.snapshot()["episodes"].min() > 0


@pytest.mark.parametrize("id", ["hopper", "humanoid"])
def test_restored_robots_go_on_exactly_as_the_saved_ones(id):
    task = HostRobot(id, RobotOptions(masses=0.3, noise=0.1, horizon=30))
    lanes, resumed = task.lanes([0], 3), task.lanes([0], 3)
    lanes.reset()
    actions = _actions(task, (1, 3), 50)
    for action in actions[:40]:
        last = lanes.step(action)
    snapshot = lanes.snapshot()
    assert snapshot["episodes"].min() > 0 and snapshot["lengths"].max() > 1
    again, exact = resumed.restore(snapshot)
    assert exact
    _assert_same(again.obs, last.obs)
    for action in actions[40:]:
        _assert_same(lanes.step(action), resumed.step(action))


def test_the_time_limit_cuts_episodes_without_ending_them():
    task = HostRobot("halfcheetah", RobotOptions(horizon=3))
    lanes = task.lanes([0], 2)
    lanes.reset()
    steps = [lanes.step(action) for action in _actions(task, (1, 2), 4)]
    assert [bool(step.truncated.all()) for step in steps] == [False, False, True, False]
    assert not any(step.terminated.any() or step.diverged.any() for step in steps)
    assert (steps[2].obs["policy"] != steps[2].last_obs["policy"]).all()
    np.testing.assert_array_equal(steps[2].obs["previous_action"], 0)


def test_a_robot_that_falls_in_the_last_step_has_ended_and_was_not_cut():
    task = HostRobot("hopper", RobotOptions(horizon=1))
    lanes = task.lanes([0], 2)
    lanes.reset()
    lanes.simulations.data[0].qpos[1] = 0.1
    step = lanes.step(np.zeros((1, 2, 3), np.float32))
    assert step.terminated.tolist() == [[True, False]] and step.truncated.tolist() == [[False, True]]


@pytest.mark.parametrize("id", NAMES)
def test_actions_are_shares_of_what_the_motors_can_do(id):
    task = HostRobot(id)
    lanes = task.lanes([0], 3)
    lanes.reset()
    size = task.model.nu
    step = lanes.step(np.stack([np.full(size, value, np.float32) for value in (0.5, 1.0, 7.0)])[None])
    high = task.model.actuator_ctrlrange[:, 1]
    for data, share in zip(lanes.simulations.data, (0.5, 1.0, 1.0), strict=True):
        np.testing.assert_allclose(data.ctrl, share * high, rtol=1e-6)
    np.testing.assert_array_equal(step.obs["previous_action"][0, :, 0], [0.5, 1.0, 1.0])
