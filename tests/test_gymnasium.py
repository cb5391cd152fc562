"""Both bridges to Gymnasium: their environments as our lanes, and our tasks as their environments."""

import re

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from s2pg.envs import tasks
from s2pg.envs.as_gymnasium import GymEnv
from s2pg.envs.gymnasium import GymTask
from s2pg.envs.ids import IDS, register
from s2pg.envs.spaces import KNOWN, from_gymnasium, to_gymnasium
from s2pg.errors import UserError
from s2pg.types import Box, Discrete, MultiDiscrete

# Gymnasium recommends actions in [-1, 1]; the pendulum's torque keeps the bounds of the original, [-2, 2].
OWN_UNITS = "ignore:.*symmetric and normalized space:UserWarning"


class Script(gymnasium.Env):
    """Shows a constant observation of any space and ends as its last action says."""

    def __init__(self, observations=None, value=None, actions=None, render_mode=None):
        self.observation_space = spaces.Box(-1, 1, (2,)) if observations is None else observations
        self.action_space = spaces.Box(-1, 1, (1,)) if actions is None else actions
        self.value, self.render_mode = value if value is not None else np.zeros(2, np.float32), render_mode
        self.seen = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.value, {}

    def step(self, action):
        self.seen.append(action)
        return self.value, 1.0, False, False, {}


class Drifting(Script):
    """Not deterministic: it remembers how often it was reset, and ends earlier each time if `fragile`."""

    resets = 0

    def __init__(self, fragile=False, **kwargs):
        super().__init__(**kwargs)
        self.fragile = fragile

    def reset(self, *, seed=None, options=None):
        type(self).resets += 1
        self.age = 0
        return np.full(2, type(self).resets, np.float32), {}

    def step(self, action):
        self.age += 1
        return np.full(2, type(self).resets, np.float32), 0.0, self.fragile and type(self).resets > 1, False, {}


class Broken(gymnasium.Env):
    def __init__(self):
        raise RuntimeError("no licence\n  found")


for cls in (Script, Drifting, Broken):
    gymnasium.register(f"test/{cls.__name__}-v0", entry_point=cls, disable_env_checker=True)


def _script(**kwargs):
    return GymTask("gym:test/Script-v0", **kwargs)


def _actions(lanes, steps, seed=0):
    return np.random.default_rng(seed).uniform(-1.5, 1.5, (steps, *lanes, 1)).astype(np.float32)


def test_lanes_step_as_the_environment_alone_would():
    lanes = GymTask("gym:Pendulum-v1", hide=2).lanes(seeds=[4, 9], lanes=3)
    step = lanes.reset()
    assert step.obs["policy"].shape == (2, 3, 3) and step.first.all()
    assert len(np.unique(step.obs["critic"][..., 0])) == 6  # every lane has an episode of its own
    env = gymnasium.make("Pendulum-v1")
    env.reset(seed=int(np.random.SeedSequence((9, 1, 0, 0)).generate_state(1)[0]))
    for action in _actions((2, 3), 5):
        step = lanes.step(action)
        observation, reward, *_ = env.step(2 * np.clip(action[1, 1], -1, 1))
        np.testing.assert_allclose(step.obs["critic"][1, 1], observation, atol=1e-6)
        np.testing.assert_allclose(step.reward[1, 1], reward, atol=1e-5)
    lanes.close()


def test_hidden_entries_are_zero_for_the_policy_alone():
    lanes = GymTask("gym:Pendulum-v1", hide=(0, 2)).lanes([0], 2)
    for step in (lanes.reset(), lanes.step(np.ones((1, 2, 1)))):
        assert (step.obs["policy"][..., [0, 2]] == 0).all()
        assert (step.obs["critic"] != 0).all()
        np.testing.assert_array_equal(step.obs["policy"][..., 1], step.obs["critic"][..., 1])


