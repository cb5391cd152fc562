"""Tasks from other libraries: against small stand-ins for those, and against the libraries where they are installed."""

import dataclasses
import sys
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import s2pg
from s2pg.envs import tasks
from s2pg.errors import UserError
from s2pg.types import Box, Discrete

KEY = jax.random.key(5)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class State:
    """A state as Brax and Playground have it."""

    clock: Any
    obs: Any
    reward: Any
    done: Any
    metrics: Any
    info: Any

    replace = dataclasses.replace


class Walk:
    """Counts its steps; ends at actions above 0.9, comes to no number below -0.9, and writes into what it is given."""

    action_size = 2

    def __init__(self, plain=False, offset=0.0):
        self.plain, self.offset = plain, offset

    def _obs(self, clock, rng):
        state = jnp.stack([clock + self.offset, jax.random.uniform(rng)])
        return state if self.plain else {"state": state, "privileged_state": jnp.append(state, 7.0), "pixels": 0}

    def reset(self, rng):
        clock = 100.0 * jax.random.uniform(jax.random.fold_in(rng, 1))
        return State(clock, self._obs(clock, rng), 0.0, 0.0, {"steps": 0}, {"rng": rng})

    def step(self, state, action):
        rng, own = jax.random.split(state.info["rng"])
        state.metrics["steps"] = state.metrics["steps"] + 1.0  # another type than at the start
        state.info["rng"] = rng
        clock = jnp.where(action[0] < -0.9, jnp.nan, state.clock + 1)
        return state.replace(clock=clock, obs=self._obs(clock, own), reward=clock, done=(action[0] > 0.9) * 1.0)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Clock:
    time: Any


@dataclasses.dataclass(frozen=True)
class Params:
    max_steps_in_episode: int = 4
    low: Any = dataclasses.field(default_factory=lambda: jnp.array([-3.0, -1.0]))  # has no hash

    replace = dataclasses.replace


class Grid:
    """A Gymnax environment from 1.0 on: its end is apart from its time limit."""

    def __init__(self, discrete=True):
        self.discrete = discrete
        self.default_params = Params()

    def action_space(self, params):
        return (
            types.SimpleNamespace(n=3) if self.discrete else types.SimpleNamespace(low=params.low, high=3, shape=(2,))
        )

    def _obs(self, time):
        return jnp.full((2, 3), time) == jnp.arange(6).reshape(2, 3)

    def reset_env(self, key, params):
        return self._obs(0), Clock(0)

    def step_env(self, key, state, action, params):
        time = state.time + 1
        return self._obs(time), Clock(time), jnp.sum(action), self.over(time, action, params), {}

    def over(self, time, action, params):
        return jnp.max(action) == 2

    def is_truncated(self, state, params):
        return state.time >= params.max_steps_in_episode


class OldGrid(Grid):
    """The same before 1.0: its time limit is an end like any other."""

    is_truncated = property()

    def over(self, time, action, params):
        return (jnp.max(action) == 2) | (time >= params.max_steps_in_episode)


class Config(dict):
    __getattr__ = dict.__getitem__


@pytest.fixture(autouse=True)
def libraries(monkeypatch, request):
    """Stand-ins for the three packages; what Playground was asked to load."""
    if "library" in request.fixturenames:  # a test of the real ones
        return None
    loaded = []

    def load(name, config_overrides):
        loaded.append(config_overrides)
        return Walk(plain=config_overrides.get("plain", False))

    walks, grids = {"walk": Walk}, {"Grid-v0": Grid, "OldGrid-v0": OldGrid}
    config = Config(episode_length=6, impl="warp", plain=False)
    registry = types.SimpleNamespace(ALL_ENVS=("Walk",), get_default_config=lambda name: config, load=load)
    brax = types.SimpleNamespace(_envs=walks, get_environment=lambda name, **options: walks[name](**options))

    def make(name, **options):
        env = grids[name](**options)
        return env, env.default_params

    for name, content in {
        "brax": {"envs": brax},
        "brax.envs": vars(brax),
        "mujoco_playground": {"registry": registry},
        "gymnax": {"registered_envs": list(grids), "make": make},
    }.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return loaded


def _play(env, actions):
    """The time steps of these actions, the reset first."""
    state, step = env.reset(KEY)
    steps, advance = [step], jax.jit(env.step)
    for t, action in enumerate(actions):
        state, step = advance(state, jnp.asarray(action), jax.random.fold_in(KEY, t))
        steps.append(step)
    return steps


STILL, END, BREAK = [0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]


@pytest.mark.parametrize("name", ["brax:walk", "playground:Walk"])
def test_state_is_the_policy_view_and_privileged_state_the_critic_view(name):
    env = tasks.make(name, hide=1)
    assert env.spec.views == {"policy": 2, "critic": 3, "previous_action": 2}
    assert env.spec.action == Box((-1.0, -1.0), (1.0, 1.0))
    for step in _play(env, [STILL, STILL]):
        policy, critic = step.obs["policy"], step.obs["critic"]
        assert policy[0] == critic[0] and policy[1] == 0.0 != critic[1] and critic[2] == 7.0
        assert policy.dtype == critic.dtype == jnp.float32


