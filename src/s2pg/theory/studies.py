"""The measurements behind the two figures, as plain numbers for a JSON file.

`variance`: measured variance of an estimator and its bound against trajectory length, for kernels with Z below, at
and above 1, and against the noise of z. `bias`: how far truncated BPTT is off the true gradient, and that the others
are not. All in 64 bits: exploding gradients leave the range of 32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from s2pg.errors import UserError
from s2pg.theory import bounds, constants
from s2pg.theory.estimators import FixedNoise, Moments, measure, trajectories_of
from s2pg.theory.toys import Chase, Echo, Endless, Map, ToyKernel, echo_return, toy_kernel
from s2pg.types import POLICY

Report = Callable[[str, int, int], None]  # (what is measured now, how many are done, of how many)
READS = (POLICY,)
# Three regimes on a map that stretches by Z everywhere, chaos, and a norm above 1 that stretches nothing.
CASES: tuple[tuple[Map, float], ...] = (("fold", 0.8), ("fold", 1.0), ("fold", 1.2), ("sine", 3.0), ("rotation", 1.2))
NOISES = (0.03, 0.1, 0.3, 1.0, 3.0)  # standard deviations of z
NOISE_CASE: tuple[Map, float] = ("fold", 0.8)
CUTS = (1, 2, 4, 8, 16)
WHOLE = ("s2pg", "bptt", "pathwise")  # no bias


@dataclass(frozen=True)
class Settings:
    """What the user may choose of a study."""

    lengths: tuple[int, ...] = (4, 8, 16, 32, 64)
    """trajectory lengths T"""
    trajectories: int = 2000
    """trajectories of each seed"""
    seeds: int = 8
    """seeds, all at once"""
    seed: int = 0
    """where the seeds start"""
    discount: float = 0.99
    """gamma"""
    action_std: float = 0.5
    """standard deviation of the action, the square root of Sigma"""
    state_std: float = 0.3
    """standard deviation of z, the square root of Upsilon"""

    def __post_init__(self) -> None:
        if len(set(self.lengths)) < 2 or min(self.lengths) < 1:
            raise UserError("lengths must be two or more whole numbers of at least 1")
        object.__setattr__(self, "lengths", tuple(sorted(set(self.lengths))))
        for name, least in (("trajectories", 2), ("seeds", 1), ("seed", 0)):
            if not least <= getattr(self, name) < 2**32:
                raise UserError(f"{name} must be between {least} and 2^32 - 1, not {getattr(self, name)}")
        bounds.horizon(self.discount, max(self.lengths))
        for name in ("action_std", "state_std"):
            if not 0 < getattr(self, name) < math.inf:
                raise UserError(f"{name} must be positive, not {getattr(self, name):g}")


def _measure(settings: Settings, label: str, env: Endless, kernel: ToyKernel, number: int) -> Moments:
    key = jax.random.fold_in(jax.random.key(settings.seed), number)
    sizes = {"trajectories": settings.trajectories, "seeds": settings.seeds, "discount": settings.discount}
    return measure(label, env, kernel, key, lengths=settings.lengths, **sizes)


def bounded(label: str, kernel: ToyKernel, moments: Moments, lengths: tuple[int, ...], discount: float) -> dict:
    """Measurement variance, bound and prefactor for each length, as lists; `shares` are measured over bound."""
    noise = constants.precisions(kernel, jnp.zeros(1), kernel.initial())
    found = [constants.visited(moments.norms, steps, noise, discount) for steps in lengths]
    bound = bounds.s2pg_bound if label == "s2pg" else bounds.bptt_bound
    limits = [bound(each, steps) for each, steps in zip(found, lengths, strict=True)]
    scales = [
        bounds.prefactor(each, steps) * math.hypot(*each.action_precision)
        for each, steps in zip(found, lengths, strict=True)
    ]
    low, middle, high = (function(moments.trace, axis=0) for function in (np.min, np.mean, np.max))
    row = {
        "estimator": label, "lengths": list(lengths), "variance": middle.tolist(), "variance_low": low.tolist(),
        "variance_high": high.tolist(), "bound": limits, "prefactor": scales,
        "shares": (high / np.array(limits)).tolist(),
        "constants": {name: getattr(found[-1], name) for name in
                      ("reward", "action_gradient", "state_gradient", "action_memory", "state_memory")},
    }  # fmt: skip
    if label == "s2pg":
        row["diagonal_bound"] = [bounds.s2pg_diagonal_bound(c, t) for c, t in zip(found, lengths, strict=True)]
    return row | growth(np.array(lengths), middle / np.array(scales))


def growth(lengths: np.ndarray, values: np.ndarray) -> dict[str, float]:
    """Slopes over the longer half of the lengths: `rate` of log value by T, `power` of log value by log T."""
    late = slice(len(lengths) // 2 if len(lengths) > 3 else 0, None)
    if len(lengths[late]) < 2 or not (values[late] > 0).all():
        return {}
    logs = np.log(values[late])
    return {
        "rate": float(np.polyfit(lengths[late], logs, 1)[0]),
        "power": float(np.polyfit(np.log(lengths[late]), logs, 1)[0]),
    }


def _exponent(settings: Settings, kernel: ToyKernel, steps: int) -> float:
    """The mean Lyapunov exponent of the unrolled kernel."""
    fixed, keys, lanes = (
        FixedNoise(kernel),
        jax.random.split(jax.random.key(settings.seed), settings.seeds),
        settings.trajectories,
    )
    batch = trajectories_of(Chase(), fixed, keys, noisy=False, reads=READS, lanes=lanes, steps=steps)
    return float(jnp.mean(constants.lyapunov(fixed, jax.tree.map(lambda leaf: leaf[0], batch), READS)))


def variance(settings: Settings, report: Report = lambda *_: None) -> dict[str, Any]:
    """Measurement variances and bounds of BPTT and S2PG: `cases` against length, `noise` against the noise of z."""
    total = 2 * len(CASES) + 2 * len(NOISES)
    lengths = settings.lengths
    stds = {"action_std": settings.action_std, "state_std": settings.state_std}
    done, cases = 0, []
    with jax.enable_x64():
        for map, z in CASES:
            kernel, rows = toy_kernel(map, z, **stds), []
            for label in ("bptt", "s2pg"):
                report(f"{label} on {map} with Z = {z:g}", done, total)
                moments = _measure(settings, label, Chase(), kernel, done)
                rows.append(bounded(label, kernel, moments, lengths, settings.discount))
                done += 1
            exponent = _exponent(settings, kernel, lengths[-1])
            regime = bounds.regime(z)["z_bar"].regime
            cases.append({"map": map, "z": z, "bound_grows": regime, "lyapunov": exponent, "rows": rows})
        noise = []
        for std in NOISES:
            kernel = toy_kernel(*NOISE_CASE, **stds | {"state_std": std})
            for label in ("s2pg", "pathwise"):
                report(f"{label} with noise {std:g} in z", done, total)
                moments = _measure(settings, label, Chase(), kernel, done)
                row = bounded(label, kernel, moments, lengths, settings.discount)
                noise.append({"state_std": std} | {name: row[name] for name in row if name not in ("rate", "power")})
                done += 1
    report("done", total, total)
    shares = [share for row in _rows(cases, noise) for share in row["shares"]]
    if not np.all(np.isfinite(shares)):
        raise UserError("a variance or its bound is too large for 64 bits: take shorter trajectories")
    return {"cases": cases, "noise": noise, "largest_share": max(shares)}


def _rows(cases: list[dict], noise: list[dict]) -> list[dict]:
    return [row for case in cases for row in case["rows"]] + noise


def bias(settings: Settings, report: Report = lambda *_: None) -> dict[str, Any]:
    """Relative bias |E g - grad J| / |grad J| on `Echo`, where grad J and the mean of truncated BPTT are known."""
    lengths = settings.lengths
    labels = [*WHOLE, *(f"bptt-{cut}" for cut in CUTS if cut < lengths[-1])]
    rows = []
    with jax.enable_x64():
        kernel = toy_kernel("linear", 0.9, start=0.0, action_std=settings.action_std, state_std=settings.state_std)
        exact = jax.jit(jax.grad(echo_return), static_argnums=(1, 2, 3))
        for done, label in enumerate(labels):
            report(label, done, len(labels))
            moments, cut = _measure(settings, label, Echo(), kernel, done), int(label.partition("-")[2] or 0)
            for i, steps in enumerate(lengths):
                true, told = (_flat(exact(kernel, steps, settings.discount, n)) for n in (0, cut))
                moving = moments.error[i] > 0  # the rest are parameters of the noise, which nobody differentiates
                off, error = (moments.gradient[i] - true)[moving], moments.error[i][moving]
                size = np.linalg.norm(true)
                rows.append({
                    "estimator": label, "length": steps, "cut": cut, "bias": float(np.linalg.norm(off) / size),
                    "noise_floor": float(np.linalg.norm(error) / size),
                    "expected_bias": float(np.linalg.norm(told - true) / size),
                    "standard_errors": float(np.max(np.abs(off) / error)),
                })  # fmt: skip
    report("done", len(labels), len(labels))
    return {"rows": rows}


def _flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(tree)])