def test_an_ended_lane_shows_its_last_observation_and_the_next_ones_first():
    lanes = GymTask("gym:Pendulum-v1", horizon=3).lanes([0], 2)
    first = lanes.reset()
    steps = [lanes.step(action) for action in _actions((1, 2), 4)]
    assert [bool(step.first.all()) for step in steps] == [False, False, True, False]
    assert [bool(step.truncated.all()) for step in steps] == [False, False, True, False]
    assert not any(step.terminated.any() for step in steps)
    assert (steps[2].obs["policy"] != steps[2].last_obs["policy"]).any()
    assert (steps[2].obs["policy"] != first.obs["policy"]).any()
    np.testing.assert_array_equal(steps[2].obs["previous_action"], 0)
    assert np.abs(steps[2].last_obs["previous_action"]).max() <= 1
    np.testing.assert_array_equal(steps[1].obs["policy"], steps[1].last_obs["policy"])


def test_falling_over_terminates_and_does_not_truncate():
    lanes = GymTask("gym:CartPole-v1").lanes([0], 1)
    lanes.reset()
    ends = [lanes.step(np.ones((1, 1), np.int32)) for _ in range(30)]
    assert any(step.terminated.any() for step in ends)
    assert not any(step.truncated.any() for step in ends)
    assert all((step.first == step.terminated).all() for step in ends)


def test_seeds_streams_and_episodes_draw_other_starts():
    task = GymTask("gym:Pendulum-v1", horizon=1)
    lanes = task.lanes([0, 1], 2)
    first = lanes.reset().obs["policy"].reshape(4, -1)
    second = lanes.step(np.zeros((2, 2, 1))).obs["policy"].reshape(4, -1)
    evaluation = task.lanes([0, 1], 2, stream=1).reset().obs["policy"].reshape(4, -1)
    assert len(np.unique(np.concatenate([first, second, evaluation]), axis=0)) == 12
    np.testing.assert_array_equal(lanes.reset().obs["policy"].reshape(4, -1), first)


@pytest.mark.parametrize(
    ("observations", "value", "sizes", "policy"),
    [
        (spaces.Box(0, 255, (2, 2), np.uint8), np.arange(4, dtype=np.uint8).reshape(2, 2), (4, 4), [0, 1, 2, 3]),
        (spaces.Discrete(3, start=5), 6, (3, 3), [0, 1, 0]),
        (spaces.MultiDiscrete([3, 2], start=[5, -1]), np.array([7, -1]), (5, 5), [0, 0, 1, 1, 0]),
        (spaces.MultiDiscrete([[3], [2]]), np.array([[0], [1]]), (5, 5), [1, 0, 0, 0, 1]),
        (spaces.MultiBinary((2, 1)), np.array([[1], [0]], np.int8), (4, 4), [0, 1, 1, 0]),
        (spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 9, (1,))]), (1, np.array([7.0])), (3, 3), [0, 1, 7]),
        (spaces.Dict(b=spaces.Box(0, 9, (1,)), a=spaces.Discrete(2)), {"b": [7.0], "a": 0}, (3, 3), [1, 0, 7]),
        (
            spaces.Dict(policy=spaces.Box(0, 9, (1,)), critic=spaces.Box(0, 9, (2,))),
            {"policy": [7.0], "critic": [7.0, 8.0]},
            (1, 2),
            [7],
        ),
        (
            spaces.Dict(policy=spaces.Box(0, 9, (1,)), more=spaces.Discrete(2)),
            {"policy": [7.0], "more": 1},
            (1, 1),
            [7],
        ),
    ],
)
def test_observation_spaces_become_flat_views(observations, value, sizes, policy):
    task = _script(observations=observations, value=value)
    step = task.lanes([0], 1).reset()
    assert (task.spec.views["policy"], task.spec.views["critic"]) == sizes
    assert {name: view.shape[2] for name, view in step.obs.items()} == task.spec.views
    assert all(view.dtype == np.float32 for view in step.obs.values())
    np.testing.assert_array_equal(step.obs["policy"][0, 0], policy)


@pytest.mark.parametrize(
    ("observations", "value"), [(spaces.Discrete(3), 3), (spaces.MultiDiscrete([3, 2]), np.array([0, -1]))]
)
def test_an_observation_outside_its_space_is_refused(observations, value):
    with pytest.raises(UserError, match="which is not in its space"):
        _script(observations=observations, value=value).lanes([0], 1).reset()