def test_an_array_is_both_views():
    step = _play(tasks.make("brax:walk", plain=True, hide=(0,)), [STILL])[-1]
    assert step.obs["policy"][0] == 0.0 != step.obs["critic"][0]
    assert step.obs["policy"][1] == step.obs["critic"][1]


def test_observations_of_any_shape_become_vectors():
    step = _play(tasks.make("gymnax:Grid-v0", hide=(1,)), [0])[-1]
    np.testing.assert_array_equal(step.obs["critic"], [0, 1, 0, 0, 0, 0])
    np.testing.assert_array_equal(step.obs["policy"], [0, 0, 0, 0, 0, 0])


@pytest.mark.parametrize(
    ("name", "still", "end"),
    [
        ("brax:walk", STILL, END),
        ("playground:Walk", STILL, END),
        ("gymnax:Grid-v0", 0, 2),
        ("gymnax:OldGrid-v0", 0, 2),
    ],
)
def test_time_running_out_truncates_and_the_environments_own_end_terminates(name, still, end):
    env = tasks.make(name, horizon=3)
    steps = _play(env, [still, still, still, still, end, still, still, end])
    assert [bool(step.truncated) for step in steps] == [i == 3 for i in range(9)]
    assert [bool(step.terminated) for step in steps] == [i in (5, 8) for i in range(9)]
    assert [bool(step.first) for step in steps] == [i in (0, 3, 5, 8) for i in range(9)]


def test_horizons_are_the_environments_own_unless_one_is_given():
    lengths = {"brax:walk": 1000, "playground:Walk": 6, "gymnax:Grid-v0": 4, "gymnax:OldGrid-v0": 4}
    for name, length in lengths.items():
        assert tasks.make(name).spec.horizon == length
        assert tasks.make(name, horizon=9).spec.horizon == 9


def test_gymnax_actions_are_discrete_or_boxes_with_the_environments_bounds():
    assert tasks.make("gymnax:Grid-v0").action == Discrete(3)
    box = tasks.make("gymnax:Grid-v0", discrete=False)
    assert box.action == Box((-3.0, -1.0), (3.0, 3.0), (2,))
    assert float(_play(box, [[-1.0, 0.0]])[-1].reward) == -3.0 + 1.0


def test_later_episodes_start_from_a_pool_but_not_with_the_same_noise():
    env, ends = tasks.make("brax:walk", starts=3), [END] * 30
    starts = [tuple(map(float, step.obs["policy"])) for step in _play(env, ends)]
    assert len({clock for clock, _ in starts[1:]}) == 3
    after = [tuple(map(float, step.last_obs["policy"])) for step in _play(env, ends)]
    assert len({noise for _, noise in after[2:]}) == 29
    fresh = [float(step.obs["policy"][0]) for step in _play(tasks.make("brax:walk", starts=0), ends)]
    assert len(set(fresh)) == 31


def test_steps_leave_the_state_they_are_given_as_it_was():
    env = tasks.make("brax:walk")
    state, _ = env.reset(KEY)
    before = jax.device_get(state)
    env.advance(state, jnp.asarray(STILL), KEY)
    jax.tree.map(np.testing.assert_array_equal, before, jax.device_get(state))


def test_a_simulation_that_breaks_down_ends_the_episode_where_it_was():
    steps = _play(tasks.make("brax:walk"), [STILL, BREAK, STILL])
    assert [bool(step.terminated) for step in steps] == [False, False, True, False]
    assert [bool(step.diverged) for step in steps] == [False, False, True, False]
    np.testing.assert_array_equal(steps[2].last_obs["critic"], steps[1].obs["critic"])
    assert float(steps[2].reward) == 0.0 and all(np.isfinite(step.reward) for step in steps)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("brax:walk", {}),
        ("brax:walk", {"hide": (1,), "horizon": 50, "starts": 4, "offset": 2.0}),
        ("playground:Walk", {"horizon": 5, "plain": True}),
        ("gymnax:Grid-v0", {"hide": (0, 2), "discrete": False}),
    ],
)
def test_a_described_task_can_be_made_again(name, options):
    env = tasks.make(name, **options)
    assert tasks.describe(env) == (name, options)
    again = tasks.make(name, **{option: str(value) for option, value in options.items()})  # as from a command line
    assert tasks.describe(again) == (name, options) and again.spec == env.spec


