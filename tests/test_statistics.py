"""Aggregates, intervals and scores: equal to rliable's stored values, and on numbers worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from s2pg.analysis import scores, statistics
from s2pg.analysis.statistics import AGGREGATES, improvement, interval, pooled_iqm, profile

STORED = json.loads(Path(__file__).with_name("rliable.json").read_text())
EXACT = {"rtol": 0.0, "atol": 1e-12}
each_case = pytest.mark.parametrize(
    "case", STORED["cases"], ids=lambda case: "x".join(map(str, np.shape(case["ours"])))
)


def strata(table: Any) -> list[np.ndarray]:
    """[seeds, tasks] as one array per task."""
    return list(np.asarray(table, float).T)


def all_aggregates(sample: statistics.Strata) -> np.ndarray:
    return np.stack([aggregate(sample) for aggregate in AGGREGATES.values()], axis=-1)


def draw_as_rliable(monkeypatch: pytest.MonkeyPatch, *samples: Any) -> None:
    """Makes the bootstrap choose the seeds that rliable's chose: from NumPy's old generator, which is frozen."""
    generator = np.random.RandomState(0)
    chosen = [[generator.choice(len(each), np.shape(each)) for each in samples] for _ in range(STORED["repeats"])]
    drawn = iter([np.stack([draw[i] for draw in chosen]) for i in range(len(samples))])

    def resample(sample: statistics.Strata, draws: int, rng: Any) -> list[np.ndarray]:
        which = next(drawn)  # [draws, seeds, tasks]
        return [scores[which[:, :, task]] for task, scores in enumerate(sample)]

    monkeypatch.setattr(statistics, "resample", resample)


@each_case
def test_aggregates_and_their_intervals_are_those_of_rliable(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    ours = strata(case["ours"])
    np.testing.assert_allclose(all_aggregates(ours), case["aggregates"]["point"], **EXACT)
    draw_as_rliable(monkeypatch, case["ours"])
    np.testing.assert_allclose(interval(all_aggregates, ours), case["aggregates"]["interval"], **EXACT)


@each_case
def test_the_probability_of_improvement_is_that_of_rliable(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    ours, theirs = strata(case["ours"]), strata(case["theirs"])
    np.testing.assert_allclose(improvement(ours, theirs), case["improvement"]["point"][0], **EXACT)
    draw_as_rliable(monkeypatch, case["ours"], case["theirs"])
    found = np.stack(interval(improvement, ours, theirs))
    np.testing.assert_allclose(found, np.ravel(case["improvement"]["interval"]), **EXACT)


@each_case
def test_the_profile_is_that_of_rliable(case: dict[str, Any]):
    found = profile(strata(case["ours"]), np.array(STORED["thresholds"]))
    np.testing.assert_allclose(found, case["profile"], **EXACT)


def test_tasks_may_have_different_numbers_of_seeds():
    uneven = [np.array([0.0, 1.0, 2.0, 3.0]), np.array([10.0])]
    # Of five scores one is cut at each end; task means are 1.5 and 10; two scores fall short of 1, by 1 and by 0.
    np.testing.assert_allclose(all_aggregates(uneven), [2.0, 5.75, 5.75, 0.2])
    low, high = interval(pooled_iqm, uneven)
    assert 0.0 <= low < 2.0 < high <= 10.0


def test_who_always_wins_has_probability_one_and_an_interval_of_no_width():
    winners, losers = [np.array([2.0, 3.0])], [np.array([0.0, 1.0])]
    assert improvement(winners, losers) == 1.0 and improvement(losers, winners) == 0.0
    assert improvement(winners, winners) == 0.5
    np.testing.assert_array_equal(interval(improvement, winners, losers), [1.0, 1.0])


def test_the_95_percent_interval_covers_the_truth_about_so_often():
    rng, tasks, trials = np.random.default_rng(0), np.linspace(0.2, 0.8, 5), 400
    truth = pooled_iqm(list(rng.normal(tasks[:, None], 0.3, (5, 200_000))))
    covered = 0
    for trial in range(trials):
        low, high = interval(pooled_iqm, list(rng.normal(tasks[:, None], 0.3, (5, 10))), draws=500, seed=trial)
        covered += bool(low <= truth <= high)
    assert 0.90 <= covered / trials <= 0.97


def test_an_interval_of_more_than_everything_is_refused():
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        interval(pooled_iqm, [np.ones(3)], level=1.0)


def test_normalised_returns_go_from_the_floor_to_the_ceiling():
    np.testing.assert_allclose(scores.normalise(np.array([-10.0, 0.0, 20.0]), -10.0, 10.0), [0.0, 0.5, 1.5])


def test_the_area_is_the_mean_height_whatever_the_spacing():
    x = np.array([0.0, 1.0, 4.0])
    np.testing.assert_allclose(scores.area(x, np.array([[2.0, 2.0, 2.0], [0.0, 2.0, 0.0]])), [2.0, 1.0])
    np.testing.assert_allclose(scores.area(x[:1], np.array([[3.0]])), [3.0])


def test_a_return_is_reached_at_the_first_point_at_or_above_it():
    x, curves = np.array([10.0, 20.0, 30.0]), np.array([[0.0, 5.0, 1.0], [0.0, 1.0, 4.9], [9.0, 0.0, 0.0]])
    np.testing.assert_array_equal(scores.reached(x, curves, 5.0), [20.0, np.inf, 10.0])


@pytest.mark.parametrize(
    ("task", "group"),
    [
        ("hopper", "low-dimensional"), ("walker2d", "low-dimensional"), ("gym:HalfCheetah-v5", "low-dimensional"),
        ("ant", "high-dimensional"), ("brax:humanoid", "high-dimensional"), ("recall", None),
    ],
)  # fmt: skip
def test_robots_are_grouped_as_in_the_paper(task: str, group: str | None):
    assert scores.dimensions(task) == group
