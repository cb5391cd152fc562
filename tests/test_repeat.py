"""Tasks of cards: what is shown, what is asked, and what an episode is worth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s2pg.envs import tasks
from s2pg.envs.repeat import CARDS, SUITS, RepeatFirst, RepeatPrevious, remaining
from s2pg.errors import UserError

KEY = jax.random.key(0)


def play(env, answer):
    """(rewards, ends, policy views, critic views, deck) of an episode with answers from (deck, elapsed)."""
    state, step = jax.jit(env.reset)(KEY)
    advance, rewards, ends, seen, known = jax.jit(env.advance), [], [], [], []
    while not ends or not ends[-1]:
        seen.append(np.asarray(step.obs["policy"]))
        known.append(np.asarray(step.obs["critic"]))
        state, step = advance(state, answer(state.inner, state.elapsed), KEY)
        rewards.append(float(step.reward))
        ends.append(bool(step.terminated))
    assert not bool(step.truncated)
    return np.array(rewards), np.array(ends), np.stack(seen), np.stack(known), np.asarray(state.inner)


@pytest.mark.parametrize("env", [RepeatPrevious(), RepeatPrevious(k=1), RepeatPrevious(k=3, decks=2), RepeatFirst()])
def test_a_perfect_episode_is_worth_one_and_all_wrong_minus_one(env):
    for wrong, worth in ((0, 1.0), (1, -1.0)):
        rewards, ends, seen, _, deck = play(env, lambda deck, t, wrong=wrong: (env.scripted(deck, t) + wrong) % SUITS)
        np.testing.assert_allclose(rewards.sum(), worth, rtol=1e-5)
    assert len(ends) == env.horizon == len(deck) - 1 and ends.sum() == 1
    np.testing.assert_array_equal(seen.argmax(1), deck[:-1])
    np.testing.assert_array_equal(np.bincount(deck), [len(deck) // SUITS] * SUITS)


def test_the_card_asked_for_is_k_minus_one_steps_old_and_nothing_counts_before_there_is_one():
    env = RepeatPrevious(k=4)
    rewards, _, _, known, deck = play(env, lambda deck, t: deck[jnp.maximum(t - 3, 0)])
    np.testing.assert_array_equal(rewards[:3], 0.0)
    np.testing.assert_allclose(rewards[3:], 1 / (CARDS - 4), rtol=1e-6)
    # What the critic sees holds the answer: the oldest of the last four.
    np.testing.assert_array_equal(known[3:, 12:16].argmax(1), deck[:-4])
    np.testing.assert_array_equal(known[0, 4:16], 0.0)


def test_shares_of_suits_left_are_those_of_the_deck():
    deck = jnp.array([0, 0, 1, 2, 3, 1, 2, 3])
    np.testing.assert_allclose(remaining(deck, jnp.asarray(2)), [0.0, 0.5, 1.0, 1.0])
    np.testing.assert_allclose(remaining(deck, jnp.asarray(7)), 0.0, atol=1e-6)


def test_first_cards_are_fair_and_only_the_critic_keeps_seeing_them():
    env = RepeatFirst()
    decks = jax.vmap(env.begin)(jax.random.split(KEY, 2000))
    np.testing.assert_allclose(np.bincount(np.asarray(decks[:, 0])) / 2000, 0.25, atol=0.05)
    _, _, seen, known, deck = play(env, lambda deck, t: deck[0])
    assert (known[:, :4].argmax(1) == deck[0]).all() and (seen[1:].argmax(1) != deck[0]).any()
    assert "previous_action" not in env.spec.views  # in which the answer could be kept without a memory


def test_they_are_tasks_with_options():
    assert tasks.make("repeat-previous", k="3") == RepeatPrevious(k=3)
    assert tasks.make("repeat-first", decks=2).horizon == 103
    with pytest.raises(UserError, match=r"^k of repeat-previous must be less than the 52 cards, not 52$"):
        tasks.make("repeat-previous", k=52)
    with pytest.raises(UserError, match=r"^decks of repeat-first must be 1 or more, not 0$"):
        tasks.make("repeat-first", decks=0)
