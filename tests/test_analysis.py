"""Statistics on numbers worked out by hand; figures and tables from tiny run folders."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table

from s2pg.analysis.logs import labels, read
from s2pg.analysis.plots import curves, table
from s2pg.analysis.statistics import bootstrap_band, iqm
from s2pg.errors import UserError

CONFIG = {"algorithm": "ppo", "task": "recall", "memory": "s2pg", "kernel": "gru", "critic": "critic", "options": {}}


def folder(path: Path, values: dict[int, list[float | None]], name: str = "eval_return", **config: object) -> Path:
    """A run folder with one list of returns per step, one entry per seed."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG | config))
    rows = [
        {"step": step, "seed": seed, "train_return": 0.5, "wall_s": step / 100, "steps_per_s": 100.0, name: value}
        for step, each in values.items()
        for seed, value in enumerate(each)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def shown(what: Table) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def test_iqm_is_the_mean_of_the_middle_half():
    assert iqm(np.array([100.0, 1.0, 3.0, 2.0])) == 2.5
    assert iqm(np.array([99.0, 0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 99.0])) == 2.5
    np.testing.assert_allclose(iqm(np.array([[0.0, 4.0], [3.0, 5.0]]), axis=1), [2.0, 4.0])


def test_the_band_of_two_seeds_is_the_binomial_one():
    # Means of two draws from {0, 1}: 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4.
    pair = np.array([[0.0, 10.0], [1.0, 12.0]])
    low, high = bootstrap_band(pair)
    np.testing.assert_allclose([low, high], [[0.0, 10.0], [1.0, 12.0]])
    low, high = bootstrap_band(pair, level=0.4)
    np.testing.assert_allclose([low, high], [[0.5, 11.0], [0.5, 11.0]])


def test_the_band_of_one_seed_is_its_curve():
    curve = np.arange(3.0)[None]
    for side in bootstrap_band(curve):
        np.testing.assert_array_equal(side, curve[0])


def test_the_band_is_deterministic_and_the_same_for_long_curves():
    values = np.random.default_rng(1).normal(size=(5, 1)) * np.ones((1, 150))  # more than one block of points
    low, high = bootstrap_band(values, draws=100)
    np.testing.assert_array_equal(bootstrap_band(values, draws=100), [low, high])
    assert np.ptp(low) == np.ptp(high) == 0.0
    assert low[0] < iqm(values)[0] < high[0]


def test_points_keep_only_steps_that_every_seed_has(tmp_path: Path):
    run = folder(tmp_path / "a", {100: [None, 1.0], 300: [5.0, 6.0], 200: [3.0, 4.0], 400: [7.0]})
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 400, "se')  # torn by a kill
    steps, seconds, values = read(run).points("eval_return")
    np.testing.assert_array_equal(steps, [200, 300])
    np.testing.assert_array_equal(seconds, [2.0, 3.0])
    np.testing.assert_array_equal(values, [[3.0, 5.0], [4.0, 6.0]])


def test_labels_name_what_differs(tmp_path: Path):
    options = {"clip": 0.2, "lr": 1e-3}
    a = read(folder(tmp_path / "a", {1: [0.0]}, options=options))
    b = read(folder(tmp_path / "b", {1: [0.0]}, memory="bptt-8", algorithm="sac", options={"clip": 0.2}))
    assert labels([a]) == ["s2pg"]
    assert labels([a, b]) == ["s2pg, ppo, lr 0.001", "bptt-8, sac"]
    assert labels([a, a]) == ["s2pg (a)", "s2pg (a)"]


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_curves_are_written_whole(tmp_path: Path, suffix: str):
    runs = [
        folder(tmp_path / "a", {1000: [0.0, 1.0], 2000: [2.0, 3.0]}),
        folder(tmp_path / "b", {1000: [1.0]}, memory="none"),  # one seed, one point
    ]
    out = tmp_path / "new" / f"figure.{suffix}"
    curves(runs, out, floors={"scripted oracle": 3.5})
    assert out.stat().st_size > 1000
    assert list(out.parent.iterdir()) == [out]


def test_seconds_can_be_left_out(tmp_path: Path):
    run, wide, narrow = folder(tmp_path / "a", {1: [0.0], 2: [1.0]}), tmp_path / "wide.svg", tmp_path / "narrow.svg"
    curves([run], wide)
    curves([run], narrow, seconds=False)
    assert [
        re.findall(r"<!-- (environment steps|wall-clock seconds) -->", each.read_text()) for each in (wide, narrow)
    ] == [
        ["environment steps", "wall-clock seconds"],
        ["environment steps"],
    ]


def test_long_names_stay_within_the_figure(tmp_path: Path):
    runs = [folder(tmp_path / f"a_long_name_of_a_run_folder_number_{i}", {1: [0.0], 2: [1.0]}) for i in range(3)]
    curves(runs, tmp_path / "figure.svg", seconds=False)
    drawn = re.findall(r"<!-- (s2pg \(.*?\)) -->\s*<g[^>]*translate\((\S+) ", (tmp_path / "figure.svg").read_text())
    assert len(drawn) == 3
    assert len({float(x) for _, x in drawn}) == 1  # below each other, as two in a line would be cut off
    assert float(drawn[0][1]) > 0


def test_one_run_without_evaluations_makes_all_show_training_returns(tmp_path: Path):
    evaluated = folder(tmp_path / "a", {10: [8.0]})
    trained = folder(tmp_path / "b", {10: [None]}, memory="none")
    assert "last evaluation return" in shown(table([evaluated]))
    text = shown(table([evaluated, trained]))
    assert "last training return" in text
    assert "8" not in text


def test_the_table_tells_return_spread_speed_and_time(tmp_path: Path):
    text = shown(table([folder(tmp_path / "a", {1000: [0.0] * 4, 2000: [1.0, 2.0, 3.0, 100.0]})]))
    for word in ("s2pg", "2.5", "1 to 100", "2,000", "100", "20.0"):
        assert word in text


def test_mistakes_are_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run, out = folder(tmp_path / "a", {1: [0.0]}), tmp_path / "x.png"
    empty = folder(tmp_path / "empty", {})
    with pytest.raises(UserError, match=r"nowhere is no run folder: it has no config.json"):
        curves([tmp_path / "nowhere"], out)
    with pytest.raises(UserError, match="empty has no metrics yet"):
        curves([run, empty], out)
    with pytest.raises(UserError, match="early has no metrics yet: not one point"):
        curves([run, folder(tmp_path / "early", {1: [None]}, name="train_return")], out)
    with pytest.raises(UserError, match="no run folder was named"):
        table([])
    with pytest.raises(UserError, match=r"cannot draw x.bmp: the name must end in .png, .pdf, .svg"):
        curves([run], tmp_path / "x.bmp")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match="plots need matplotlib"):
        curves([run], out)
    assert not out.exists()
