"""A session does what evaluation does, one raw observation at a time."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import s2pg
from s2pg.errors import UserError
from s2pg.evaluate import compare, evaluate, film
from s2pg.normalise import merge
from s2pg.runs.session import LoadedPolicy
from s2pg.types import CRITIC, POLICY
from toys import resolve

HYPER = {"lanes": 2, "steps": 8, "size": 4, "width": 4}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of a few updates on a pendulum of short episodes."""
    env = s2pg.make("masked-pendulum", horizon=12)
    hyper = HYPER | {"epochs": 1, "minibatches": 2, "learning_rate": 0.05}
    return s2pg.train("ppo", env, hyper=hyper, steps=64, seeds=(2, 5), episodes=2, out=tmp_path_factory.mktemp("a"))


def untrained(env, memory):
    """A policy with drawn parameters and statistics of drawn observations."""
    _, algorithm = resolve("ppo", env, memory=memory, hyper=HYPER)
    key = jax.random.key(3)
    policy = algorithm.init_policy(env.spec, key=key)
    views = {name: 2.0 * jax.random.normal(key, (50, size)) + 0.5 for name, size in env.spec.views.items()}
    seen = policy._replace(normaliser=merge(policy.normaliser, views))
    return LoadedPolicy(algorithm.actor(seen, explore=False), env.spec)


def by_hand(env, session, key, dicts=False):
    """One episode played as `film` plays it, but through a session: (encoded actions, z, rewards)."""
    start_key, run_key = jax.random.split(key)
    state, step = jax.jit(env.reset)(start_key)
    advance = jax.jit(env.advance)
    kept = []
    for each in jax.random.split(run_key, env.horizon):
        own = session(step.obs if dicts else step.obs[POLICY])
        policy_units = own / 2.0 if own.dtype == np.float32 else own  # the pendulum's bounds are -2 and 2
        state, step = advance(state, jnp.asarray(policy_units), jax.random.split(each)[1])
        kept.append((state.previous, session.z, step.reward))
    return [jax.tree.map(lambda *leaves: np.stack(leaves), *part) for part in zip(*kept, strict=True)]


def assert_as_filmed(env, policy, session, dicts=False):
    key = jax.random.key(11)
    shown = film(env, policy.actor, key)
    for _ in range(2):  # a second episode after a reset is like the first
        actions, z, reward = by_hand(env, session, key, dicts)
        np.testing.assert_allclose(actions, shown.env_state.previous, atol=1e-5)
        np.testing.assert_allclose(reward, shown.reward, atol=1e-4)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), z, shown.z)
        session.reset()
    return actions


def test_a_trained_policy_acts_as_in_evaluation(trained):
    env, policy = trained.env(), s2pg.load(trained.path, seed=5)
    actions = assert_as_filmed(env, policy, policy.session())
    assert np.ptp(actions) > 0
    other = by_hand(env, s2pg.load(trained.path).session(), jax.random.key(11))[0]
    assert np.abs(actions - other).max() > 1e-3  # the first seed's is another policy


@pytest.mark.parametrize(
    ("memory", "task"),
    [("window-3", "masked-pendulum"), ("none", "recall"), ("oracle", "masked-pendulum"), ("bptt-4", "recall"),
     ("s2pg-pathwise", "masked-pendulum")],
)  # fmt: skip
def test_so_does_every_kind_of_memory(task, memory):
    env = s2pg.make("recall", k=4) if task == "recall" else s2pg.make(task, horizon=6)
    policy = untrained(env, memory)
    assert_as_filmed(env, policy, policy.session(), dicts=True)


def test_reset_forgets(trained):
    session = s2pg.load(trained.path).session()
    first, initial = session([0.3, 0.9]), trained.policy().actor.initial()
    moved = session.z
    second = session([0.3, 0.9])
    assert (first != second).all() and (moved != initial).any()
    session.reset()
    np.testing.assert_array_equal(session.z, initial)
    assert session([0.3, 0.9]) == first
    np.testing.assert_array_equal(session.z, moved)
    session.reset()
    session.z = session.z + 5.0  # whatever is left there: the first step of an episode begins at z_0
    assert session([0.3, 0.9]) == first


