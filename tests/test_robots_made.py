"""How robots are made: from options, behind Gymnasium's ids, without the packages they need, and as pictures."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import s2pg
from s2pg.envs import tasks
from s2pg.envs.base import EnvState
from s2pg.envs.host import HostTask
from s2pg.envs.ids import ROBOT_IDS
from s2pg.envs.mujoco import models, warp
from s2pg.envs.mujoco.cameras import HEIGHT, WIDTH, Camera
from s2pg.envs.mujoco.definition import Physics
from s2pg.envs.mujoco.device import Inner
from s2pg.envs.mujoco.gym import RobotEnv
from s2pg.envs.mujoco.host import HostRobot
from s2pg.envs.mujoco.options import RobotOptions
from s2pg.envs.mujoco.robots import ROBOTS
from s2pg.envs.mujoco.task import NAMES
from s2pg.envs.tasks import describe
from s2pg.errors import UserError
from s2pg.runs.experiment import resolve, write_config
from s2pg.runs.request import Request
from s2pg.runs.run import Run

MUJOCO = models.mujoco()


def _can_draw():
    try:
        Camera(models.load(ROBOTS["hopper"].xml)).close()
    except UserError:
        return False
    return True


DRAWS = _can_draw()
draws = pytest.mark.skipif(not DRAWS, reason="no OpenGL here")


@pytest.mark.parametrize(
    "options",
    [{}, {"hide": "none"}, {"masses": 0.3, "spread": "three", "noise": 0.1, "hide": (0, 3), "horizon": 50}],
)
@pytest.mark.parametrize("backend", ["gymnasium", "mjx"])
def test_a_described_robot_can_be_made_again(backend, options):
    more = {"iterations": 2, "line_searches": 3, "integrator": "euler", "variants": 5} if backend == "mjx" else {}
    made = tasks.make("hopper", backend=backend, **options, **more)
    assert isinstance(made, HostTask) == (backend == "gymnasium")
    name, full = tasks.describe(made)
    assert name == "hopper" and (options | more | {"backend": backend}).items() <= full.items()
    for given in (full, json.loads(json.dumps(full))):  # as a run's folder keeps them
        again = tasks.make(name, **given)
        assert type(again) is type(made) and again.spec == made.spec
        np.testing.assert_array_equal(again.robot_views.shown, made.robot_views.shown)


def test_options_of_a_robot_may_come_as_text():
    task = s2pg.make("ant", masses="0.3", hide="velocities,3", noise="1e-2", horizon="50", backend="gymnasium")
    assert task.options == tasks.make("ant", **task.options).options
    assert task.options["masses"] == 0.3 and task.options["noise"] == 0.01 and task.spec.horizon == 50
    assert task.spec.views == {"policy": 12 + 78, "critic": 105 + 13, "previous_action": 8}


def test_a_robot_is_described_and_runs_on_the_host_without_an_accelerator():
    for id in NAMES:
        assert NAMES[id] in tasks.descriptions()[id]
        assert "MJX" in tasks.about(id)
    here = s2pg.make("hopper")
    assert isinstance(here, HostRobot) == (jax.default_backend() == "cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hide": "velocity"}, "unknown group to hide of ant 'velocity'; did you mean velocities"),
        ({"hide": "velocities,forces"}, "unknown group to hide of ant 'forces'"),
        ({"hide": "inertia"}, "known: contact_forces, none, positions, velocities"),
        ({"hide": -1}, "unknown group to hide of ant '-1'"),
        ({"hide": 105}, "cannot hide entry 105 of ant: it has entries 0 to 104"),
        ({"hide": (0, 400)}, "cannot hide entry 400 of ant: it has entries 0 to 104"),
        ({"hide": "positions,velocities,contact_forces"}, "leaves nothing of ant to see"),
        ({"masses": 1.0}, "masses of ant must be 0 or more and below 1, not 1.0"),
        ({"masses": -0.1}, "masses of ant must be 0 or more and below 1, not -0.1"),
        ({"masses": "nan"}, "masses of ant must be float, not 'nan'"),
        ({"spread": "normal"}, "unknown spread of ant 'normal'; did you mean uniform?"),
        ({"noise": -1.0}, "noise of ant must be 0 or more, not -1.0"),
        ({"horizon": 0}, "horizon of ant must be 1 or more, not 0"),
        ({"mass": 0.3}, "unknown option of task ant 'mass'; did you mean masses"),
        ({"backend": "wrap"}, "unknown backend of ant 'wrap'; did you mean warp?"),
        ({"backend": "gymnasium", "iterations": 3}, "option 'iterations' of ant is for backend=mjx or warp"),
        ({"backend": "gymnasium", "variants": 3}, "option 'variants' of ant is for backend=mjx or warp"),
        ({"backend": "mjx", "iterations": -1}, "iterations of ant must be 0 or more, not -1"),
        ({"backend": "mjx", "integrator": "leapfrog"}, "unknown integrator of ant 'leapfrog'; known: euler, model"),
    ],
)
def test_mistakes_in_a_robot_are_told_in_one_line(options, message):
    for backend in [options["backend"]] if "backend" in options else ["gymnasium", "mjx"]:
        with pytest.raises(UserError) as error:
            tasks.make("ant", **options | {"backend": backend})
        assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("backend", ["gymnasium", "mjx"])
def test_without_mujoco_one_line_says_how_to_get_it(backend, monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(UserError, match=r"^MuJoCo is missing .*: pip install [^\n]*$"):
        tasks.make("hopper", backend=backend)


def test_without_mjx_one_line_says_what_to_do_and_the_host_does(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco.mjx", None)
    monkeypatch.delattr(MUJOCO, "mjx", raising=False)
    with pytest.raises(UserError, match=r"^MJX is missing .*: pip install [^\n]*, or backend=gymnasium$"):
        tasks.make("hopper", backend="mjx")
    assert tasks.make("hopper", backend="gymnasium").spec.views["policy"] == 5


def test_mujoco_is_imported_by_those_who_use_it_alone():
    code = "import sys, s2pg; sys.exit(any(name.partition('.')[0] == 'mujoco' for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Gymnasium finds views without bounds unwise, as it would its own robots', and motors that go beyond 1 as well.
UNBOUNDED = "ignore:.*A Box observation space (min|max)imum value is -?infinity:UserWarning"
OWN_UNITS = "ignore:.*symmetric and normalized space:UserWarning"


@pytest.mark.parametrize("views", ["policy", "dict"])
@pytest.mark.parametrize("id", ROBOT_IDS)
@pytest.mark.filterwarnings(UNBOUNDED, OWN_UNITS)
def test_robots_pass_gymnasiums_own_check(id, views):
    env = gymnasium.make(id, views=views, masses=0.3, noise=0.1)
    check_env(env.unwrapped, skip_render_check=not DRAWS)
    assert env.unwrapped.metadata["render_fps"] == s2pg.make(ROBOT_IDS[id]["robot"], backend="gymnasium").fps


@pytest.mark.parametrize("id", ROBOT_IDS)
def test_a_robot_behind_gymnasium_is_the_one_of_the_lanes(id):
    """The same steps and rewards, in the motors' own units, as `simulations` makes them."""
    robot = ROBOT_IDS[id]["robot"]
    options = {"hide": (0, 1), "masses": 0.3, "noise": 0.1, "spread": "three"}
    env, task = gymnasium.make(id, **options), HostRobot(robot, RobotOptions(**options))
    beside = task.simulations(1)
    np.testing.assert_array_equal(env.action_space.high, task.model.actuator_ctrlrange[:, 1].astype(np.float32))
    observation, info = env.reset(seed=3)
    beside.begin(0, np.random.default_rng(3))
    env.action_space.seed(0)
    for _ in range(20):
        np.testing.assert_array_equal(observation, beside.views["policy"][0])
        np.testing.assert_array_equal(info["critic"], beside.views["critic"][0])
        action = 2 * env.action_space.sample()  # beyond what the motors can do, too
        observation, reward, terminated, truncated, info = env.step(action)
        moved = beside.move([0], np.clip(action, env.action_space.low, env.action_space.high)[None])
        assert (reward, terminated) == (moved.reward[0], moved.terminated[0]) and not truncated
        if terminated:
            break


