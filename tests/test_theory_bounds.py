"""The variance bounds on numbers worked out by hand, and the sums over Z against brute force."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2pg.errors import UserError
from s2pg.theory import bounds
from s2pg.theory.bounds import Constants, bptt_bound, regime, s2pg_bound, s2pg_diagonal_bound, z_bar, z_tilde

# R = 2, F = 3, H = 1/2, K = 4, Z = 2, Sigma^-1 = diag(3, 4), Upsilon^-1 = diag(6, 8), F_d = 2, H_d = 1/4.
GIVEN = {
    "reward": 2.0, "action_gradient": 3.0, "state_gradient": 0.5, "action_memory": 4.0, "state_memory": 2.0,
    "action_precision": (3.0, 4.0), "state_precision": (6.0, 8.0), "action_row": 2.0, "state_row": 0.25,
    "discount": 0.5, "trajectories": 7,
}  # fmt: skip


def brute(z: float, steps: int) -> tuple[float, float, list[float]]:
    inner = [sum(z ** (t - i - 1) for i in range(t)) for t in range(steps)]
    return math.fsum(inner), math.fsum(s**2 for s in inner), inner


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 20, 64])
@pytest.mark.parametrize("z", [0.0, 0.3, 0.8, 0.99, 0.999999, 1 - 1e-12, 1.0, 1 + 1e-12, 1.000001, 1.01, 1.3, 3.0])
def test_closed_forms_are_the_sums(z, steps):
    tilde, bar, _ = brute(z, steps)
    assert z_tilde(z, steps) == pytest.approx(tilde, rel=1e-9, abs=1e-12)
    assert z_bar(z, steps) == pytest.approx(bar, rel=1e-9, abs=1e-12)


@given(st.floats(0.0, 2.5), st.integers(0, 60))
def test_closed_forms_are_the_sums_everywhere(z, steps):
    tilde, bar, _ = brute(z, steps)
    np.testing.assert_allclose([z_tilde(z, steps), z_bar(z, steps)], [tilde, bar], rtol=1e-8, atol=1e-12)


def test_which_lines_of_the_paper_are_right():
    z, steps = 0.7, 9
    tilde, bar, inner = brute(z, steps)
    power = z**steps
    third_line = steps / (1 - z) ** 2 + (1 - power**2) / (1 - z**2) - 2 * (1 - power) / (1 - z)  # factor lost
    fourth_line = steps / (1 - z) ** 2 + (1 - power**2 - 2 * (1 - power) * (1 + z)) / ((1 - z) * (1 + z)) / (1 - z) ** 2
    last_line = steps / (1 - z) ** 2 + (power - 1) * (power - 2 * z - 1) / ((z - 1) ** 3 * (1 + z))
    assert fourth_line == pytest.approx(bar)
    assert last_line == pytest.approx(bar)
    assert abs(third_line - bar) > 0.1 * bar
    f, h, k = 1.3, 0.6, 0.9
    whole = sum((f + h * s * k) ** 2 for s in inner)
    assert steps * f**2 + 2 * f * h * k * tilde + (h * k) ** 2 * bar == pytest.approx(whole)
    assert abs(steps * f**2 + 2 * f * h * k * tilde + (h * k * bar) ** 2 - whole) > 0.1 * whole  # squared again


def test_the_bounds_on_numbers_worked_out_by_hand():
    # Three steps: 1 + 1/2 + 1/4 = 7/4, C = (2 * 7/4)^2 / 7 = 7/4. S_t = 0, 1, 3: Z~ = 4, Z- = 10. |Sigma^-1| = 5.
    given_ = Constants(**GIVEN)
    # 5 (3 * 9 + 2 * 3 * 2 * 4 + 4 * 10) = 5 * 115
    assert bptt_bound(given_, 3) == pytest.approx(1.75 * 575)
    # 3 (9 * 5 + 1/4 * 10) = 142.5
    assert s2pg_bound(given_, 3) == pytest.approx(1.75 * 142.5)
    # 3 (4 * 7 + 1/16 * 14) = 86.625
    assert s2pg_diagonal_bound(given_, 3) == pytest.approx(1.75 * 86.625)


def test_without_discount_the_return_is_bounded_by_the_length():
    assert bounds.horizon(1.0, 12) == 12
    assert bounds.horizon(1 - 1e-9, 12) == pytest.approx(12, rel=1e-7)
    assert bounds.horizon(0.9, math.inf) == pytest.approx(10)


def test_the_diagonal_bound_is_not_always_the_tighter_one():
    same = {"reward": 1, "state_gradient": 0, "action_memory": 0, "state_memory": 0, "state_row": 0}
    noise = {"action_precision": (1.0,) * 4, "state_precision": (1.0,)}
    # All four rows of norm 1: F = 2. One row alone: F = 1.
    even = Constants(action_gradient=2.0, action_row=1.0, **same, **noise)
    one = Constants(action_gradient=1.0, action_row=1.0, **same, **noise)
    assert s2pg_diagonal_bound(even, 5) < s2pg_bound(even, 5)
    assert s2pg_diagonal_bound(one, 5) > s2pg_bound(one, 5)


@pytest.mark.parametrize(("z", "name"), [(0.5, "linear"), (1.0, "polynomial"), (1.5, "exponential")])
def test_regimes_tell_how_the_sums_grow(z, name):
    for key, sum_ in (("z_tilde", z_tilde), ("z_bar", z_bar)):
        grows, power, rate = regime(z)[key]
        assert grows == name
        long, longer = (400, 800) if name != "exponential" else (100, 101)
        expected = power * math.log(longer / long) + rate * (longer - long)
        assert math.log(sum_(z, longer) / sum_(z, long)) == pytest.approx(expected, rel=0.02)


def test_sums_beyond_all_numbers_are_infinite():
    assert z_bar(3.0, 10_000) == math.inf
    assert bptt_bound(Constants(**GIVEN), math.inf) == math.inf
    # Where nothing depends on z, Z does not matter.
    assert math.isfinite(bptt_bound(Constants(**GIVEN | {"action_memory": 0.0}), 10_000))


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"reward": -1.0}, "reward"),
        ({"state_memory": -0.1}, "state_memory"),
        ({"action_gradient": math.nan}, "action_gradient"),
        ({"discount": 1.5}, "discount"),
        ({"discount": -0.5}, "discount"),
        ({"trajectories": 0}, "trajectories"),
        ({"action_precision": (1.0, 0.0)}, "precision"),
        ({"action_precision": ()}, "precision"),
        ({"state_precision": (-1.0,)}, "state_precision"),
    ],
)
def test_constants_out_of_the_assumptions_are_refused_in_one_line(wrong, word):
    with pytest.raises(UserError, match=word) as told:
        Constants(**GIVEN | wrong)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("bound", [bptt_bound, s2pg_bound, s2pg_diagonal_bound])
def test_no_discount_needs_a_finite_length(bound):
    with pytest.raises(UserError, match="finite length"):
        bound(Constants(**GIVEN | {"discount": 1.0}), math.inf)
    with pytest.raises(UserError, match="whole number"):
        bound(Constants(**GIVEN), 2.5)
    with pytest.raises(UserError, match="whole number"):
        bound(Constants(**GIVEN), -1)


def test_a_state_that_is_not_drawn_has_no_bound_of_s2pg():
    with pytest.raises(UserError, match="not drawn"):
        s2pg_bound(Constants(**GIVEN | {"state_precision": ()}), 3)
    for z in (-1.0, 1e200, math.inf, math.nan):
        with pytest.raises(UserError, match="Z must lie between"):
            z_bar(z, 3)
