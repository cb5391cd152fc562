"""Robots in MJX: a step beside C MuJoCo, masses from the pool, resets, and simulations that break down.

Compiling takes most of the time, so each robot has one compiled step here: 32 lanes, with masses and noise on.
"""

from functools import cache
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s2pg.envs.base import EnvState
from s2pg.envs.mujoco import models
from s2pg.envs.mujoco.contacts import as_in_c
from s2pg.envs.mujoco.device import DeviceRobot
from s2pg.envs.mujoco.host import HostRobot
from s2pg.envs.mujoco.mjx import mjx
from s2pg.envs.mujoco.options import RobotOptions
from s2pg.envs.mujoco.parity import ALIKE, BOUNDS, Difference, differences
from s2pg.envs.mujoco.randomise import MassScaler
from s2pg.envs.mujoco.robots import ROBOTS
from s2pg.envs.mujoco.task import NAMES

LANES, HORIZON, NOISE = 32, 3, 0.1
KEY = jax.random.key(3)


@pytest.fixture(autouse=True)
def promotion():
    """MJX adds matrices and vectors, as the rest of the suite may not."""
    with jax.numpy_rank_promotion("allow"):
        yield


class Device:
    """A robot on the device with its functions compiled, and how often its step was traced."""

    def __init__(self, id):
        self.env = env = DeviceRobot(id, RobotOptions(masses=0.3, noise=NOISE, variants=8, horizon=HORIZON))
        self.traces = 0

        def step(state, action, key):
            self.traces += 1
            return env.step(state, action, key)

        self._step, self._reset, self._at = (jax.jit(jax.vmap(each)) for each in (step, env.reset, env.at))

    def reset(self, key=KEY):
        return self._reset(jax.random.split(key, LANES))

    def step(self, state, action, key=KEY):
        return self._step(state, action, jax.random.split(key, LANES))

    def at(self, qpos, qvel, which):
        """At the start of an episode in these states."""
        qpos, qvel, which = jnp.asarray(qpos, jnp.float32), jnp.asarray(qvel, jnp.float32), jnp.asarray(which)
        inner = self._at(qpos, qvel, which, jax.random.split(KEY, LANES))
        return EnvState(inner, jnp.zeros(LANES, jnp.int32), jnp.zeros((LANES, self.env.action.size)))


device = cache(Device)


def _actions(env, seed=0):
    return jnp.asarray(np.random.default_rng(seed).uniform(-1, 1, (LANES, env.action.size)), jnp.float32)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "id", ["halfcheetah", "hopper", *(pytest.param(id, marks=SLOW) for id in ("walker2d", "ant", "humanoid"))]
)
def test_a_step_in_mjx_is_one_in_c(id):
    found = differences(id, "mjx", LANES)
    print(f"{id}: {found.report()}")
    assert not found.broken(BOUNDS[id]), found.report()
    assert ROBOTS[id].ends == found.ends[0].any() and not found.ends[0].all()


def test_what_is_out_of_bounds_is_named():
    fine = np.zeros((4, 2))
    same = Difference(fine, dict.fromkeys(("positions", "velocities", "hidden", "reward"), fine), (fine, fine))
    assert same.broken(ALIKE) == []
    groups = same.groups | {"velocities": np.array([[0.0, 0.002], [0.0, np.nan], [0.0, 0.0], [0.0, 0.0]])}
    worse = same._replace(groups=groups, start=fine + 1.0, ends=(fine, fine + 1))
    assert worse.exact() == 0.5
    assert worse.broken(ALIKE) == ["velocities", "median of velocities", "exact environments", "start", "ends"]


def test_episodes_give_way_to_the_next_without_compiling_again():
    robot = device("halfcheetah")
    state, begun = robot.reset()
    steps = []
    for t in range(HORIZON):
        state, step = robot.step(state, _actions(robot.env, t), jax.random.fold_in(KEY, t))
        steps.append(step)
    assert robot.traces == 1
    assert [bool(step.truncated.all()) for step in steps] == [False, False, True]
    assert not any(step.terminated.any() or step.diverged.any() for step in steps)
    assert [bool(step.first.all()) for step in (begun, *steps)] == [True, False, False, True]
    for one, other in pairwise(steps):
        assert (one.last_obs["policy"] != other.last_obs["policy"]).all()
    last = steps[-1]
    assert (last.obs["policy"] != last.last_obs["policy"]).all()
    np.testing.assert_array_equal(last.obs["previous_action"], 0.0)
    assert not np.asarray(state.elapsed).any()
    assert np.abs(np.asarray(last.obs["critic"])[:, :8]).max() < 0.2  # at rest again, but for the noise of a start
    assert (np.asarray(begun.obs["critic"])[:, -7:] != np.asarray(last.obs["critic"])[:, -7:]).any()


