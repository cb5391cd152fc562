"""Upper bounds on the variance of the two gradient estimators (paper: Section 4 and its appendix).

    BPTT           Var <= C |Sigma^-1| (T F^2 + 2 F H K Z~ + H^2 K^2 Z-)
    S2PG           Var <= C T (F^2 |Sigma^-1| + H^2 |Upsilon^-1|)
    S2PG diagonal  Var <= C T (F_d^2 tr Sigma^-1 + H_d^2 tr Upsilon^-1)
    with           C = R^2 (1 + gamma + ... + gamma^(T-1))^2 / N

    Z~ = sum_t S_t,  Z- = sum_t S_t^2,  S_t = 1 + Z + ... + Z^(t-1),  t = 0 ... T-1

Norms are Frobenius norms, the variance of a vector is the trace of its covariance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

from s2pg.errors import UserError

# Below this distance of Z^T from 1 the fractions cancel, and their expansion in Z - 1 takes over.
NEAR = 0.5
TERMS = 40  # of that expansion: (2 NEAR)^j / j! is far below a double's last digit by then
LARGEST = 1e100  # of Z, whose powers are taken

Regime = Literal["linear", "polynomial", "exponential"]
Real = int | float


@dataclass(frozen=True)
class Constants:
    """What the theorems assume of a task, a kernel and an estimate; out of range, a `UserError`."""

    reward: Real  # R >= |r|
    action_gradient: Real  # F >= |d f / d theta|, f the mean of a as a function of (s, z)
    state_gradient: Real  # H >= |d eta / d theta|
    action_memory: Real  # K >= |d f / d z|
    state_memory: Real  # Z >= |d eta / d z|
    action_precision: tuple[float, ...]  # diagonal of Sigma^-1
    state_precision: tuple[float, ...] = ()  # diagonal of Upsilon^-1; empty where z is not drawn
    action_row: Real = math.inf  # F_d >= |d f_i / d theta| for every component i
    state_row: Real = math.inf  # H_d >= |d eta_i / d theta|
    discount: Real = 1.0
    trajectories: int = 1  # N, how many an estimate averages over

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            for number in value if isinstance(value, tuple) else (value,):
                if math.isnan(number) or number < 0:
                    raise UserError(f"{name} must not be negative, not {number:g}: the theorems take it for a bound")
        if not self.action_precision or min(*self.action_precision, *self.state_precision, math.inf) == 0:
            raise UserError("precisions must be positive: the theorems are about normal policies with noise")
        if self.discount > 1:
            raise UserError(f"discount must lie in [0, 1], not {self.discount:g}")
        if self.trajectories < 1:
            raise UserError(f"trajectories must be at least 1, not {self.trajectories}")


def _frobenius(diagonal: tuple[float, ...]) -> float:
    return math.hypot(*diagonal)


def _length(steps: Real) -> None:
    if not (steps == math.inf or (steps >= 0 and steps == int(steps))):
        raise UserError(f"a trajectory has a whole number of steps, not {steps:g}")


def horizon(discount: Real, steps: Real) -> float:
    """1 + gamma + ... + gamma^(T-1): (1 - gamma^T) / (1 - gamma), and T at gamma = 1."""
    _length(steps)
    if not 0 <= discount <= 1:
        raise UserError(f"discount must lie in [0, 1], not {discount:g}")
    if discount == 1:
        if steps == math.inf:
            raise UserError("a discount of 1 needs trajectories of finite length: the return has no bound otherwise")
        return float(steps)
    if discount == 0:
        return float(steps > 0)
    return -math.expm1(steps * math.log(discount)) / (1 - discount)


def prefactor(constants: Constants, steps: Real) -> float:
    """C = R^2 (1 - gamma^T)^2 / (N (1 - gamma)^2): what both theorems put for the squared return."""
    return (constants.reward * horizon(constants.discount, steps)) ** 2 / constants.trajectories


# The two sums over Z --------------------------------------------------------------------------------------------------


def _power(base: Real, exponent: Real) -> float:
    try:
        return base**exponent
    except OverflowError:
        return math.inf


def _checked(z: Real, steps: Real) -> None:
    _length(steps)
    if not 0 <= z < LARGEST:
        raise UserError(f"Z must lie between 0 and {LARGEST:g}, not {z:g}: it bounds a norm")


def z_tilde(z: Real, steps: Real) -> float:
    """Z~ = T / (1 - Z) + (Z^T - 1) / (1 - Z)^2, which is T (T - 1) / 2 at Z = 1."""
    _checked(z, steps)
    if steps == math.inf:
        return math.inf
    x, count = z - 1.0, int(steps)
    if count * abs(x) < NEAR:
        return math.fsum(math.comb(count, j + 1) * x ** (j - 1) for j in range(1, min(count, TERMS)))
    return (_power(z, count) - 1.0 - count * x) / x**2


def z_bar(z: Real, steps: Real) -> float:
    """Z- = T / (1 - Z)^2 + (Z^T - 1) (Z^T - 2 Z - 1) / ((Z - 1)^3 (1 + Z)); T (T - 1) (2 T - 1) / 6 at Z = 1."""
    _checked(z, steps)
    if steps == math.inf:
        return math.inf
    x, count = z - 1.0, int(steps)
    if count * abs(x) < NEAR:
        grown = (math.comb(count, j + 1) * x ** (j - 2) * ((2 + x) ** j - 2) for j in range(2, min(count, TERMS)))
        return math.comb(count, 2) + math.fsum(grown)
    power = _power(z, count)
    return (count + (power - 1.0) * (power - 2.0 * z - 1.0) / (x * (1.0 + z))) / x**2


class Growth(NamedTuple):
    """How a sum grows with T: by a `power` of T, times exp(rate T)."""

    regime: Regime
    power: int
    rate: float


def regime(z: Real) -> dict[str, Growth]:
    """How Z~ and Z- grow with T: both like T below Z = 1, like T^2 and T^3 at it, like Z^T and Z^2T above."""
    _checked(z, 1)
    if z < 1:
        return {"z_tilde": Growth("linear", 1, 0.0), "z_bar": Growth("linear", 1, 0.0)}
    if z == 1:
        return {"z_tilde": Growth("polynomial", 2, 0.0), "z_bar": Growth("polynomial", 3, 0.0)}
    rate = math.log(z)
    return {"z_tilde": Growth("exponential", 0, rate), "z_bar": Growth("exponential", 0, 2 * rate)}


# The bounds -----------------------------------------------------------------------------------------------------------


def _times(factor: Real, number: Real) -> float:
    """0 times infinity is 0 here: a gradient that is nowhere has no variance at any length."""
    return 0.0 if 0.0 in (factor, number) else factor * number


def bptt_bound(constants: Constants, steps: Real) -> float:
    """C |Sigma^-1| (T F^2 + 2 F H K Z~ + H^2 K^2 Z-); the last sum is not squared again."""
    c = constants
    through = c.state_gradient * c.action_memory
    inner = _times(c.action_gradient**2, steps)
    inner += _times(2 * c.action_gradient * through, z_tilde(c.state_memory, steps))
    inner += _times(through**2, z_bar(c.state_memory, steps))
    return _times(prefactor(c, steps) * _frobenius(c.action_precision), inner)


def _drawn(constants: Constants) -> None:
    if not constants.state_precision:
        raise UserError("the bound of S2PG needs the precision of z: here z is not drawn")


def s2pg_bound(constants: Constants, steps: Real) -> float:
    """C T (F^2 |Sigma^-1| + H^2 |Upsilon^-1|)."""
    c = constants
    _drawn(c)
    inner = c.action_gradient**2 * _frobenius(c.action_precision)
    inner += c.state_gradient**2 * _frobenius(c.state_precision)
    return _times(prefactor(c, steps), _times(inner, steps))


def s2pg_diagonal_bound(constants: Constants, steps: Real) -> float:
    """C T (F_d^2 tr Sigma^-1 + H_d^2 tr Upsilon^-1): tighter where components weigh alike, looser where one rules."""
    c = constants
    _drawn(c)
    inner = _times(c.action_row**2, sum(c.action_precision)) + _times(c.state_row**2, sum(c.state_precision))
    return _times(prefactor(c, steps), _times(inner, steps))
