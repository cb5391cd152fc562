"""The point-mass tasks, against numbers worked out by hand and returns measured on the authors' own files."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s2pg.envs.pointmass import DoorState, GoalState, PointMassDoor, PointMassGoal, _towards
from s2pg.errors import UserError

KEY = jax.random.key(0)
EAST, NORTH, WEST, SOUTH = -1.0, -0.5, 0.0, 0.5


def _goal(x, y, start=(75.0, 15.0), goal=(25.0, 130.0)):
    return GoalState(jnp.array([x, y]), jnp.array(start), jnp.array(goal))


def _door(x, y, doors=(30.0, 80.0)):
    return DoorState(jnp.array([x, y]), jnp.array(doors))


def _move(env, inner, heading):
    return env.move(inner, jnp.zeros((), jnp.int32), jnp.array([heading]), KEY)


def _returns(env, act, episodes):
    """Undiscounted returns of `act(inner, key)` over whole episodes."""

    def episode(key):
        def body(carry, key):
            state, alive = carry
            state, step = env.advance(state, act(state.inner, key), key)
            return (state, alive & ~step.terminated), jnp.where(alive, step.reward, 0.0)

        state, _ = env.reset(key)
        return jax.lax.scan(body, (state, jnp.array(True)), jax.random.split(key, env.horizon))[1].sum()

    return jax.jit(jax.vmap(episode))(jax.random.split(KEY, episodes))


def _random(inner, key):
    return jax.random.uniform(key, (1,), minval=-1.0, maxval=1.0)


@pytest.mark.parametrize(
    ("heading", "shift"), [(EAST, (1.8, 0)), (NORTH, (0, 1.8)), (WEST, (-1.8, 0)), (SOUTH, (0, -1.8)), (1.0, (1.8, 0))]
)
@pytest.mark.parametrize(("env", "state"), [(PointMassGoal(), _goal(75, 40)), (PointMassDoor(), _door(75, 40))])
def test_an_action_is_a_heading_and_moves_the_mass_by_1_8_units(env, state, heading, shift):
    moved, _, terminated = _move(env, state, heading)
    np.testing.assert_allclose(moved.position - state.position, np.array(shift), atol=2e-5)
    assert not terminated


def test_speed_scales_the_step():
    moved, _, _ = _move(PointMassGoal(speed=5.0), _goal(75, 40), EAST)
    np.testing.assert_allclose(moved.position, [78.0, 40.0], atol=2e-5)


def test_starts_and_goals_are_drawn_from_four_columns_each():
    states = jax.vmap(PointMassGoal().begin)(jax.random.split(KEY, 200))
    for points, height in ((states.start, 15.0), (states.goal, 130.0)):
        assert set(np.unique(points[:, 0])) == {25.0, 57.0, 88.0, 120.0}
        assert set(np.unique(points[:, 1])) == {height}
    assert len(np.unique(np.concatenate([states.start, states.goal], 1), axis=0)) == 16
    np.testing.assert_array_equal(states.position, states.start)


def test_goal_reward_decays_with_the_distance_after_the_step():
    _, reward, _ = _move(PointMassGoal(), _goal(25.0, 118.2), NORTH)  # arrives ten below the goal
    assert float(reward) == pytest.approx(np.exp(-1.0), abs=1e-5)


@pytest.mark.parametrize(
    ("x", "y", "heading", "clipped"),
    [(149, 40, EAST, (150, 40)), (1, 40, WEST, (0, 40)), (75, 149, NORTH, (75, 150)), (75, 1, SOUTH, (75, 0))],
)
def test_leaving_the_goal_field_clips_costs_two_and_terminates(x, y, heading, clipped):
    moved, reward, terminated = _move(PointMassGoal(), _goal(x, y), heading)
    np.testing.assert_allclose(moved.position, np.array(clipped), atol=2e-5)
    assert float(reward) == -2.0
    assert terminated


def test_the_goal_is_seen_within_thirty_units_of_the_start():
    env = PointMassGoal()
    near, far = (env.views(_goal(75.0, y), jnp.array(9)) for y in (45.0, 45.1))
    np.testing.assert_allclose(near["policy"], [0.0, -0.4, -2 / 3, 11 / 15, 1.0], atol=1e-6)
    np.testing.assert_allclose(near["critic"], [0.0, -0.4, -2 / 3, 11 / 15, 1.0, 0.0, -0.8], atol=1e-6)
    np.testing.assert_allclose(far["policy"][2:], [0.0, 0.0, 0.0])
    np.testing.assert_allclose(far["critic"][2:5], [-2 / 3, 11 / 15, 0.0], atol=1e-6)


def test_the_doors_are_seen_within_twenty_units_of_the_start():
    env = PointMassDoor()
    near, far = (env.views(_door(75.0, y, doors=(10.0, 100.0)), jnp.array(9)) for y in (30.0, 30.1))
    np.testing.assert_allclose(near["policy"], [0.0, -0.6, -1.0, 1.0, 1.0], atol=1e-6)
    np.testing.assert_allclose(far["policy"][2:], [0.0, 0.0, 0.0])
    np.testing.assert_allclose(far["critic"][2:], [-1.0, 1.0, 0.0], atol=1e-6)


def test_door_edges_are_uniform_and_independent():
    doors = np.asarray(jax.vmap(PointMassDoor().begin)(jax.random.split(KEY, 500)).doors)
    assert doors.min() > 10 and doors.max() < 100
    np.testing.assert_allclose(doors.mean(0), 55, atol=5)
    assert abs(np.corrcoef(doors.T)[0, 1]) < 0.15


@pytest.mark.parametrize(
    ("x", "y", "touches"),
    [
        (50, 60, False),  # the middle of the lower door
        (32.1, 60, False),
        (31.9, 60, True),  # the mass has a radius of two
        (67.9, 60, False),
        (68.1, 60, True),
        (100, 60, True),
        (100, 57.4, False),
        (100, 57.6, True),
        (100, 62.6, False),
        (100, 90, False),  # the middle of the upper door
        (50, 90, True),
    ],
)
def test_a_wall_is_five_thick_and_open_only_at_its_door(x, y, touches):
    assert bool(PointMassDoor().touches(_door(x, y))) is touches


def test_touching_a_wall_costs_two_terminates_and_stops_the_mass_there():
    moved, reward, terminated = _move(PointMassDoor(), _door(100.0, 56.8), NORTH)  # 57.4 is free, 58.0 is not
    np.testing.assert_allclose(moved.position, [100.0, 58.0], atol=2e-5)
    assert float(reward) == -2.0 and terminated


def test_the_last_substep_of_an_action_can_touch_a_wall():
    _, reward, terminated = _move(PointMassDoor(), _door(100.0, 56.0), NORTH)  # 56.6, 57.2, 57.8
    assert float(reward) == -2.0 and terminated


@pytest.mark.parametrize("speed", [3.0, 25.0])
def test_no_heading_jumps_a_wall(speed):
    env = PointMassDoor(speed=speed)
    heights = jnp.linspace(40.0, 57.4, 200)
    moved, _, terminated = jax.vmap(lambda y: _move(env, DoorState(jnp.stack([100.0, y]), jnp.full(2, 30.0)), NORTH))(
        heights
    )
    assert np.all(np.asarray(terminated) | (np.asarray(moved.position)[:, 1] < 57.5))


def test_the_border_of_the_door_field_only_clips():
    moved, reward, terminated = _move(PointMassDoor(), _door(149.0, 140.0), EAST)
    np.testing.assert_allclose(moved.position, [150.0, 140.0], atol=2e-5)
    assert float(reward) == pytest.approx(10 * np.exp(-0.03 * 75), abs=1e-4)
    assert not terminated


def test_scripted_and_random_returns_on_the_goal_task_match_the_authors():
    env = PointMassGoal()
    assert float(_returns(env, lambda inner, key: env.scripted(inner), 64).mean()) == pytest.approx(126, abs=2)
    assert float(_returns(env, _random, 512).mean()) == pytest.approx(-0.9, abs=0.25)


def test_scripted_hovering_and_random_returns_on_the_door_task_match_the_authors():
    env = PointMassDoor()
    scripted = _returns(env, lambda inner, key: env.scripted(inner), 512)
    assert float(scripted.mean()) == pytest.approx(1297, abs=30)
    assert float(scripted.min()) > 800  # it never runs into a wall
    assert float(_returns(env, _random, 512).mean()) == pytest.approx(46, abs=4)
    hovering = _returns(env, lambda inner, key: _towards(inner.position, jnp.array([75.0, 50.0])), 2)
    assert float(hovering.mean()) == pytest.approx(130, abs=1)


@pytest.mark.parametrize("env", [PointMassGoal, PointMassDoor])
@pytest.mark.parametrize(
    ("options", "word"),
    [({"horizon": 0}, "horizon"), ({"speed": 0.0}, "speed"), ({"speed": 25.1}, "speed"), ({"speed": np.nan}, "speed")],
)
def test_impossible_options_are_refused_in_one_line(env, options, word):
    with pytest.raises(UserError, match=word) as error:
        env(**options)
    assert "\n" not in str(error.value)
