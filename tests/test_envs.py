"""What all tasks on the device share: autoreset, previous action, pictures, names; and the two small tasks."""

import gc
from typing import Annotated

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s2pg.envs import tasks
from s2pg.envs.as_gymnasium import GymEnv
from s2pg.envs.base import Drawable, Env, seconds
from s2pg.envs.draw import Canvas
from s2pg.envs.gymnasium import GymTask
from s2pg.envs.host import HostTask, Lanes, Outcome
from s2pg.envs.pendulum import MaskedPendulum, PendulumState
from s2pg.envs.pointmass import PointMassGoal
from s2pg.envs.recall import Recall
from s2pg.errors import UserError
from s2pg.options import Option
from s2pg.runs.experiment import resolve, write_config
from s2pg.runs.request import Request
from s2pg.runs.run import Run
from s2pg.types import Box, Discrete, Spec

KEY = jax.random.key(3)


class Counter(Env):
    """Counts its steps; ends when it is told to.

    A second line that nobody lists.
    """

    horizon: int = eqx.field(static=True)
    loud: bool = eqx.field(static=True, default=False)

    @property
    def action(self):
        return Box((-2.0, -np.inf), (4.0, np.inf))

    def begin(self, key):
        return jnp.zeros(())

    def move(self, inner, elapsed, action, key):
        return inner + 1, action[0], action[1] > 100

    def views(self, inner, elapsed):
        return {"policy": inner[None], "critic": inner[None]}


def _episode(env, policy):
    """The time steps of one episode under `policy(inner)`, up to and with its end."""
    state, step = env.reset(KEY)
    steps, advance = [step], jax.jit(env.step)
    while not (len(steps) > 1 and steps[-1].first):
        state, step = advance(state, policy(state.inner), jax.random.fold_in(KEY, len(steps)))
        steps.append(step)
    return steps


def test_an_ended_episode_shows_its_last_observation_and_the_next_ones_first():
    env = Counter(horizon=3)
    steps = _episode(env, lambda inner: jnp.array([0.5, 1.0]))
    assert [bool(step.first) for step in steps] == [True, False, False, True]
    assert [float(step.last_obs["policy"][0]) for step in steps] == [0, 1, 2, 3]
    assert [float(step.obs["policy"][0]) for step in steps] == [0, 1, 2, 0]


def test_time_running_out_truncates_and_a_task_that_is_over_terminates():
    by_time = _episode(Counter(horizon=3), lambda inner: jnp.array([0.0, 0.0]))
    by_task = _episode(Counter(horizon=3), lambda inner: jnp.array([0.0, 200.0 * (inner == 1)]))
    at_once = _episode(Counter(horizon=3), lambda inner: jnp.array([0.0, 200.0 * (inner == 2)]))
    ends = [
        (len(steps) - 1, bool(steps[-1].terminated), bool(steps[-1].truncated)) for steps in (by_time, by_task, at_once)
    ]
    assert ends == [(3, False, True), (2, True, False), (3, True, False)]


def test_actions_are_clipped_scaled_and_shown_as_the_previous_action():
    env = Counter(horizon=2)
    state, step = env.reset(KEY)
    np.testing.assert_array_equal(step.obs["previous_action"], [0.0, 0.0])
    state, step = env.step(state, jnp.array([7.0, 7.0]), KEY)
    np.testing.assert_array_equal(step.obs["previous_action"], [1.0, 7.0])  # the second axis has no bounds
    assert float(step.reward) == 4.0
    _, step = env.step(state, jnp.array([-0.5, 0.0]), KEY)
    assert float(step.reward) == -0.5  # half of the way from the middle, 1, to the low bound, -2
    np.testing.assert_array_equal(step.last_obs["previous_action"], [-0.5, 0.0])
    np.testing.assert_array_equal(step.obs["previous_action"], [0.0, 0.0])


class OpenRecall(Recall):
    shows_action = True


def test_a_discrete_previous_action_is_one_hot_and_zero_after_a_reset():
    steps = _episode(OpenRecall(k=2), lambda inner: jnp.array(1))
    np.testing.assert_array_equal([step.obs["previous_action"] for step in steps], [[0, 0], [0, 1], [0, 0]])
    np.testing.assert_array_equal(steps[-1].last_obs["previous_action"], [0, 1])


