"""Heads: which logits go to which axis; off policy, what they bound, what they keep, and which noise they add."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from s2pg.distributions import NEVER, Categorical, Categoricals, ClippedNormal, TanhNormal
from s2pg.heads import (
    LOG_STD_RANGE,
    noisy_action_head,
    noisy_state_head,
    plain_action_head,
    squashed_action_head,
    squashed_state_head,
)
from s2pg.types import Box, Discrete, MultiDiscrete
from toys import shaken

SPACE = Box((-1.0, -3.0), (1.0, 5.0))
HIDDEN = np.array([0.5, -1.0, 2.0])
ETA = np.array([-0.97, 0.0, 0.3, 0.8])


def state_head(log_std=-1.5):
    """SAC's head for four numbers of z' behind a hidden layer of three, its weights random."""
    head = squashed_state_head(log_std, True)(4, 3, jax.random.key(0))
    return shaken(head, jax.random.key(1), 0.2)


# On policy -----------------------------------------------------------------------------------------------------------


def test_every_axis_of_a_discrete_action_has_logits_of_its_own():
    head = shaken(plain_action_head(MultiDiscrete((3, 1, 2)), 0.0)(3, jax.random.key(0)), jax.random.key(1), 1.0)
    logits, found = np.asarray(head.logits(jnp.asarray(HIDDEN))), head(jnp.asarray(HIDDEN))
    assert isinstance(found, Categoricals) and logits.shape == (6,)
    for axis, own in enumerate((logits[:3], logits[3:4], logits[4:])):
        np.testing.assert_array_equal(found.each.logits[axis, : own.size], own)
        assert np.all(found.each.logits[axis, own.size :] == NEVER)


def test_one_axis_is_as_a_discrete_action():
    alone, axes = (plain_action_head(s, 0.0)(3, jax.random.key(0)) for s in (Discrete(4), MultiDiscrete((4,))))
    one, many = alone(jnp.asarray(HIDDEN)), axes(jnp.asarray(HIDDEN))
    assert isinstance(one, Categorical)
    np.testing.assert_allclose(one.log_prob(jnp.array(2)), many.log_prob(jnp.array([2])), rtol=1e-6)
    np.testing.assert_allclose(one.entropy(), many.entropy(), rtol=1e-6)


# SAC: z' -------------------------------------------------------------------------------------------------------------


def test_without_noise_a_squashed_state_is_eta_but_for_a_thousandth():
    with jax.enable_x64():
        mode = state_head()(jnp.asarray(ETA), jnp.asarray(HIDDEN)).mode()
        np.testing.assert_allclose(mode, 0.999 * ETA, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(state_head()(jnp.asarray(ETA), jnp.asarray(HIDDEN)).mode(), 0.999 * ETA, atol=1e-6)


def test_a_value_that_is_kept_outlives_32_squashings():
    """A kernel that only keeps z, as a GRU with a closed gate does. With a plain tanh on top it would fade."""
    head = state_head()
    keep = jax.jit(lambda z: jax.lax.fori_loop(0, 32, lambda _, z: head(z, jnp.asarray(HIDDEN)).mode(), z))
    kept, faded = np.asarray(keep(jnp.asarray(ETA))), ETA
    for _ in range(32):
        faded = np.tanh(faded)
    np.testing.assert_allclose(kept, 0.999**32 * ETA, rtol=1e-4)
    assert np.all(np.abs(kept) >= 0.96 * np.abs(ETA))
    assert np.abs(faded).max() < 0.25


def test_the_density_of_a_squashed_state_is_that_of_the_change_of_variables():
    with jax.enable_x64():
        head = state_head()
        distribution = head(jnp.asarray(ETA), jnp.asarray(HIDDEN))
        assert isinstance(distribution, TanhNormal)
        log_std = -1.5 + HIDDEN @ np.asarray(head.log_std.weight) + np.asarray(head.log_std.bias)
        assert np.ptp(log_std) > 0.1, "the context should matter"
        value, log_prob = distribution.draw(jax.random.key(2))
        for z in (np.asarray(value), np.array([0.5, -0.999, 0.0, 0.9])):
            pre = scipy.stats.norm(np.arctanh(0.999 * ETA), np.exp(log_std)).logpdf(np.arctanh(z))
            expected = (pre - np.log1p(-(z**2))).sum()
            np.testing.assert_allclose(distribution.log_prob(jnp.asarray(z)), expected, rtol=1e-9)
        np.testing.assert_allclose(log_prob, distribution.log_prob(value), rtol=1e-9)


def test_squashed_states_stay_within_one_and_their_densities_and_slopes_are_finite():
    """At the bounds too, and beyond them, where a kernel that is no GRU may take eta."""
    head = state_head()
    keys = jax.random.split(jax.random.key(3), 2000)
    etas = jnp.array([[1.0, -1.0, 1.5, -1.0 - 1e-6], [0.999999, -0.5, 0.0, 0.2]])

    def draw(eta, hidden, key):
        value, log_prob = head(eta, hidden).draw(key)
        return log_prob, value

    every = jax.jit(jax.vmap(jax.value_and_grad(draw, (0, 1), has_aux=True), (None, None, 0)))
    for eta in etas:
        (log_prob, value), slopes = every(eta, jnp.asarray(HIDDEN), keys)
        assert np.abs(value).max() < 1
        assert np.isfinite(log_prob).all() and all(np.isfinite(slope).all() for slope in slopes)
        np.testing.assert_allclose(head(eta, jnp.asarray(HIDDEN)).mode(), 0.999 * np.clip(eta, -1, 1), atol=1e-5)


def test_eta_learns_from_what_the_drawn_state_is_worth():
    head = state_head(-3.0)
    value = lambda eta: jnp.sum(head(eta, jnp.asarray(HIDDEN)).draw(jax.random.key(0))[0])  # noqa: E731
    # Without noise it would be 0.999 everywhere; 5% of noise changes little of that where z' is not saturated.
    np.testing.assert_allclose(jax.grad(value)(jnp.asarray(ETA))[1:], 0.999, atol=0.2)


# SAC: a --------------------------------------------------------------------------------------------------------------


def test_a_squashed_action_has_mean_and_size_from_the_context():
    head = shaken(squashed_action_head(SPACE, -0.7)(3, jax.random.key(0)), jax.random.key(1))
    distribution = head(jnp.asarray(HIDDEN))
    out = HIDDEN @ np.asarray(head.last.weight) + np.asarray(head.last.bias)
    np.testing.assert_allclose(distribution.mode(), np.tanh(out[:2]), rtol=1e-5)
    np.testing.assert_allclose(distribution.pre.log_std, -0.7 + out[2:], rtol=1e-5)


@pytest.mark.parametrize("log_std", [-0.7, -1.5])
def test_squashed_heads_begin_near_the_size_asked_for_and_end_within_bounds(log_std):
    for head, arguments in (
        (squashed_action_head(SPACE, log_std)(3, jax.random.key(0)), ()),
        (squashed_state_head(log_std, True)(4, 3, jax.random.key(0)), (jnp.asarray(ETA),)),
    ):
        np.testing.assert_allclose(head(*arguments, jnp.asarray(HIDDEN)).pre.log_std, log_std, atol=0.1)
        wild = head(*arguments, jnp.asarray(1e6 * HIDDEN)).pre.log_std
        assert wild.min() >= LOG_STD_RANGE[0] and wild.max() <= LOG_STD_RANGE[1]
        assert {float(x) for x in wild} <= set(LOG_STD_RANGE)


# TD3 and DDPG --------------------------------------------------------------------------------------------------------


def test_a_noisy_action_is_a_tanh_with_noise_of_a_fixed_size():
    head = shaken(noisy_action_head(SPACE, math.log(0.1))(3, jax.random.key(0)), jax.random.key(1))
    distribution = head(jnp.asarray(HIDDEN))
    assert isinstance(distribution, ClippedNormal)
    np.testing.assert_allclose(distribution.std, 0.1, rtol=1e-12)
    expected = np.tanh(HIDDEN @ np.asarray(head.last.weight) + np.asarray(head.last.bias))
    np.testing.assert_allclose(distribution.mode(), expected, rtol=1e-5)


def test_a_noisy_state_is_eta_with_noise_of_a_fixed_size():
    head = noisy_state_head(math.log(0.05), True)(4, 3, jax.random.key(0))
    distribution = head(jnp.asarray(ETA), jnp.asarray(HIDDEN))
    np.testing.assert_array_equal(distribution.mode(), ETA.astype(np.float32))
    np.testing.assert_allclose(distribution.std, 0.05, rtol=1e-12)
    samples = np.asarray(jax.vmap(distribution.sample)(jax.random.split(jax.random.key(0), 20_000)))
    assert np.abs(samples).max() == 1.0  # eta_1 = -0.97 is within one standard deviation of its bound
    np.testing.assert_allclose(samples[:, 1:].std(axis=0), 0.05, rtol=4 / math.sqrt(2 * 20_000))
    np.testing.assert_allclose(samples[:, 1:].mean(axis=0), ETA[1:], atol=4 * 0.05 / math.sqrt(20_000))


def test_noise_of_a_fixed_size_is_not_learned():
    assert not jax.tree.leaves(noisy_state_head(-2.0, True)(4, 3, jax.random.key(0)))
    action = noisy_action_head(SPACE, -2.0)(3, jax.random.key(0))
    assert sorted(leaf.shape for leaf in jax.tree.leaves(action)) == [(2,), (3, 2)]
