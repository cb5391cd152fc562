"""Running statistics against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np

from s2pg.normalise import CLIP, initial, merge, normalise
from s2pg.types import CRITIC, POLICY, PREVIOUS_ACTION

VIEWS = {POLICY: 3, CRITIC: 2, PREVIOUS_ACTION: 2}


def batch(seed: int, *lead: int) -> dict:
    random = np.random.default_rng(seed)
    return {
        name: jnp.asarray(seed + (1 + seed) * random.normal(size=(*lead, n)), jnp.float32) for name, n in VIEWS.items()
    }


def seen_by(stats: dict, rows: dict) -> dict:
    return jax.vmap(normalise, in_axes=(None, 0))(stats, rows)


def test_merged_statistics_are_those_of_all_batches_together():
    batches = [batch(0, 4, 5), batch(1, 7), batch(3, 2, 3, 2)]
    stats = initial(VIEWS)
    for each in batches:
        stats = jax.jit(merge)(stats, each)
    for name, one in stats.items():
        rows = np.concatenate([np.asarray(each[name]).reshape(-1, VIEWS[name]) for each in batches])
        assert float(one.number) == len(rows)
        np.testing.assert_allclose(one.mean, rows.mean(0), rtol=1e-5)
        np.testing.assert_allclose(one.squares / one.number, rows.var(0), rtol=1e-5)


def test_a_batch_normalised_by_its_own_statistics_has_mean_0_and_deviation_1():
    rows = batch(2, 500)
    seen = seen_by(merge(initial(VIEWS), rows), rows)
    for name in (POLICY, CRITIC):
        np.testing.assert_allclose(seen[name].mean(0), np.zeros(VIEWS[name]), atol=1e-5)
        np.testing.assert_allclose(seen[name].std(0), np.ones(VIEWS[name]), atol=1e-5)


def test_before_any_data_observations_pass_as_they_are_up_to_the_clip():
    obs = {
        POLICY: jnp.array([0.1, -7.0, 9.99]),
        CRITIC: jnp.array([1e6, -1e6]),
        PREVIOUS_ACTION: jnp.array([20.0, 0.0]),
    }
    seen = normalise(initial(VIEWS), obs)
    np.testing.assert_array_equal(seen[POLICY], obs[POLICY])
    np.testing.assert_array_equal(seen[CRITIC], [CLIP, -CLIP])


def test_the_previous_action_is_never_touched():
    rows = batch(2, 9)
    stats = merge(initial(VIEWS), rows)
    assert PREVIOUS_ACTION not in stats
    np.testing.assert_array_equal(seen_by(stats, rows)[PREVIOUS_ACTION], rows[PREVIOUS_ACTION])


def test_a_constant_entry_becomes_zero_and_a_surprise_is_clipped():
    rows = {name: jnp.full((6, n), 0.3) for name, n in VIEWS.items()}
    stats = merge(initial(VIEWS), rows)
    np.testing.assert_allclose(seen_by(stats, rows)[POLICY], np.zeros((6, 3)), atol=1e-3)
    surprise = rows | {POLICY: jnp.full((6, 3), 5.0)}
    np.testing.assert_array_equal(seen_by(stats, surprise)[POLICY], np.full((6, 3), CLIP))


def test_without_views_nothing_is_kept_and_nothing_changes():
    rows = batch(2, 9)
    assert merge(initial({}), rows) == {}
    np.testing.assert_array_equal(normalise({}, rows)[POLICY], rows[POLICY])


def test_a_batch_counts_by_its_weight_and_with_none_the_statistics_rest():
    stats = merge(initial({"policy": 1}), {"policy": jnp.array([[1.0], [3.0]])})
    rest = merge(stats, {"policy": jnp.array([[50.0]])}, 0.0)
    for before, after in zip(stats["policy"], rest["policy"], strict=True):
        np.testing.assert_array_equal(before, after)
    half = merge(stats, {"policy": jnp.array([[4.0], [8.0]])}, 0.5)["policy"]  # mean (1 + 3 + 2 + 4) / 3
    np.testing.assert_allclose(half.number, 3.0)
    np.testing.assert_allclose(half.mean, [10 / 3], rtol=1e-6)
    np.testing.assert_allclose(half.squares, [1 + 9 + 8 + 32 - 3 * (10 / 3) ** 2], rtol=1e-5)