def test_recall_shows_no_previous_action_in_which_a_policy_could_write_notes_to_itself():
    assert set(Recall(k=2).spec.views) == {"policy", "critic"}


@pytest.mark.parametrize("cue", ["bit", "real"])
def test_recall_shows_its_cue_once_and_asks_for_it_at_the_end(cue):
    env = Recall(k=4, cue=cue)
    steps = _episode(env, env.scripted)
    shown = float(steps[0].obs["policy"][0])
    np.testing.assert_allclose(
        [step.last_obs["policy"] for step in steps], [[shown, 1], [0, 0], [0, 0], [0, 0], [0, 0]]
    )
    np.testing.assert_allclose([step.last_obs["critic"] for step in steps], [[shown, t / 4] for t in range(5)])
    assert [float(step.reward) for step in steps] == [0, 0, 0, 0, 1]
    assert bool(steps[-1].terminated) and not bool(steps[-1].truncated)
    assert env.spec.horizon == 4


def test_recall_pays_nothing_for_the_wrong_bit_and_less_for_a_distant_number():
    zero, last = jnp.zeros((), jnp.int32), jnp.array(7)
    for cue, right in ((1.0, 1), (-1.0, 0)):
        for answer in (0, 1):
            _, reward, over = Recall().move(jnp.array(cue), last, jnp.array(answer), KEY)
            assert float(reward) == (answer == right) and over
    _, reward, over = Recall(cue="real").move(jnp.array(0.5), last, jnp.array([-0.5]), KEY)
    assert float(reward) == 0.0 and over
    _, reward, over = Recall(cue="real").move(jnp.array(0.5), zero, jnp.array([0.5]), KEY)
    assert float(reward) == 0.0 and not over


def test_recall_cues_are_fair():
    bits, reals = (np.asarray(jax.vmap(Recall(cue=cue).begin)(jax.random.split(KEY, 2000))) for cue in ("bit", "real"))
    assert set(bits) == {-1.0, 1.0} and abs(bits.mean()) < 0.1
    assert reals.min() < -0.99 and reals.max() > 0.99 and abs(reals.mean()) < 0.05


def test_recall_over_one_step_is_asked_while_the_cue_is_shown():
    steps = _episode(Recall(k=1), Recall(k=1).scripted)
    assert len(steps) == 2 and float(steps[-1].reward) == 1.0 and bool(steps[-1].terminated)


def test_the_pendulum_moves_and_pays_as_gymnasiums_does():
    theirs = gymnasium.make("Pendulum-v1").unwrapped
    theirs.reset(seed=0)
    ours, advance = PendulumState(*map(jnp.float32, theirs.state)), jax.jit(MaskedPendulum().advance)
    state = MaskedPendulum().reset(KEY)[0]._replace(inner=ours)
    generator = np.random.default_rng(0)
    for _ in range(100):
        torque = generator.uniform(-2.5, 2.5, 1)  # beyond the bounds too
        observation, reward, *_ = theirs.step(torque)
        state, step = advance(state, jnp.asarray(torque / 2, jnp.float32), KEY)
        np.testing.assert_allclose(step.obs["critic"] * jnp.array([1, 1, 8]), observation, atol=2e-3)
        np.testing.assert_allclose(step.obs["policy"], observation[:2], atol=2e-3)
        assert float(step.reward) == pytest.approx(float(reward), abs=1e-2)


def test_the_pendulum_starts_anywhere_and_is_only_ever_truncated():
    states = jax.vmap(MaskedPendulum().begin)(jax.random.split(KEY, 500))
    assert np.abs(states.angle).max() > 3.0 and 0.9 < np.abs(states.velocity).max() <= 1.0
    steps = _episode(MaskedPendulum(horizon=5), lambda inner: jnp.zeros(1))
    assert len(steps) == 6 and bool(steps[-1].truncated) and not bool(steps[-1].terminated)


# Robots come from functions that choose a backend: tests/test_robots.py.
OWN = [name for name, maker in tasks.TASKS.items() if isinstance(maker, type) and issubclass(maker, Env)]