def test_discrete_actions_begin_where_the_space_does():
    lanes = _script(actions=spaces.Discrete(3, start=-1)).lanes([0], 1)
    lanes.reset()
    step = lanes.step(np.array([[2]]))
    assert lanes._envs[0].unwrapped.seen == [1]
    np.testing.assert_array_equal(step.obs["previous_action"][0, 0], [0, 0, 1])


@pytest.mark.parametrize(
    ("space", "action", "own", "shown"),
    [
        (spaces.MultiDiscrete([3, 2, 5]), [2, 0, 4], [2, 0, 4], [0, 0, 1, 1, 0, 0, 0, 0, 0, 1]),
        (spaces.MultiDiscrete([3, 2], start=[-1, 7]), [0, 1], [-1, 8], [1, 0, 0, 0, 1]),
        (spaces.MultiDiscrete([[2, 3]], dtype=np.int32), [1, 2], [[1, 2]], [0, 1, 0, 0, 1]),
        (spaces.MultiBinary((2, 1)), [0, 1], [[0], [1]], [1, 0, 0, 1]),
    ],
)
def test_each_axis_of_a_discrete_action_is_executed_and_shown_by_itself(space, action, own, shown):
    lanes = _script(actions=space).lanes([0], 1)
    lanes.reset()
    step = lanes.step(np.array([[action]]))
    seen = lanes._envs[0].unwrapped.seen[0]
    assert seen in space and seen.dtype == space.dtype
    np.testing.assert_array_equal(seen, own)
    np.testing.assert_array_equal(step.obs["previous_action"][0, 0], shown)


def test_actions_take_the_shape_and_type_of_the_space():
    space = spaces.Box(np.array([[0.0], [-3.0]]), np.array([[1.0], [5.0]]), dtype=np.float64)
    lanes = _script(actions=space).lanes([0], 1)
    lanes.reset()
    lanes.step(np.array([[[-9.0, 1.0]]]))
    seen = lanes._envs[0].unwrapped.seen[0]
    assert seen in space
    np.testing.assert_allclose(seen, [[0.0], [5.0]])


LOW, HIGH = np.array([-2.0, 0.1, -np.inf, 0.0], np.float32), np.array([2.0, 0.7, np.inf, np.inf], np.float32)


def test_actions_mean_the_same_on_host_and_device():
    theirs = spaces.Box(LOW, HIGH)
    space = from_gymnasium(theirs, "here")
    assert space == Box(tuple(LOW.tolist()), tuple(HIGH.tolist()), (4,)) and to_gymnasium(space) == theirs
    for action in np.random.default_rng(0).normal(0, 2, (50, 4)).astype(np.float32):
        there = jnp.asarray(action)
        np.testing.assert_array_equal(space.encode(action, np), space.encode(there))
        np.testing.assert_allclose(space.execute(action, np), space.execute(there), rtol=1e-6, atol=1e-7)
        assert space.execute(action, np) in theirs


def test_what_was_executed_can_be_told_in_policy_units():
    box, actions = (
        Box(tuple(LOW.tolist()), tuple(HIGH.tolist()), (2, 2)),
        np.random.default_rng(0).normal(0, 1, (50, 4)),
    )
    for action in actions.astype(np.float32):
        told = box.policy_units(box.execute(action, np), np)
        np.testing.assert_allclose(told, box.encode(action, np), atol=1e-6)
        np.testing.assert_array_equal(told, box.policy_units(jnp.asarray(box.execute(action, np))))
    discrete = Discrete(3, start=-1)
    assert [int(discrete.policy_units(discrete.execute(np.int32(a), np), np)) for a in range(3)] == [0, 1, 2]
    assert to_gymnasium(discrete) == spaces.Discrete(3, start=-1)
    axes = MultiDiscrete((3, 2, 5), (-1, 0, 7), (3, 1))
    told = axes.policy_units(axes.execute(np.array([2, 0, 4]), np), np)
    np.testing.assert_array_equal(told, [2, 0, 4])
    assert to_gymnasium(axes) == spaces.MultiDiscrete([3, 2, 5], start=[-1, 0, 7])
    assert to_gymnasium(MultiDiscrete((3, 2))) == spaces.MultiDiscrete([3, 2])