def test_playground_is_asked_for_mjx_and_for_our_horizon(libraries):
    tasks.make("playground:Walk", horizon=9, plain=True)
    tasks.make("playground:Walk")
    assert libraries == [{"episode_length": 9, "impl": "jax", "plain": True}, {"episode_length": 6, "impl": "jax"}]


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("brax:ant", "brax.envs", "brax"),
        ("playground:X", "mujoco_playground", "playground"),
        ("gymnax:X", "gymnax", "gymnax"),
    ],
)
def test_a_missing_package_is_told_in_one_line_with_the_remedy(monkeypatch, name, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError) as error:
        tasks.make(name)
    message = str(error.value)
    assert message.startswith(f"{name} needs a package that is not installed (")
    assert message.endswith(f"): pip install 's2pg[{extra}]'") and "\n" not in message


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("brax:wlak", {}, "unknown Brax environment 'wlak'; did you mean walk?"),
        (
            "brax:walk",
            {"colour": 1},
            "cannot make brax:walk: Walk.__init__() got an unexpected keyword argument 'colour'",
        ),
        ("brax:walk", {"episode_length": 3}, "episode_length of brax:walk is set by the option horizon"),
        ("brax:walk", {"hide": 2}, "cannot hide entry 2 of brax:walk: it has entries 0 to 1"),
        ("brax:walk", {"hide": "all"}, "hide must be indices such as 2 or 2,3, not 'all'"),
        ("brax:walk", {"horizon": 0}, "horizon of brax:walk must be a whole number of at least 1, not 0"),
        ("brax:walk", {"starts": -1}, "starts of brax:walk must be 0 or more, not -1"),
        ("playground:Wal", {}, "unknown Playground environment 'Wal'; did you mean Walk?"),
        ("playground:Walk", {"imp": "jax"}, "unknown option of playground:Walk 'imp'; did you mean impl?"),
        ("playground:Walk", {"impl": "warp"}, "impl of playground:Walk must be jax, not 'warp'"),
        ("gymnax:Grid", {}, "unknown Gymnax environment 'Grid'; did you mean Grid-v0 or OldGrid-v0?"),
        (
            "gymnax:Grid-v0",
            {"max_steps_in_episode": 3},
            "max_steps_in_episode of gymnax:Grid-v0 is set by the option horizon",
        ),
    ],
)
def test_mistakes_are_told_in_one_line(name, options, message):
    with pytest.raises(UserError) as error:
        tasks.make(name, **options)
    assert str(error.value) == message


def test_observations_without_a_state_are_refused(monkeypatch):
    monkeypatch.setattr(Walk, "_obs", lambda self, clock, rng: {"pixels": clock})
    with pytest.raises(UserError, match="observations of brax:walk are pixels; one must be 'state'"):
        tasks.make("brax:walk")


SMALL = {"lanes": 2, "steps": 8, "minibatches": 1, "epochs": 1, "size": 8, "width": 8}


@pytest.mark.parametrize(
    ("name", "options"), [("brax:walk", {"starts": 3}), pytest.param("gymnax:Grid-v0", {}, marks=pytest.mark.slow)]
)
def test_ppo_learns_from_them_and_goes_on_where_it_was(tmp_path, name, options):
    train = lambda out, steps, resume: s2pg.train(  # noqa: E731
        "ppo", tasks.make(name, horizon=5, **options), critic="critic", hyper=SMALL, steps=steps, out=tmp_path / out,
        episodes=2, resume=resume,
    )  # fmt: skip
    whole = train("whole", 32, False)
    train("halves", 16, False)
    halves = train("halves", 32, True)
    timeless = lambda run: [  # noqa: E731
        {key: value for key, value in row.items() if key not in ("wall_s", "steps_per_s")} for row in run.metrics
    ]
    np.testing.assert_equal(timeless(halves)[-1], timeless(whole)[-1])
    assert tasks.describe(halves.env()) == tasks.describe(tasks.make(name, horizon=5, **options))


@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize(
    ("library", "name", "options", "views"),
    [
        ("brax", "brax:inverted_pendulum", {"backend": "spring"}, (4, 4)),
        ("brax", "brax:fast", {"asymmetric_obs": True, "obs_mode": "dict_state"}, (2, 4)),
        ("mujoco_playground", "playground:CartpoleBalance", {"hide": (3, 4)}, (5, 5)),
        ("gymnax", "gymnax:CartPole-v1", {}, (4, 4)),
        ("gymnax", "gymnax:Pendulum-v1", {"hide": (2,), "g": 9.81}, (3, 3)),
        ("gymnax", "gymnax:MemoryChain-bsuite", {"memory_length": 3}, (3, 3)),
    ],
)
def test_the_libraries_own_environments_run_and_are_learned_from(tmp_path, library, name, options, views):
    pytest.importorskip(library)
    with jax.numpy_rank_promotion("allow"):
        env = tasks.make(name, horizon=12, **options)
        assert (env.spec.views["policy"], env.spec.views["critic"]) == views and env.spec.horizon == 12
        assert tasks.describe(env) == (name, {"horizon": 12, **options})
        wild = np.random.default_rng(0)
        discrete = isinstance(env.action, Discrete)
        actions = [wild.integers(env.action.n) if discrete else wild.normal(size=env.action.size) for _ in range(30)]
        steps = _play(env, actions)
        assert all(np.isfinite(view).all() for step in steps for view in step.obs.values())
        lasts = [i for i, step in enumerate(steps) if step.terminated or step.truncated]
        assert lasts and max(np.diff([0, *lasts])) <= 12
        assert not any(step.terminated and step.truncated for step in steps)
        run = s2pg.train(
            "ppo", env, critic="critic", hyper=SMALL, steps=16, out=tmp_path / "run", episodes=2, say=lambda line: None
        )
    assert np.isfinite(run.metrics[-1]["eval_return"])