@pytest.mark.parametrize("name", OWN)
def test_every_task_has_bounded_views_and_a_picture(name):
    env = tasks.make(name)
    state, step = env.reset(KEY)
    assert {view: array.shape[0] for view, array in step.obs.items()} == env.spec.views
    assert all(array.dtype == jnp.float32 and np.abs(array).max() <= 1 for array in step.obs.values())
    picture = env.render(jax.device_get(state))
    assert picture.shape == (192, 192, 3) and picture.dtype == np.uint8
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 3


def test_the_picture_of_a_goal_is_hollow_while_it_is_hidden():
    env = PointMassGoal()
    state, _ = env.reset(KEY)
    start = state.inner
    x, y = np.asarray(start.goal) / 150 * 192
    pixels = [
        env.render(state._replace(inner=start._replace(position=position)))[191 - int(y), int(x)]
        for position in (start.start, jnp.array([1.0, 75.0]))
    ]
    assert np.ptp(pixels[0]) > 50 > np.ptp(pixels[1])  # green, then the colour of the ground


def test_shapes_cover_the_area_they_should():
    middle, black = (0.0, 0.0), (0.0, 0.0, 0.0)
    for paint, area in (
        (lambda canvas: canvas.disc(middle, 0.5, black), np.pi / 4),
        (lambda canvas: canvas.ring(middle, 0.5, 0.25, black), np.pi * (0.25 - 0.0625)),
        (lambda canvas: canvas.rectangle((-0.5, -0.25), (0.5, 0.25), black), 0.5),
        (lambda canvas: canvas.line((-0.5, 0.0), (0.5, 0.0), 0.2, black), 0.2 + np.pi * 0.01),
    ):
        canvas = Canvas(-1.0, 1.0, background=(1.0, 1.0, 1.0))
        paint(canvas)
        assert 4 * (1 - canvas.picture().mean() / 255) == pytest.approx(area, abs=0.02)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("recall", {"k": 5, "cue": "real"}),
        ("pointmass-door", {"horizon": 50, "speed": 4.5}),
        ("masked-pendulum", {}),
        ("gym:Pendulum-v1", {"hide": (2,), "horizon": 50, "g": 9.81}),
        ("gym:CartPole-v1", {}),
    ],
)
def test_a_described_task_can_be_made_again(name, options):
    made = tasks.make(name, **options)
    same, all_options = tasks.describe(made)
    assert same == name and options.items() <= all_options.items()
    again = tasks.make(same, **all_options)
    assert tasks.describe(again) == (same, all_options)
    assert again.spec == made.spec


def test_options_may_come_as_text():
    assert tasks.make("recall", k="5", cue="real") == Recall(k=5, cue="real")
    assert tasks.make("pointmass-goal", speed="4").speed == 4.0
    assert tasks.make("pointmass-goal", speed=4).speed == 4.0
    gym = tasks.make("gym:Pendulum-v1", hide="0,2", g="9.81")
    assert gym.options == {"hide": (0, 2), "g": 9.81}
    assert tasks.make("gym:Pendulum-v1", hide="2").options == {"hide": (2,)}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("recal", {}, "unknown task 'recal'; did you mean recall?"),
        ("recall", {"cu": "bit"}, "unknown option of task recall 'cu'; did you mean cue?"),
        ("recall", {"k": "eight"}, "k of recall must be int, not 'eight'"),
        ("recall", {"k": 2.5}, "k of recall must be int, not 2.5"),
        ("recall", {"k": True}, "k of recall must be int, not True"),
        ("recall", {"cue": 3}, "unknown cue of recall '3'; known: bit, real"),
        ("recall", {"k": 0}, "k of recall must be 1 or more, not 0"),
        ("recall", {"cue": "word"}, "unknown cue of recall 'word'; known: bit, real"),
        ("masked-pendulum", {"horizon": 0}, "horizon of masked-pendulum must be 1 or more, not 0"),
    ],
)
def test_mistakes_in_a_task_are_told_in_one_line(name, options, message):
    with pytest.raises(UserError) as error:
        tasks.make(name, **options)
    assert str(error.value) == message