@pytest.mark.parametrize(
    "space", [Box((-1.0, 0.5), (1.0, 2.0), (2, 1)), Discrete(4), MultiDiscrete((4, 9), (1, -1), (2, 1))]
)
def test_many_actions_at_once_are_each_as_alone(space):
    random = np.random.default_rng(0)
    drawn = (5, *space.drawn)
    many = (random.normal(0, 1, drawn) if isinstance(space, Box) else random.integers(0, 4, drawn)).astype(space.dtype)
    for each in (space.encode, space.execute):
        np.testing.assert_array_equal(each(many, np), np.stack([each(one, np) for one in many]))
        np.testing.assert_allclose(each(many, np), jax.vmap(each)(jnp.asarray(many)), rtol=1e-6)


@pytest.mark.parametrize("steps", [0, 1, 7, 12])
def test_restored_lanes_go_on_exactly_as_the_saved_ones(steps):
    task = GymTask("gym:Pendulum-v1", hide=2, horizon=5)
    lanes, resumed = task.lanes([0, 1], 2), task.lanes([0, 1], 2)
    last = lanes.reset()
    actions = _actions((2, 2), steps + 6)
    for action in actions[:steps]:
        last = lanes.step(action)
    again, exact = resumed.restore(lanes.snapshot())
    assert exact
    for name, view in last.obs.items():
        np.testing.assert_array_equal(again.obs[name], view)
    np.testing.assert_array_equal(again.first, last.first)
    for action in actions[steps:]:
        for one, other in zip(jax.tree.leaves(lanes.step(action)), jax.tree.leaves(resumed.step(action)), strict=True):
            np.testing.assert_array_equal(one, other)


def test_lanes_of_different_age_are_restored_too():
    task = GymTask("gym:CartPole-v1")
    lanes = task.lanes([0], 3)
    lanes.reset()
    for actions in np.random.default_rng(0).integers(0, 2, (40, 1, 3)):
        last = lanes.step(actions)
    snapshot = lanes.snapshot()
    assert len(np.unique(snapshot["lengths"])) > 1 and snapshot["episodes"].min() > 0
    again, exact = task.lanes([0], 3).restore(snapshot)
    assert exact
    np.testing.assert_array_equal(again.obs["policy"], last.obs["policy"])
    np.testing.assert_array_equal(again.obs["previous_action"], last.obs["previous_action"])


@pytest.mark.parametrize("fragile", [False, True])
def test_an_environment_that_comes_out_elsewhere_is_noticed(fragile):
    Drifting.resets = 0
    task = GymTask("gym:test/Drifting-v0", fragile=fragile)
    lanes = task.lanes([0], 1)
    lanes.reset()
    lanes.step(np.zeros((1, 1, 1)))
    step, exact = task.lanes([0], 1).restore(lanes.snapshot())
    assert not exact
    assert bool(step.first.all()) is fragile  # it ended on the way, so the next episode has begun


def test_a_snapshot_of_other_lanes_is_refused():
    task = GymTask("gym:Pendulum-v1")
    lanes = task.lanes([0], 2)
    lanes.reset()
    with pytest.raises(UserError, match="seeds and lanes"):
        task.lanes([0], 3).restore(lanes.snapshot())


def test_the_horizon_is_the_environments_own_unless_given():
    assert GymTask("gym:Pendulum-v1").spec.horizon == 200
    assert GymTask("gym:Pendulum-v1", horizon=300).spec.horizon == 300
    assert _script().spec.horizon == 10_000


def test_lanes_draw_pictures_when_asked_to():
    lanes = GymTask("gym:s2pg/Recall-v0").lanes([0], 2, render=True)
    lanes.reset()
    assert lanes.render(1).shape == (192, 192, 3)
    blind = _script().lanes([0], 1)
    blind.reset()
    with pytest.raises((UserError, NotImplementedError)):
        blind.render()