def test_dict_and_vector_are_the_same_to_it(trained):
    sessions = [s2pg.load(trained.path).session() for _ in range(3)]
    for angle in (0.1, 0.4, 2.0):
        tip = np.asarray([np.cos(angle), np.sin(angle)])
        a, b, c = (act(obs) for act, obs in zip(sessions, (tip, {POLICY: tip, "more": 1}, tip.tolist()), strict=True))
        assert a == b == c and a.shape == (1,) and a.dtype == np.float32


def test_observations_that_do_not_fit_are_refused_in_one_line(trained):
    session = s2pg.load(trained.path).session()
    for wrong, message in (
        ([1.0, 2.0, 3.0], r"view 'policy' has shape \(3,\), this policy reads \(2,\) or \(n, 2\)"),
        ({"critic": [1.0, 2.0, 3.0]}, "this policy reads the view 'policy'"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            session(wrong)
        assert "\n" not in str(caught.value)
    session([1.0, 0.0])  # nothing happened in between


def test_the_oracle_asks_for_the_full_state():
    env = s2pg.make("recall", k=4)
    session = untrained(env, "oracle").session()
    with pytest.raises(UserError, match="reads the view 'critic'"):
        session([0.0, 1.0])
    assert session({CRITIC: [1.0, 0.0]}) in (0, 1)


def test_exploring_is_random_but_repeatable(trained):
    policy = s2pg.load(trained.path)

    def play(seed, explore=True):
        session = policy.session(explore=explore, seed=seed)
        return np.stack([session([1.0, 0.0]) for _ in range(20)])

    a, b, c = play(1), play(1), play(2)
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()
    np.testing.assert_array_equal(play(1, explore=False), play(2, explore=False))
    assert (a != play(1, explore=False)).any()


def test_actions_come_in_the_environments_units_within_its_bounds():
    env = s2pg.make("masked-pendulum")
    session = untrained(env, "s2pg").session(explore=True)
    actions = np.stack([session(5 * np.sin([t, 2.0 * t])) for t in range(60)])
    assert actions.min() >= -2.0 and actions.max() <= 2.0
    assert np.abs(actions).max() > 1.0  # more than policy units would reach


def test_what_was_hidden_in_training_is_not_looked_at(tmp_path):
    task = s2pg.make("gym:Pendulum-v1", hide=2, horizon=10)
    hyper = HYPER | {"epochs": 1, "minibatches": 2, "width": 16}
    s2pg.train("ppo", task, memory="none", hyper=hyper, steps=16, episodes=1, out=tmp_path)
    session = s2pg.load(tmp_path).session()
    assert session([1.0, 0.0, 0.0]) == session([1.0, 0.0, 7.0]) != session([0.0, 1.0, 0.0])


def test_loading_names_what_is_missing(trained, tmp_path):
    with pytest.raises(UserError, match="has no seed 3; it has 2, 5"):
        s2pg.load(trained.path, seed=3)
    with pytest.raises(UserError, match="is no run folder"):
        s2pg.load(tmp_path)
    with pytest.raises(UserError, match="is no run folder"):
        s2pg.load(tmp_path / "nowhere")
    (tmp_path / "config.json").write_bytes((trained.path / "config.json").read_bytes())
    with pytest.raises(UserError, match=r"seed-2\.npz is not there: the run was stopped"):
        s2pg.load(tmp_path)
    (tmp_path / "config.json").write_text('{"schema": 99}')
    with pytest.raises(UserError, match="has schema 99"):
        s2pg.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        s2pg.load(tmp_path)


def test_deterministic_evaluation_depends_on_no_key(trained):
    class Fixed(type(trained.env())):
        def begin(self, key):
            return super().begin(jax.random.key(0))

    env, policy = Fixed(horizon=12), trained.policy()
    returns = jax.jit(lambda key: evaluate(env, policy.actor, 3, key).returns)
    a, b = returns(jax.random.key(1)), returns(jax.random.key(2))
    np.testing.assert_array_equal(a, b)
    assert len(set(np.asarray(a).tolist())) == 1
    exploring = trained.policy(explore=True).actor
    assert len(set(np.asarray(jax.jit(lambda: evaluate(env, exploring, 3, jax.random.key(1)).returns)()).tolist())) == 3


def test_an_episode_is_as_long_as_it_lasted(trained):
    class Short(type(trained.env())):
        def move(self, inner, elapsed, action, key):
            return super().move(inner, elapsed, action, key)[0], jnp.ones(()), elapsed == 3

    found = jax.jit(lambda: evaluate(Short(horizon=12), trained.policy().actor, 3, jax.random.key(1)))()
    assert found.lengths.tolist() == found.returns.tolist() == [4, 4, 4]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(2, start=5),
        spaces.MultiDiscrete([[3, 1], [2, 5]], start=[[0, 1], [-2, 7]]),
        spaces.MultiBinary(3),
        spaces.Box(-2.0, 3.0, (2, 2)),
        spaces.Box(0.0, 0.1),
    ],
)
def test_actions_are_of_the_environments_own_space(space):
    class World(gymnasium.Env):
        observation_space, action_space = spaces.Box(-1.0, 1.0), space

    gymnasium.register("World-v0", World)
    try:
        task = s2pg.make("gym:World-v0")
        session = untrained(task, "s2pg").session(explore=True)
        for _ in range(20):
            action = session(np.ones(1))
            assert space.contains(int(action) if isinstance(space, spaces.Discrete) else action)
    finally:
        del gymnasium.registry["World-v0"]