def test_the_same_keys_give_the_same_episodes():
    robot = device("halfcheetah")
    runs = []
    for key in (KEY, KEY, jax.random.key(4)):
        state, begun = robot.reset(key)
        runs.append((begun.obs, robot.step(state, _actions(robot.env), key)[1].obs))
    jax.tree.map(np.testing.assert_array_equal, runs[0], runs[1])
    for one, other in zip(runs[0], runs[2], strict=True):
        assert (np.asarray(one["critic"]) != np.asarray(other["critic"])).any(axis=1).all()


def test_noise_is_on_what_the_policy_sees_alone_and_new_in_every_step():
    robot = device("halfcheetah")
    state, step = robot.reset()
    noise = []
    for t in range(HORIZON):
        noise.append(np.asarray(step.obs["policy"]) - np.asarray(step.obs["critic"])[:, robot.env.robot_views.shown])
        state, step = robot.step(state, jnp.zeros((LANES, 6)), jax.random.fold_in(KEY, t))
    noise = np.stack(noise)
    assert noise.std() == pytest.approx(NOISE, rel=0.1) and abs(noise.mean()) < 0.02
    assert len(np.unique(noise.round(5))) > 0.9 * noise.size


@pytest.mark.parametrize("value", [np.nan, 1e9])
def test_a_simulation_that_breaks_down_ends_its_episode_alone(value):
    robot = device("halfcheetah")
    state, _ = robot.reset()
    good, fine = robot.step(state, _actions(robot.env))
    qvel = state.inner.physics.qvel.at[5].set(value)
    inner = state.inner._replace(physics=state.inner.physics._replace(qvel=qvel))
    after, step = robot.step(state._replace(inner=inner), _actions(robot.env))
    broken = np.arange(LANES) == 5
    for flag in (step.diverged, step.terminated, step.first):
        np.testing.assert_array_equal(flag, broken)
    assert float(step.reward[5]) == 0.0 and not step.truncated.any()
    beside = lambda tree: jax.tree.map(lambda leaf: np.asarray(leaf)[~broken], tree)  # noqa: E731
    jax.tree.map(np.testing.assert_array_equal, beside((step, after)), beside((fine, good)))
    assert all(np.isfinite(view).all() for view in jax.tree.leaves((step.obs, after)))
    assert not after.inner.diverged.any() and robot.traces == 1


def test_a_simulation_that_breaks_down_shows_the_last_that_was_good():
    robot = device("halfcheetah")
    state, begun = robot.reset()
    _, step = robot.step(state, _actions(robot.env).at[5].set(jnp.nan))
    np.testing.assert_array_equal(step.diverged, np.arange(LANES) == 5)
    assert float(step.reward[5]) == 0.0
    for name in ("policy", "critic"):
        np.testing.assert_allclose(step.last_obs[name][5], begun.obs[name][5], rtol=1e-6)


@pytest.mark.parametrize("id", NAMES)
def test_the_pool_holds_all_that_c_derives_from_masses(id):
    env, model = DeviceRobot(id, RobotOptions(masses=0.3, variants=5)), models.load(ROBOTS[id].xml)
    model.opt.solver = models.mujoco().mjtSolver.mjSOL_NEWTON  # MJX has no other that these use
    weighed, base = MassScaler(model), mjx().put_model(model)
    assert {"body_mass", "body_inertia", "dof_M0"} <= set(env.pool) and env.hidden.shape == (5, model.nbody - 1)
    for k, heavier in enumerate(np.asarray(env.hidden, float)):
        now = weighed.weigh(heavier)
        for name in env.pool:
            np.testing.assert_allclose(env.pool[name][k], getattr(now, name), rtol=1e-4, atol=1e-7, err_msg=name)
        assert env.pool["body_mass"][k, 0] == model.body_mass[0]
    assert len(np.unique(env.pool["body_subtreemass"][:, 0])) == 5
    whole = jax.tree_util.tree_leaves_with_path(mjx().put_model(now))
    other = {
        jax.tree_util.keystr(path).strip(".")
        for (path, leaf), plain in zip(whole, jax.tree.leaves(base), strict=True)
        if not np.array_equal(leaf, plain)
    }
    assert other <= set(env.pool)
    assert not model.tendon_limited.any() and not model.tendon_frictionloss.any()


@pytest.mark.parametrize(("spread", "values"), [("uniform", 40), ("three", 3)])
def test_masses_of_the_pool_are_spread_as_asked(spread, values):
    env = DeviceRobot("hopper", RobotOptions(masses=0.3, spread=spread, variants=10))
    assert len(np.unique(env.hidden)) == values and np.abs(env.hidden).max() <= np.float32(0.3)