@pytest.mark.parametrize(
    ("id", "options", "message"),
    [
        ("gym:Pendlum-v1", {}, "cannot make gym:Pendlum-v1"),
        (
            "gym:no_such_module:Pendulum-v1",
            {},
            "(No module named 'no_such_module'): install what brings no_such_module",
        ),
        ("gym:Pendulum-v1", {"colour": "red"}, "colour"),
        ("gym:test/Broken-v0", {}, "cannot make gym:test/Broken-v0: no licence found"),
        ("gym:Pendulum-v1", {"hide": 3}, "cannot hide entry 3 of gym:Pendulum-v1: it has entries 0 to 2"),
        ("gym:Pendulum-v1", {"hide": -1}, "cannot hide entry -1"),
        ("gym:Pendulum-v1", {"hide": "speed"}, "hide must be indices"),
        ("gym:Pendulum-v1", {"horizon": 0}, "horizon"),
        ("gym:test/Script-v0", {"observations": spaces.Text(3)}, f"are Text; known: {', '.join(KNOWN)}, Dict, Tuple"),
        ("gym:test/Script-v0", {"actions": spaces.Text(3)}, f"are Text; known: {', '.join(KNOWN)}"),
        (
            "gym:test/Script-v0",
            {"observations": spaces.Dict(policy=spaces.Discrete(2), previous_action=spaces.Discrete(2))},
            "previous_action",
        ),
    ],
)
def test_mistakes_in_a_gymnasium_task_are_told_in_one_line(id, options, message):
    with pytest.raises(UserError) as error:
        tasks.make(id, **options)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_module_that_fails_on_import_is_told_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "s2pg_broken_module.py").write_text("import sys\nsys.no_such_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    for module, why in {"s2pg_broken_module": "no_such_name", ".relative": "relative import"}.items():
        with pytest.raises(UserError, match=f"^cannot make gym:{re.escape(module)}:Foo-v0: .*{why}") as error:
            tasks.make(f"gym:{module}:Foo-v0")
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("views", ["policy", "dict"])
@pytest.mark.parametrize("id", IDS)
@pytest.mark.filterwarnings(OWN_UNITS)
def test_our_tasks_pass_gymnasiums_own_check(id, views):
    check_env(gymnasium.make(id, views=views).unwrapped)


def test_registering_twice_does_no_harm():
    register()
    assert set(IDS) <= set(gymnasium.registry)


def test_our_task_behind_gymnasium_shows_the_same_views_and_ends_the_same_way():
    env = gymnasium.make("s2pg/Recall-v0", k=3)
    observation, info = env.reset(seed=1)
    right = int(observation[0] > 0)
    assert abs(observation[0]) == 1 and info["critic"][0] == observation[0]
    outcomes = []
    for _ in range(3):
        observation, *outcome, info = env.step(right)
        outcomes.append(tuple(outcome))
        np.testing.assert_array_equal(observation, [0, 0])
    assert outcomes == [(0.0, False, False), (0.0, False, False), (1.0, True, False)]


def test_our_task_behind_gymnasium_takes_actions_in_its_own_units():
    env = gymnasium.make("s2pg/MaskedPendulum-v0", horizon=2)
    env.reset(seed=0)
    env.step(np.array([1.5], np.float32))
    assert float(env.unwrapped._state.previous[0]) == 0.75
    assert env.step(np.array([0.0], np.float32))[2:4] == (False, True)


def test_both_bridges_in_a_row_give_the_device_tasks_views():
    task = tasks.make("gym:s2pg/PointMassGoal-v0", views="dict", horizon=5)
    assert task.spec.views == tasks.make("pointmass-goal").spec.views
    lanes = task.lanes([0], 2)
    lanes.reset()
    assert lanes.step(np.zeros((1, 2, 1))).obs["critic"].shape == (1, 2, 7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "recall", "views": "all"}, "views"),
        ({"task": "gym:Pendulum-v1"}, "already"),
        ({"task": "x"}, "unknown"),
    ],
)
def test_mistakes_in_wrapping_a_task_are_told(options, message):
    with pytest.raises(UserError, match=message):
        GymEnv(**options)


def test_a_task_reads_observations_that_are_no_vectors():
    task = GymTask("gym:FrozenLake-v1", hide=(3,))
    views = task.read(3)
    assert views["policy"].shape == (16,) and not views["policy"].any()  # cell 3 is hidden
    assert int(np.argmax(views["critic"])) == 3
