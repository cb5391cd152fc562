"""Densities against SciPy, against numbers worked out by hand, and at the edges where float32 gives up."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from s2pg.distributions import NEVER, Categorical, Categoricals, ClippedNormal, Normal, PointMass, TanhNormal

MEAN, LOG_STD = np.array([0.3, -1.2]), np.array([-0.5, 0.4])


def normal() -> Normal:
    return Normal(jnp.asarray(MEAN), jnp.asarray(LOG_STD))


def draws(distribution, number: int = 20_000):
    return jax.vmap(distribution.sample)(jax.random.split(jax.random.key(0), number))


def test_normal_agrees_with_scipy():
    value = np.array([0.9, -2.0])
    reference = scipy.stats.norm(MEAN, np.exp(LOG_STD))
    with jax.enable_x64():
        np.testing.assert_allclose(normal().log_prob(jnp.asarray(value)), reference.logpdf(value).sum(), rtol=1e-13)
        np.testing.assert_allclose(normal().entropy(), reference.entropy().sum(), rtol=1e-13)
    np.testing.assert_array_equal(normal().mode(), MEAN.astype(np.float32))


def test_normal_samples_have_its_moments():
    samples = np.asarray(draws(normal()))
    std = np.exp(LOG_STD)
    assert np.all(np.abs(samples.mean(0) - MEAN) < 4 * std / np.sqrt(len(samples)))
    assert np.all(np.abs(samples.std(0) / std - 1) < 4 / np.sqrt(2 * len(samples)))
    assert abs(np.corrcoef(samples.T)[0, 1]) < 4 / np.sqrt(len(samples))


def exact_tanh_log_prob(pre: np.ndarray) -> float:
    """In float64 and by another formula: 1 - tanh^2 = 4 e^{-2|x|} / (1 + e^{-2|x|})^2."""
    slope = np.log(4) - 2 * np.abs(pre) - 2 * np.log1p(np.exp(-2 * np.abs(pre)))
    return float((scipy.stats.norm(MEAN, np.exp(LOG_STD)).logpdf(pre) - slope).sum())


@pytest.mark.parametrize("pre", [(0.0, 1e-3), (0.5, -2.0), (-3.0, 7.0), (20.0, -20.0), (50.0, -50.0)])
def test_tanh_normal_is_exact_from_the_value_before_squashing_even_at_saturation(pre):
    value = np.array(pre)
    got = TanhNormal(normal()).log_prob_pre(jnp.asarray(value))
    np.testing.assert_allclose(got, exact_tanh_log_prob(value), rtol=1e-5)
    slope = jax.grad(lambda x: TanhNormal(normal()).log_prob_pre(x))(jnp.asarray(value))
    assert np.isfinite(slope).all()
    with jax.enable_x64():
        got = TanhNormal(normal()).log_prob_pre(jnp.asarray(value))
        np.testing.assert_allclose(got, exact_tanh_log_prob(value), rtol=1e-13)


def test_tanh_normal_is_finite_at_the_bounds_and_right_inside():
    distribution = TanhNormal(normal())
    assert np.isfinite(distribution.log_prob(jnp.array([1.0, -1.0])))
    value = np.array([0.7, -0.2])
    np.testing.assert_allclose(
        distribution.log_prob(jnp.asarray(value)), exact_tanh_log_prob(np.arctanh(value)), rtol=1e-5
    )


def test_tanh_normal_integrates_to_one_and_maps_its_mode():
    with jax.enable_x64():
        one = TanhNormal(Normal(jnp.array([0.4]), jnp.array([-0.3])))
        grid = jnp.linspace(-1, 1, 20_001)[1:-1]
        density = jnp.exp(jax.vmap(lambda x: one.log_prob(x[None]))(grid))
        assert abs(float(jnp.sum(density) * 1e-4) - 1) < 1e-6
        np.testing.assert_allclose(one.mode(), np.tanh([0.4]))
    samples = draws(TanhNormal(normal()))
    assert np.abs(np.median(samples, axis=0) - np.tanh(MEAN)).max() < 0.02


@pytest.mark.parametrize("log_std", [-2.0, -0.5, 0.3])
def test_tanh_normal_entropy_is_that_of_its_samples(log_std):
    distribution = TanhNormal(Normal(jnp.array([0.3, -0.8]), jnp.full(2, log_std)))
    pre = jax.vmap(distribution.sample_pre)(jax.random.split(jax.random.key(1), 50_000))
    surprise = -np.asarray(jax.vmap(distribution.log_prob_pre)(pre))
    error = surprise.std() / np.sqrt(len(surprise))
    assert abs(float(distribution.entropy()) - surprise.mean()) < 4 * error


# Clipped normals -----------------------------------------------------------------------------------------------------

CENTRES = np.array([0.3, -0.95, 0.0])


def clipped(std: float = 0.2) -> ClippedNormal:
    return ClippedNormal(jnp.asarray(CENTRES), std)


def test_clipped_normal_has_the_normals_density_inside_its_bounds_and_the_tails_probability_at_them():
    reference = scipy.stats.norm(CENTRES, 0.2)
    with jax.enable_x64():
        inside = np.array([-0.99, 0.4, 0.7])
        np.testing.assert_allclose(clipped().log_prob(jnp.asarray(inside)), reference.logpdf(inside).sum(), rtol=1e-12)
        for value in ([1.0, -1.0, 1.0], [-1.0, 1.0, -1.0]):
            expected = np.where(np.array(value) > 0, reference.logsf(value), reference.logcdf(value)).sum()
            np.testing.assert_allclose(clipped().log_prob(jnp.asarray(value)), expected, rtol=1e-10)
        mixed = [1.0, 0.4, -1.0]
        expected = reference.logsf(mixed)[0] + reference.logpdf(mixed)[1] + reference.logcdf(mixed)[2]
        np.testing.assert_allclose(clipped().log_prob(jnp.asarray(mixed)), expected, rtol=1e-12)
    # In float32 too, 20 standard deviations away, and with a slope that can be followed.
    far = ClippedNormal(jnp.array([-1.0]), 0.1)
    np.testing.assert_allclose(far.log_prob(jnp.array([1.0])), scipy.stats.norm(-1, 0.1).logsf(1.0), rtol=1e-4)
    slope = jax.grad(lambda mean: ClippedNormal(mean, 0.1).log_prob(jnp.array([1.0])))(jnp.array([-1.0]))
    assert np.isfinite(slope).all() and float(slope[0]) > 0


@pytest.mark.parametrize("std", [0.05, 0.4, 2.0])
def test_clipped_normal_has_all_probability_within_its_bounds(std):
    with jax.enable_x64():
        one = ClippedNormal(jnp.array([0.6]), std)
        grid = jnp.linspace(-1, 1, 20_001)[1:-1]
        inside = jnp.sum(jnp.exp(jax.vmap(lambda x: one.log_prob(x[None]))(grid))) * 1e-4
        at_bounds = sum(jnp.exp(one.log_prob(jnp.array([bound]))) for bound in (-1.0, 1.0))
        np.testing.assert_allclose(inside + at_bounds, 1.0, atol=1e-4)


def test_clipped_normal_samples_have_the_moments_of_a_clipped_variable():
    samples = np.asarray(draws(clipped()))
    assert np.abs(samples).max() == 1.0
    for column, centre in zip(samples.T, CENTRES, strict=True):
        x = np.linspace(centre - 2, centre + 2, 40_001)
        weight, cut = scipy.stats.norm(centre, 0.2).pdf(x) * 1e-4, np.clip(x, -1, 1)
        mean = weight @ cut
        std = np.sqrt(weight @ (cut - mean) ** 2)
        assert abs(column.mean() - mean) < 4 * std / np.sqrt(len(column))
        assert abs(column.std() / std - 1) < 0.03
        tail = scipy.stats.norm(centre, 0.2).cdf(-1)
        assert abs((column == -1).mean() - tail) < 4 * np.sqrt(max(tail, 1e-6) / len(column))
    assert np.abs(np.corrcoef(samples.T) - np.eye(3)).max() < 4 / np.sqrt(len(samples))


def test_clipped_normal_without_noise_is_its_mean():
    certain = clipped(0.0)
    for key in (None, jax.random.key(0)):
        value, log_prob = certain.draw(key)
        np.testing.assert_array_equal(value, CENTRES.astype(np.float32))
        assert np.shape(log_prob) == () and float(log_prob) == 0
    np.testing.assert_array_equal(clipped().mode(), CENTRES.astype(np.float32))
    with pytest.raises(NotImplementedError):
        clipped().entropy()


def test_clipped_normals_pass_through_jit_and_vmap_as_one_by_one():
    means, keys = jnp.array([[0.1, -0.2], [0.97, 0.0], [-0.99, 0.2]]), jax.random.split(jax.random.key(0), 3)
    batch = jax.jit(jax.vmap(lambda mean: ClippedNormal(mean, 0.3)))(means)
    got = jax.jit(jax.vmap(lambda each, key: each.draw(key)))(batch, keys)
    one_by_one = [ClippedNormal(mean, 0.3).draw(key) for mean, key in zip(means, keys, strict=True)]
    expected = jax.tree.map(lambda *leaves: jnp.stack(leaves), *one_by_one)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, expected)


# Draws ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "distribution",
    [
        normal(),
        TanhNormal(normal()),
        clipped(),
        Categorical(jnp.array([0.1, 0.5, -1.0])),
        Categoricals(Categorical(jnp.array([[0.1, 0.5, -1.0], [1.0, 0.0, NEVER]]))),
        PointMass(jnp.array([1.0, 2.0])),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_draw_is_a_sample_with_its_log_probability_and_without_a_key_the_mode(distribution):
    for key, value in ((jax.random.key(3), distribution.sample(jax.random.key(3))), (None, distribution.mode())):
        drawn, log_prob = distribution.draw(key)
        np.testing.assert_allclose(drawn, value, rtol=1e-6)
        assert np.shape(log_prob) == ()
        np.testing.assert_allclose(log_prob, distribution.log_prob(value), rtol=1e-4)


def test_a_squashed_draw_keeps_its_density_where_the_value_has_rounded_to_a_bound():
    def draw(mean):
        value, log_prob = TanhNormal(Normal(mean, jnp.array([0.0]))).draw(jax.random.key(0))
        return log_prob, value

    (log_prob, value), slope = jax.value_and_grad(draw, has_aux=True)(jnp.array([30.0]))
    assert float(value[0]) == 1.0
    noise = float(jax.random.normal(jax.random.key(0), (1,))[0])
    exact = scipy.stats.norm.logpdf(noise) - (np.log(4) - 2 * (30 + noise))  # 1 - tanh^2 is 4 exp(-2 x) out there
    np.testing.assert_allclose(log_prob, exact, rtol=1e-5)
    np.testing.assert_allclose(slope, [2.0], rtol=1e-5)


# Classes and points --------------------------------------------------------------------------------------------------


def test_categorical_agrees_with_numbers_worked_out_by_hand():
    # Logits log 1, log 2, log 5 (and 3 more on each): probabilities 1/8, 2/8, 5/8.
    distribution = Categorical(jnp.log(jnp.array([1.0, 2.0, 5.0])) + 3.0)
    p = np.array([1, 2, 5]) / 8
    for i in range(3):
        np.testing.assert_allclose(distribution.log_prob(jnp.asarray(i)), np.log(p[i]), rtol=1e-5)
    np.testing.assert_allclose(distribution.entropy(), -(p * np.log(p)).sum(), rtol=1e-5)
    assert int(distribution.mode()) == 2
    counts = np.bincount(np.asarray(draws(distribution)), minlength=3) / 20_000
    assert np.abs(counts - p).max() < 0.015


def two_axes(*weights: tuple[float, ...]) -> Categoricals:
    """Of three classes and of two, with these probabilities but for a factor in each axis."""
    first, second = (np.log(each) for each in weights)
    return Categoricals(Categorical(jnp.array([first, [*second, NEVER]])))


def test_independent_axes_of_unequal_length_agree_with_numbers_worked_out_by_hand():
    # Probabilities 1/8, 2/8, 5/8 on the first axis, 1/4, 3/4 on the second.
    distribution, other = two_axes((1, 2, 5), (1, 3)), two_axes((2, 1, 1), (5, 5))
    for a, p in enumerate((1 / 8, 2 / 8, 5 / 8)):
        for b, q in enumerate((1 / 4, 3 / 4)):
            np.testing.assert_allclose(distribution.log_prob(jnp.array([a, b])), np.log(p * q), rtol=1e-5)
    first = (np.log(8) + 2 * np.log(4) + 5 * np.log(8 / 5)) / 8
    second = (np.log(4) + 3 * np.log(4 / 3)) / 4
    np.testing.assert_allclose(distribution.entropy(), first + second, rtol=1e-5)
    # Over the halves 1/2, 1/4, 1/4 and 1/2, 1/2.
    first = (np.log(1 / 4) + 2 * np.log(1) + 5 * np.log(5 / 2)) / 8
    second = (np.log(1 / 2) + 3 * np.log(3 / 2)) / 4
    np.testing.assert_allclose(distribution.kl(other), first + second, rtol=1e-5)
    assert float(distribution.kl(distribution)) == 0.0
    np.testing.assert_array_equal(distribution.mode(), [2, 1])


def test_draws_of_independent_axes_are_independent_and_never_a_class_that_is_not_there():
    values = np.asarray(draws(two_axes((1, 2, 5), (1, 3))))
    joint = np.histogram2d(*values.T, bins=(3, 3), range=((0, 3), (0, 3)))[0] / len(values)
    np.testing.assert_array_equal(joint[:, 2], 0.0)
    assert np.abs(joint[:, :2] - np.outer([1 / 8, 2 / 8, 5 / 8], [1 / 4, 3 / 4])).max() < 0.015


def test_a_class_that_is_not_there_has_no_gradient():
    def loss(logits):
        one, two = Categoricals(Categorical(logits)), two_axes((2, 1, 1), (5, 5))
        return one.entropy() + one.kl(two) + two.kl(one) + one.log_prob(jnp.array([2, 0]))

    slope = np.asarray(jax.grad(loss)(two_axes((1, 2, 5), (1, 3)).each.logits))
    assert np.isfinite(slope).all() and slope[1, 2] == 0.0 and np.all(slope[:, :2] != 0.0)


def test_categorical_with_an_impossible_class_stays_finite():
    distribution = Categorical(jnp.array([0.0, -200.0]))
    assert np.isfinite(distribution.entropy())
    assert np.isfinite(jax.grad(lambda x: Categorical(x).entropy())(distribution.logits)).all()


def test_point_mass_is_certain():
    distribution = PointMass({"a": jnp.array([1.0, 2.0]), "b": jnp.zeros(())})
    same, other = distribution.sample(jax.random.key(0)), {"a": jnp.array([1.0, 2.5]), "b": jnp.zeros(())}
    assert float(distribution.log_prob(same)) == 0.0
    assert float(distribution.log_prob(other)) == -np.inf
    assert float(distribution.entropy()) == 0.0
    assert distribution.mode() is distribution.value


BUILDERS = {
    "normal": lambda x: Normal(x, x),
    "tanh-normal": lambda x: TanhNormal(Normal(x, x)),
    "categorical": Categorical,
    "categoricals": lambda row: Categoricals(Categorical(jnp.stack([row, jnp.append(row[:1], NEVER)]))),
    "point-mass": PointMass,
}


@pytest.mark.parametrize("name", BUILDERS)
def test_distributions_pass_through_jit_vmap_and_scan(name):
    build = BUILDERS[name]
    rows = jnp.array([[0.1, -0.2], [0.3, 0.0], [-0.5, 0.2]])
    keys = jax.random.split(jax.random.key(0), 3)

    def figures(distribution, key):
        value = distribution.sample(key)
        return distribution.log_prob(value), distribution.entropy(), distribution.mode()

    one_by_one = [figures(build(row), key) for row, key in zip(rows, keys, strict=True)]
    expected = jax.tree.map(lambda *leaves: jnp.stack(leaves), *one_by_one)
    batch = jax.jit(jax.vmap(build))(rows)
    _, scanned = jax.jit(lambda: jax.lax.scan(lambda carry, each: (carry, figures(*each)), 0, (batch, keys)))()
    for got in (jax.jit(jax.vmap(figures))(batch, keys), scanned):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, expected)


# Divergences ---------------------------------------------------------------------------------------------------------


def test_the_divergence_of_normals_is_the_one_worked_out_by_hand():
    # Per axis log(s'/s) + (s^2 + (m - m')^2) / 2s'^2 - 1/2: log 2 + (1 + 4) / 8 - 1/2, and 0 + 1 / 2.
    one = Normal(jnp.array([0.0, 1.0]), jnp.log(jnp.array([1.0, 1.0])))
    two = Normal(jnp.array([2.0, 0.0]), jnp.log(jnp.array([2.0, 1.0])))
    np.testing.assert_allclose(one.kl(two), np.log(2) + 0.125 + 0.5, rtol=1e-6)
    # The other way round: -log 2 + (4 + 4) / 2 - 1/2, and 1 / 2.
    np.testing.assert_allclose(two.kl(one), -np.log(2) + 3.5 + 0.5, rtol=1e-6)
    np.testing.assert_array_equal(one.kl(one), 0.0)


def test_a_small_divergence_is_not_lost_in_rounding():
    # To second order ds^2 + (dm / s)^2 / 2, here with s = 1, some 1e-10 in float32.
    near = Normal(jnp.array([1e-5, 0.0]), jnp.array([0.0, 2e-5]))
    np.testing.assert_allclose(Normal(jnp.zeros(2), jnp.zeros(2)).kl(near), 0.5e-10 + 4e-10, rtol=0.02)


def test_squashing_changes_no_divergence():
    other = Normal(jnp.array([0.1, 0.2]), jnp.array([0.3, -0.4]))
    np.testing.assert_array_equal(TanhNormal(normal()).kl(TanhNormal(other)), normal().kl(other))
    # Nor does it in a mean over samples of log p - log q.
    one, two = TanhNormal(normal()), TanhNormal(other)
    pre = jax.vmap(one.sample_pre)(jax.random.split(jax.random.key(0), 50_000))
    terms = jax.vmap(lambda x: one.log_prob_pre(x) - two.log_prob_pre(x))(pre)
    assert abs(float(terms.mean() - one.kl(two))) < 4 * float(terms.std()) / np.sqrt(len(terms))


def test_the_divergence_of_classes_is_the_one_worked_out_by_hand():
    one, two = Categorical(jnp.log(jnp.array([1.0, 3.0]))), Categorical(jnp.array([5.0, 5.0]))
    np.testing.assert_allclose(one.kl(two), 0.25 * np.log(0.5) + 0.75 * np.log(1.5), rtol=1e-5)
    np.testing.assert_allclose(two.kl(one), 0.5 * np.log(2) + 0.5 * np.log(2 / 3), rtol=1e-5)


def test_points_diverge_by_nothing_or_by_all():
    here, there = PointMass(jnp.zeros(2)), PointMass(jnp.ones(2))
    assert float(here.kl(here)) == 0 and float(here.kl(there)) == np.inf


def test_a_noisy_point_has_no_closed_form_and_claims_none():
    assert hasattr(PointMass(jnp.zeros(2)), "kl") and not hasattr(ClippedNormal(jnp.zeros(2), 0.1), "kl")