def test_actors_compared_side_by_side_play_as_each_does_alone():
    env = s2pg.make("masked-pendulum", horizon=6)
    _, built = resolve("ppo", env, hyper={"size": 4, "width": 4})
    policy = built.init_policy(env.spec, key=jax.random.key(0))
    actors, key = [built.actor(policy, explore) for explore in (False, True)], jax.random.key(5)
    both = jax.jit(lambda: compare(env, actors, 3, key).returns)()
    alone = jax.jit(lambda: jnp.stack([evaluate(env, actor, 3, key).returns for actor in actors]))()
    np.testing.assert_allclose(both, alone, rtol=1e-5)
    assert not np.allclose(both[0], both[1])


# Many at once, and as a function -------------------------------------------------------------------------------------


def test_lanes_of_a_session_are_sessions_side_by_side(trained):
    policy = s2pg.load(trained.path)
    many, single = policy.session(lanes=3), [policy.session() for _ in range(3)]
    seen = np.random.default_rng(0).normal(size=(6, 3, 2))
    for t, obs in enumerate(seen):
        if t == 4:
            many.reset(np.array([False, True, False]))
            single[1].reset()
        actions = many(obs)
        assert actions.shape == (3, 1)
        np.testing.assert_allclose(actions, [act(each) for act, each in zip(single, obs, strict=True)], atol=1e-6)
        np.testing.assert_allclose(many.z, [each.z for each in single], atol=1e-6)
    for wrong in (seen[0, :2], seen[0, 0]):
        with pytest.raises(UserError, match="has 3 lanes, and was called with"):
            many(wrong)
    with pytest.raises(UserError, match=r"lanes has shape \(2,\), these observations need \(3,\)"):
        many.reset(np.zeros(2, bool))
    with pytest.raises(UserError, match="1 lane or more, not 0"):
        policy.session(lanes=0)


def test_sessions_of_a_policy_share_one_compiled_program(trained):
    policy = s2pg.load(trained.path)
    first, second = policy.session(), policy.session()
    actions = first([0.3, 0.9]), second([0.3, 0.9])
    assert policy.decide._cache_size() == 1 and actions[0] == actions[1]
    actions[0][0] = 7.0  # the caller's own


def test_as_a_function_a_policy_runs_in_loops_of_jax(trained):
    policy, session = s2pg.load(trained.path), s2pg.load(trained.path).session()
    step, seen = policy.as_function(), jnp.asarray(np.random.default_rng(1).normal(size=(8, 2)), jnp.float32)
    first = jnp.arange(8) % 5 == 0  # a second episode after five steps

    def one(state, at):
        action, state = step(at[0], state, at[1])
        return state, action

    nothing = jnp.full(policy.flat.initial.shape, jnp.nan)
    _, actions = jax.jit(lambda: jax.lax.scan(one, nothing, (seen, first)))()
    for obs, begins, action in zip(seen, first, actions, strict=True):
        if begins:
            session.reset()
        np.testing.assert_allclose(action, session(obs), atol=1e-6)