def test_a_seed_gives_one_episode_and_no_seed_goes_on():
    env = gymnasium.make("s2pg/HopperPOMDP-v0", masses=0.3, noise=0.1, views="dict")
    (one, _), (later, _), (again, _) = env.reset(seed=5), env.reset(), env.reset(seed=5)
    for name in ("policy", "critic"):
        np.testing.assert_array_equal(one[name], again[name])
        assert (one[name] != later[name]).all()
    assert one["policy"].shape == (5,) and one["critic"].shape == (11 + 4,)


def test_what_a_caller_was_given_stays_as_it_was():
    env = gymnasium.make("s2pg/HalfCheetahPOMDP-v0")
    observation, info = env.reset(seed=0)
    kept = observation.copy(), info["critic"].copy()
    env.step(env.action_space.high)
    np.testing.assert_array_equal(observation, kept[0])
    np.testing.assert_array_equal(info["critic"], kept[1])


def test_a_robot_cuts_its_episodes_itself_and_says_when_its_simulation_broke():
    env = gymnasium.make("s2pg/HalfCheetahPOMDP-v0", horizon=2, noise=0.1)
    for _ in range(2):  # a reset winds the clock back
        env.reset(seed=0)
        still = np.zeros(6, np.float32)
        assert [env.step(still)[2:4], env.step(still)[2:4]] == [(False, False), (False, True)]
    observation, _ = env.reset(seed=0)
    env.unwrapped.simulation.data[0].qvel[:] = np.nan
    last, reward, terminated, truncated, info = env.step(still)
    assert info["diverged"] is True and (reward, terminated, truncated) == (0.0, True, False)
    np.testing.assert_array_equal(last, observation)
    assert np.isfinite(info["critic"]).all()
    env.reset()
    assert env.step(still)[4]["diverged"] is False


