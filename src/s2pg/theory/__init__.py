"""The paper's theory as code: gradient estimators side by side, variance bounds, and its theorems as checks."""

from s2pg.theory.bounds import Constants, bptt_bound, regime, s2pg_bound, s2pg_diagonal_bound, z_bar, z_tilde
from s2pg.theory.constants import lyapunov, visited
from s2pg.theory.estimators import Estimator, Moments, bias, measure

__all__ = [
    "Constants",
    "Estimator",
    "Moments",
    "bias",
    "bptt_bound",
    "lyapunov",
    "measure",
    "regime",
    "s2pg_bound",
    "s2pg_diagonal_bound",
    "visited",
    "z_bar",
    "z_tilde",
]
