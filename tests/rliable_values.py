"""Writes rliable.json: what rliable makes of some scores, for test_statistics.py to compare with.

rliable does not import beside pandas 3, so it gets an environment of its own:

    python -m venv rliable && rliable/bin/pip install rliable==1.2.0 'arch<7' 'pandas<3' 'numpy<2'
    rliable/bin/python tests/rliable_values.py
"""

import json
import platform
from importlib.metadata import version
from pathlib import Path

import numpy as np
from rliable import library, metrics

SHAPES = ((10, 5), (10, 3), (5, 6), (3, 1))  # seeds x tasks
THRESHOLDS = np.linspace(-1.0, 3.0, 9)
REPEATS = 200  # of the bootstrap


def aggregates(scores):
    return np.array([
        metrics.aggregate_iqm(scores),
        metrics.aggregate_median(scores),
        metrics.aggregate_mean(scores),
        metrics.aggregate_optimality_gap(scores),
    ])  # fmt: skip


def estimate(samples, statistic):
    np.random.seed(0)  # rliable draws from NumPy's global generator
    points, intervals = library.get_interval_estimates({"scores": samples}, statistic, reps=REPEATS)
    return {"point": np.atleast_1d(points["scores"]).tolist(), "interval": intervals["scores"].tolist()}


def case(shape, number):
    rng = np.random.RandomState(number)
    ours, theirs = (np.round(rng.normal(mean, 1.0, shape), 1) for mean in (0.5, 0.2))  # rounded: there are ties
    improvement = estimate([ours, theirs], lambda x, y: np.array([metrics.probability_of_improvement(x, y)]))
    profile, _ = library.create_performance_profile({"scores": ours}, THRESHOLDS, reps=2)
    return {
        "ours": ours.tolist(),
        "theirs": theirs.tolist(),
        "aggregates": estimate(ours, aggregates),
        "improvement": improvement,
        "profile": profile["scores"].tolist(),
    }


content = {
    "versions": {name: version(name) for name in ("rliable", "arch", "numpy", "pandas", "scipy")}
    | {"python": platform.python_version()},
    "thresholds": THRESHOLDS.tolist(),
    "repeats": REPEATS,
    "cases": [case(shape, number) for number, shape in enumerate(SHAPES)],
}
Path(__file__).with_name("rliable.json").write_text(json.dumps(content) + "\n")