# Stable-Baselines3's way ---------------------------------------------------------------------------------------------


class ManyPendulums:
    """Environments side by side as Stable-Baselines3 steps them: four results, and resets by themselves."""

    def __init__(self, n):
        self.envs = [gymnasium.make("s2pg/MaskedPendulum-v0", horizon=5 + i) for i in range(n)]

    def reset(self):
        return np.stack([env.reset(seed=i)[0] for i, env in enumerate(self.envs)])

    def step(self, actions):
        rows = []
        for env, action in zip(self.envs, actions, strict=True):
            obs, reward, terminated, truncated, info = env.step(action)
            done = terminated or truncated
            rows.append((env.reset(seed=99)[0] if done else obs, reward, done, info))
        obs, rewards, dones, infos = zip(*rows, strict=True)
        return np.stack(obs), np.array(rewards), np.array(dones), infos


def evaluated(model, env, n, steps):
    """The loop of their `evaluate_policy`, as far as it calls the model: returns of the episodes that ended."""
    observations, states, starts = env.reset(), None, np.ones((n,), dtype=bool)
    running, returns = np.zeros(n), []
    for _ in range(steps):
        actions, states = model.predict(observations, state=states, episode_start=starts, deterministic=True)
        observations, rewards, dones, _ = env.step(actions)
        running, starts = running + rewards, dones
        returns += [(i, running[i]) for i in np.flatnonzero(dones)]
        running[dones] = 0.0
    return returns


def test_predict_is_called_as_stable_baselines_calls_it(trained):
    policy = s2pg.load(trained.path)
    found = evaluated(policy, ManyPendulums(3), 3, 13)
    assert len(found) == 5

    def alone(i, seeds):
        env, session, returns = ManyPendulums(3).envs[i], policy.session(), []
        for seed in seeds:
            session.reset()
            (obs, _), over, total = env.reset(seed=seed), False, 0.0
            while not over:
                obs, reward, terminated, truncated, _ = env.step(session(obs))
                total, over = total + reward, terminated or truncated
            returns.append(total)
        return returns

    for i in range(3):
        own = [score for lane, score in found if lane == i]
        np.testing.assert_allclose(own, alone(i, [i, 99])[: len(own)], rtol=1e-5)


def test_predict_takes_one_observation_or_many(trained):
    policy = s2pg.load(trained.path)
    action, state = policy.predict([0.3, 0.9])
    assert action.shape == (1,) and state.shape == policy.flat.initial.shape
    np.testing.assert_array_equal(action, policy.session()([0.3, 0.9]))
    later, _ = policy.predict([0.3, 0.9], state)
    again, _ = policy.predict([0.3, 0.9], state, episode_start=True)
    assert later != action and again == action
    many, states = policy.predict({POLICY: [[0.3, 0.9], [0.1, 0.2]]})
    assert many.shape == (2, 1) and states.shape == (2, state.size)
    np.testing.assert_allclose(many[0], action, atol=1e-6)
    mixed, _ = policy.predict([[0.3, 0.9], [0.3, 0.9]], np.stack([state, state]), np.array([True, False]))
    np.testing.assert_allclose(mixed[:, 0], [action[0], later[0]], atol=1e-6)
    drawn = [policy.predict([0.3, 0.9], deterministic=False)[0] for _ in range(3)]
    assert len({float(each[0]) for each in drawn}) == 3


def test_predict_names_the_shape_it_expects(trained):
    policy = s2pg.load(trained.path)
    two, state = np.zeros((2, 2)), np.zeros((2, policy.flat.initial.size))
    for given, message in (
        ((np.zeros((4, 3)),), r"view 'policy' has shape \(4, 3\), this policy reads \(2,\) or \(n, 2\)"),
        (
            (two, state[:1]),
            rf"state has shape \(1, {state.shape[1]}\), these observations need \(2, {state.shape[1]}\)",
        ),
        ((two, state, np.zeros(3)), r"episode_start has shape \(3,\), these observations need \(2,\)"),
        (({CRITIC: two},), "reads the view 'policy'"),
    ):
        with pytest.raises(UserError, match=message):
            policy.predict(*given)