def test_options_are_checked_without_a_name_too():
    for make in (lambda: Recall(k=0), lambda: tasks.make("recall", k=0)):
        with pytest.raises(UserError, match=r"^k of recall must be 1 or more, not 0$"):
            make()


@pytest.fixture
def registry(monkeypatch):
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(tasks, "TASKS", dict(tasks.TASKS))


@pytest.mark.usefixtures("registry")
def test_a_task_of_ones_own_is_made_by_name():
    with pytest.raises(UserError, match="register_task"):
        tasks.describe(Counter(horizon=3))
    tasks.register_task("counter", Counter)
    tasks.register_task("counter", Counter)
    env = tasks.make("counter", horizon="3", loud="true")
    assert tasks.describe(env) == ("counter", {"horizon": 3, "loud": True})
    assert tasks.descriptions()["counter"] == "Counts its steps; ends when it is told to."
    assert tasks.about("counter").endswith("A second line that nobody lists.")
    with pytest.raises(UserError, match="needs the option 'horizon'"):
        tasks.make("counter")
    for name, maker, word in (("counter", Recall, "taken"), ("gym:x", Counter, "begin")):
        with pytest.raises(UserError, match=word):
            tasks.register_task(name, maker)


class CoinLanes(Lanes):
    """The smallest lanes there can be: a coin that is tossed anew in every episode of one step."""

    def _open(self, i, seed):
        self._obs["policy"][i] = self._obs["critic"][i] = seed % 2

    def _move(self, lanes, actions):
        right = self._obs["policy"][list(lanes), 0] == np.asarray(actions)
        return Outcome(right.astype(float), np.ones(len(lanes), bool), np.zeros(len(lanes), bool))

    def render(self, lane=0):
        return np.zeros((1, 1, 3), np.uint8)

    def close(self):
        pass


class Coin:
    """A task on the host."""

    def __init__(self, sides: Annotated[int, Option("of the coin", low=2)] = 2, name: str = "coin"):
        self.id, self.options = name, {"sides": sides}
        self.spec = Spec({"policy": 1, "critic": 1, "previous_action": sides}, Discrete(sides), 1)

    def read(self, observation):
        return {"policy": observation}

    def lanes(self, seeds, lanes, stream=0, render=False):
        return CoinLanes(self.spec, seeds, lanes, stream)


def swing(limit: int = 50, slow: bool = False) -> GymTask:
    """A pendulum by another name, whose long description has no place in a table of eighty columns."""
    return GymTask("gym:Pendulum-v1", hide=(2,), horizon=limit, g=1.0 if slow else 10.0)


def five():
    return Recall(k=5)


@pytest.mark.usefixtures("registry")
def test_a_task_on_the_host_can_be_ones_own_as_well():
    tasks.register_task("coin", Coin)
    coin = tasks.make("coin", sides="3")
    assert isinstance(coin, HostTask) and coin.spec.action == Discrete(3)
    assert tasks.describe(coin) == ("coin", {"sides": 3})
    lanes = coin.lanes([0], 4)
    shown = lanes.reset().obs["policy"][..., 0]
    step = lanes.step(shown.astype(int))
    assert step.reward.all() and step.terminated.all() and step.first.all()
    assert lanes.restore(lanes.snapshot())[1]
    with pytest.raises(UserError, match=r"^sides of coin must be 2 or more, not 1$"):
        tasks.make("coin", sides=1)


@pytest.mark.usefixtures("registry")
def test_what_a_function_made_is_described_by_the_functions_name_and_what_it_was_given():
    tasks.register_task("swing", swing)
    tasks.register_task("swing", swing)
    tasks.register_task("five", five)
    made = tasks.make("swing", slow="true")
    assert tasks.describe(made) == ("swing", {"slow": True}) and made.spec.horizon == 50
    assert tasks.describe(tasks.make(*tasks.describe(made)[:1], **tasks.describe(made)[1])) == tasks.describe(made)
    assert tasks.describe(swing())[0] == "gym:Pendulum-v1"  # nobody asked for it by its other name
    named = tasks.make("five")
    assert named == Recall(k=5)
    assert tasks.describe(named) == ("five", {}) and tasks.describe(Recall(k=5))[0] == "recall"
    assert set(tasks.task_settings("swing")) == {"limit", "slow"}
    assert len(tasks.descriptions()["swing"]) <= 56
    with pytest.raises(UserError, match="taken by swing"):
        tasks.register_task("swing", five)


