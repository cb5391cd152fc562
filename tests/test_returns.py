"""Advantages and returns on numbers worked out by hand. Discount 1/2 and trace 1/2 keep them short."""

import jax
import jax.numpy as jnp
import numpy as np

from s2pg.returns import discounted, first_episode, gae

REWARD = jnp.array([1.0, 2.0, 4.0])
VALUE = jnp.array([2.0, 4.0, 8.0])
NEXT = jnp.array([4.0, 8.0, 16.0])
NEVER = jnp.zeros(3, bool)
AT_1 = jnp.array([False, True, False])


def advantages(terminated, truncated, trace=0.5, next_value=NEXT):
    return np.asarray(gae(REWARD, VALUE, next_value, terminated, truncated, 0.5, trace))


def test_a_running_episode_bootstraps_and_carries_the_trace():
    # delta = (1 + 2 - 2, 2 + 4 - 4, 4 + 8 - 8) = (1, 2, 4); A_2 = 4, A_1 = 2 + 4/4 = 3, A_0 = 1 + 3/4.
    np.testing.assert_allclose(advantages(NEVER, NEVER), [1.75, 3.0, 4.0])


def test_termination_has_no_value_beyond_and_cuts_the_trace():
    # delta_1 = 2 - 4 = -2 and A_1 = delta_1, A_0 = 1 - 2/4; step 2 is another episode.
    np.testing.assert_allclose(advantages(AT_1, NEVER), [0.5, -2.0, 4.0])


def test_truncation_keeps_the_value_beyond_and_cuts_the_trace():
    # delta_1 = 2 still, but A_1 takes nothing of A_2.
    np.testing.assert_allclose(advantages(NEVER, AT_1), [1.5, 2.0, 4.0])


def test_truncation_bootstraps_from_the_value_before_the_reset():
    before = NEXT.at[1].set(20.0)  # which is not VALUE[2], that of the next episode's start
    np.testing.assert_allclose(advantages(NEVER, AT_1, next_value=before), [1 + 8 / 4, 8.0, 4.0])


def test_without_a_trace_advantages_are_one_step_errors_and_with_a_full_one_returns():
    np.testing.assert_allclose(advantages(NEVER, NEVER, trace=0.0), [1.0, 2.0, 4.0])
    # 1 + 2/2 + 4/4 + 16/8 - 2, 2 + 4/2 + 16/4 - 4, 4 + 16/2 - 8.
    np.testing.assert_allclose(advantages(NEVER, NEVER, trace=1.0), [3.0, 4.0, 4.0])


def test_what_lies_beyond_a_termination_is_never_read():
    assert np.isfinite(advantages(AT_1, NEVER, next_value=NEXT.at[1].set(jnp.inf))).all()


def test_the_first_episode_includes_its_last_step_and_nothing_after():
    no = jnp.zeros(4, bool)
    np.testing.assert_array_equal(first_episode(no.at[1].set(True), no.at[3].set(True)), [1, 1, 0, 0])
    np.testing.assert_array_equal(first_episode(no, no.at[0].set(True)), [1, 0, 0, 0])
    np.testing.assert_array_equal(first_episode(no, no), [1, 1, 1, 1])


def test_rewards_are_discounted_from_the_first_step_on():
    np.testing.assert_allclose(discounted(REWARD, 0.5), [1.0, 1.0, 1.0])


def test_lanes_under_vmap_do_not_mix():
    stacked = jax.vmap(gae, in_axes=(None, None, None, 0, 0, None, None))(
        REWARD, VALUE, NEXT, jnp.stack([NEVER, AT_1]), jnp.stack([NEVER, NEVER]), 0.5, 0.5
    )
    np.testing.assert_allclose(stacked, [[1.75, 3.0, 4.0], [0.5, -2.0, 4.0]])