def test_lanes_draw_their_masses_from_the_whole_pool():
    env = DeviceRobot("hopper", RobotOptions(masses=0.3, variants=4))
    begun = jax.jit(jax.vmap(env.begin))(jax.random.split(KEY, 64))
    assert set(np.asarray(begun.which).tolist()) == {0, 1, 2, 3}
    views = jax.vmap(env.views)(begun, jnp.zeros(64, int))
    np.testing.assert_array_equal(views["critic"][:, -4:], env.hidden[begun.which])


@pytest.mark.parametrize("id", NAMES)
def test_views_are_those_of_the_host(id):
    for options in ({}, {"hide": "none"}, {"hide": (0, 2), "masses": 0.3, "noise": 0.1}):
        env, host = DeviceRobot(id, RobotOptions(variants=2, **options)), HostRobot(id, RobotOptions(**options))
        spec = env.spec  # traced anew whenever it is asked for
        np.testing.assert_array_equal(env.robot_views.shown, host.robot_views.shown)
        assert spec.views == host.spec.views and spec.horizon == host.spec.horizon
        for side in ("low", "high"):
            np.testing.assert_array_equal(*(np.float32(getattr(each.action, side)) for each in (spec, host.spec)))


@pytest.mark.parametrize("id", NAMES)
def test_episodes_begin_where_they_do_on_the_host(id):
    env, host = DeviceRobot(id), HostRobot(id).simulations(1)
    begun = jax.jit(jax.vmap(env.begin))(jax.random.split(KEY, 200)).physics
    there = np.concatenate([begun.qpos - env.simulator.model.qpos0, begun.qvel], axis=1)
    here = []
    for seed in range(200):
        host.begin(0, np.random.default_rng(seed))
        here.append(np.concatenate([host.data[0].qpos - host.models[0].qpos0, host.data[0].qvel]))
    for part in (slice(0, env.simulator.model.nq), slice(env.simulator.model.nq, None)):
        one, other = there[:, part], np.stack(here)[:, part]
        assert one.std() == pytest.approx(other.std(), rel=0.1)
        assert np.abs(one).max() == pytest.approx(np.abs(other).max(), rel=0.3)


@pytest.mark.parametrize(
    ("id", "most"), [("halfcheetah", 200), ("hopper", 160), ("walker2d", 200), ("ant", 1000), ("humanoid", 2100)]
)
def test_what_a_lane_carries_is_small(id, most):
    """Of MJX's own data, 7 to 62 kB a lane, nothing is kept that the next step makes anew."""
    env = DeviceRobot(id, RobotOptions(masses=0.3, noise=0.1, variants=2))
    state, _ = jax.eval_shape(env.reset, KEY)
    leaves = jax.tree.leaves(state)
    assert len(leaves) <= 13 and sum(leaf.size * leaf.dtype.itemsize for leaf in leaves) < most
    whole = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(env.simulator.blank))
    assert whole > 20 * most


@pytest.mark.parametrize("steep", [20.0, 59.0, 61.0, 85.0])
def test_a_capsule_on_the_ground_has_the_contact_frames_of_c(steep):
    height = 0.3 * np.sin(np.radians(steep)) + 0.09  # one end in the ground
    xml = f"""<mujoco><worldbody><geom type="plane" size="5 5 1"/><body pos="0 0 {height}">
      <freejoint/><geom type="capsule" size="0.1 0.3" euler="0 {90 - steep} 30"/></body></worldbody></mujoco>"""
    package = models.mujoco()
    model = package.MjModel.from_xml_string(xml)
    data = package.MjData(model)
    package.mj_forward(model, data)
    assert data.ncon == 1
    with as_in_c():
        found = jax.jit(mjx().forward)(mjx().put_model(model), mjx().put_data(model, package.MjData(model)))
    contact, near = found._impl.contact, np.argmin(found._impl.contact.dist)
    np.testing.assert_allclose(contact.dist[near], data.contact.dist[0], atol=1e-5)
    np.testing.assert_allclose(contact.pos[near], data.contact.pos[0], atol=1e-5)
    np.testing.assert_allclose(np.abs(np.ravel(contact.frame[near])), np.abs(data.contact.frame[0]), atol=1e-5)


def test_only_what_is_traced_within_collides_otherwise():
    from mujoco.mjx._src import collision_driver

    before = dict(collision_driver._COLLISION_FUNC)
    with as_in_c():
        with as_in_c():
            assert before != collision_driver._COLLISION_FUNC
        assert before != collision_driver._COLLISION_FUNC
    assert before == collision_driver._COLLISION_FUNC