@pytest.mark.usefixtures("registry")
def test_a_run_of_a_task_of_ones_own_can_make_it_again(tmp_path):
    tasks.register_task("swing", swing)
    made = tasks.make("swing", limit=20)
    found, _ = resolve(Request("ppo", "swing", hyper={"lanes": 2, "steps": 4}), made)
    write_config(tmp_path, found, made.spec)
    again = Run(tmp_path).env()
    assert tasks.describe(again) == ("swing", {"limit": 20}) and again.spec == made.spec


@pytest.mark.usefixtures("registry")
def test_a_task_by_a_second_name_is_described_by_that():
    tasks.register_task("toss", Coin)
    assert tasks.describe(tasks.make("toss", sides=4)) == ("toss", {"sides": 4})
    tasks.register_task("memory", Recall)
    assert tasks.describe(tasks.make("memory", k=3)) == ("memory", {"k": 3})
    assert tasks.describe(tasks.make("recall", k=3)) == ("recall", {"k": 3, "cue": "bit"})


@pytest.mark.usefixtures("registry")
def test_what_is_no_task_is_refused_when_it_is_made():
    tasks.register_task("nothing", lambda: [])
    with pytest.raises(UserError, match=r"^task 'nothing' made a list, which is neither an Env nor a HostTask$"):
        tasks.make("nothing")


def test_what_a_task_was_made_as_is_forgotten_with_it(registry):
    tasks.register_task("five", five)
    before = len(tasks._MADE)
    made = tasks.make("five")
    assert len(tasks._MADE) == before + 1
    del made
    gc.collect()
    assert len(tasks._MADE) == before


def test_every_task_has_a_short_line_a_long_text_and_options_that_say_what_they_mean():
    lines = tasks.descriptions()
    assert {*tasks.TASKS, "gym:ID", "brax:ID", "playground:ID", "gymnax:ID"} == set(lines)
    for name, line in lines.items():
        assert 20 < len(line) <= 56 and not line.endswith("...")
        assert len(tasks.about(name)) > len(line)
        settings = tasks.task_settings(name)
        assert settings and all(setting.option.help and not setting.required for setting in settings.values())
    assert set(tasks.task_settings("brax:ant")) == {"hide", "horizon", "starts"}


def test_only_tasks_that_draw_are_drawable():
    assert isinstance(Recall(), Drawable) and not isinstance(Counter(horizon=1), Drawable)


@pytest.mark.usefixtures("registry")
def test_a_task_without_pictures_says_so_behind_gymnasium():
    tasks.register_task("counter", Counter)
    env = GymEnv("counter", horizon=3, render_mode="rgb_array")
    env.reset(seed=0)
    with pytest.raises(UserError, match="Counter draws no pictures"):
        env.render()


def test_only_long_tasks_are_staggered():
    stagger = {name: tasks.TASKS[name].stagger for name in OWN}
    assert [name for name, long in stagger.items() if long] == ["pointmass-goal", "pointmass-door", "masked-pendulum"]


@pytest.mark.parametrize(
    ("task", "dt"), [("recall", 1.0), ("masked-pendulum", 0.05), ("pointmass-goal", 0.6), ("gym:Pendulum-v1", 0.05)]
)
def test_a_task_says_how_long_a_step_takes(task, dt):
    assert tasks.make(task).spec.dt == pytest.approx(dt)


@pytest.mark.parametrize(("robot", "dt"), [("halfcheetah", 0.05), ("hopper", 0.008), ("ant", 0.05)])
def test_a_robot_steps_at_its_own_pace(robot, dt):
    assert tasks.make(robot, backend="gymnasium").spec.dt == pytest.approx(dt)


@pytest.mark.parametrize("said", [None, "soon", 0.0, -1.0, float("inf"), float("nan"), lambda: 0.1])
def test_what_cannot_be_the_length_of_a_step_is_not_taken_for_one(said):
    assert seconds(said) == 1.0
    assert seconds(jnp.float32(0.25)) == 0.25