def test_mistakes_behind_gymnasium_are_told_too():
    with pytest.raises(UserError, match="views must be policy or dict, not 'all'"):
        RobotEnv("ant", views="all")
    for options, message in (
        ({"spread": "all"}, "unknown spread of ant 'all'"),
        ({"mass": 0.3}, "unknown option of task ant 'mass'"),
        ({"variants": 3}, "option 'variants' of ant is for backend=mjx or warp"),
    ):
        with pytest.raises(UserError, match=message):
            RobotEnv("ant", **options)


def _colours(picture):
    assert picture.shape == (HEIGHT, WIDTH, 3) and picture.dtype == np.uint8
    return len(np.unique(picture.reshape(-1, 3), axis=0))


def _state(qpos):
    """One of MJX, as far as a picture needs it."""
    return EnvState(Inner(Physics(qpos, (), ()), (), (), (), ()), np.zeros((), np.int32), np.zeros(1))


@draws
@pytest.mark.parametrize("id", NAMES)
def test_a_robot_is_drawn_from_either_backend(id):
    lanes = HostRobot(id, RobotOptions(masses=0.3)).lanes([0], 2, render=True)
    lanes.reset()
    here, beside = lanes.render(0), lanes.render(1)
    assert _colours(here) > 20 and (here != beside).any()
    lanes.step(np.ones((1, 2, lanes.simulations.models[0].nu), np.float32))
    assert (lanes.render(0) != here).any()
    lanes.close()
    env = tasks.make(id, backend="mjx")
    still, moved = (env.render(_state(env.simulator.model.qpos0 + shift)) for shift in (0.0, 0.3))
    assert _colours(still) > 20 and (still != moved).any()


@draws
def test_a_robot_behind_gymnasium_draws_when_asked_to():
    env = gymnasium.make("s2pg/AntPOMDP-v0", render_mode="rgb_array")
    env.reset(seed=0)
    assert _colours(env.render()) > 20
    env.close()
    env.close()
    assert RobotEnv("ant").render() is None


def test_where_nothing_can_be_drawn_one_line_says_so(monkeypatch):
    def broken(*_):
        raise RuntimeError("no display")

    monkeypatch.setattr(MUJOCO, "Renderer", broken)
    with pytest.raises(UserError, match=r"^cannot draw: no display \(MUJOCO_GL=egl"):
        HostRobot("hopper").lanes([0], 1).render()


def test_a_run_can_be_played_on_the_other_backend_whatever_the_first_was_told(tmp_path, monkeypatch):
    made = s2pg.make("hopper", backend="mjx", iterations=8, variants=4, noise=0.1)
    found, _ = resolve(Request("ppo", "hopper", hyper={"lanes": 2, "steps": 4}), made)
    write_config(tmp_path, found, made.spec)
    run = Run(tmp_path)
    assert describe(run.env())[1] == {"backend": "mjx", "iterations": 8, "variants": 4, "noise": 0.1}
    assert describe(run.env(backend="gymnasium"))[1] == {"backend": "gymnasium", "noise": 0.1}
    assert describe(run.env(backend="auto"))[1] == {"backend": "gymnasium", "noise": 0.1}
    if warp.installed():  # what both backends of the device ask for stays
        monkeypatch.setattr(warp, "require", lambda: None)
        kept = {"iterations": 8, "variants": 4, "noise": 0.1}
        assert describe(run.env(backend="warp"))[1] == kept | {"backend": "warp"}
    with pytest.raises(UserError, match="'iterations' of hopper is for backend=mjx or warp"):
        run.env(backend="gymnasium", iterations=8)


def test_warnings_of_mujoco_come_back_when_the_last_thread_has_done():
    heard, before = [], MUJOCO.get_mju_user_warning()
    MUJOCO.set_mju_user_warning(heard.append)

    def work(_):
        for _ in range(500):
            with models.quiet:
                pass

    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert MUJOCO.get_mju_user_warning() == heard.append
        with models.quiet:
            with models.quiet:
                pass
            assert MUJOCO.get_mju_user_warning() != heard.append  # the outer one is still open
    finally:
        MUJOCO.set_mju_user_warning(before)
