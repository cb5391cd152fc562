"""Reports: what their words say on runs whose answer is known, what the page holds, and what mistakes get."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from s2pg.analysis.comparison import compare
from s2pg.analysis.logs import load
from s2pg.analysis.report import Film, build, render
from s2pg.analysis.report.cells import command
from s2pg.analysis.report.numbers import aligned, duration, number, short
from s2pg.analysis.report.page import Report
from s2pg.analysis.report.svg import ticks
from s2pg.analysis.report.words import on_task, summary
from s2pg.cli import main
from s2pg.errors import UserError
from s2pg.io.lock import locked
from s2pg.runs.experiment import READABLE

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
CONFIG: dict[str, Any] = {
    "schema": 3, "algorithm": "ppo", "task": "recall", "memory": "s2pg", "kernel": "gru", "critic": "critic",
    "options": {"k": 4}, "hyper": {"lanes": 32, "learning_rate": 1e-3}, "steps": 200, "seeds": [0],
    "versions": {"jax": "0.10.2"}, "hardware": {"device": "cpu", "cores": 2},
}  # fmt: skip
VOID = {"meta", "link", "img", "br", "hr", "input"}


def run(path: Path, ends: list[float], start: float = 0.0, **config: Any) -> Path:
    """A run folder with a seed for each of `ends`: its curve goes from `start` to there in two points."""
    path.mkdir(parents=True)
    seeds = config.get("seeds", list(range(len(ends))))
    (path / "config.json").write_text(json.dumps(CONFIG | {"seeds": seeds} | config))
    rows = [
        {"step": step, "seed": seed, "eval_return": value, "train_return": value, "wall_s": step / 10, "steps_per_s": 1}
        for step, share in ((100, 0.0), (200, 1.0))
        for seed, value in zip(seeds, [start + share * (end - start) for end in ends], strict=True)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def made(*folders: Path, **more: Any) -> Report:
    return build(folders, READABLE, **more)


def said(report: Report) -> str:
    return "\n".join(summary(report.found, report.scales))


class Page(HTMLParser):
    """A page taken apart; it fails on tags that do not close as they open."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def test_the_summary_says_who_is_ahead_by_how_much_and_how_sure(tmp_path: Path):
    run(tmp_path / "a", [10.0, 10.2, 10.4, 10.6, 10.8, 11.0])
    run(tmp_path / "b", [5.0, 5.2, 5.4, 5.6, 5.8, 6.0], memory="none")
    text = said(made(tmp_path))
    assert "`s2pg` is ahead on `recall`: the IQM of its last returns is 10.5" in text
    assert "5.00 more than `none`" in text
    assert "The lead is clear" in text and "with probability 1.00" in text


def test_what_overlaps_is_open_and_what_is_equal_is_level(tmp_path: Path):
    run(tmp_path / "x" / "a", [1.0, 9.0, 2.0, 8.0, 5.0])
    run(tmp_path / "x" / "b", [1.0, 9.0, 2.0, 8.0, 4.9], memory="none")
    assert "The lead is open" in said(made(tmp_path / "x"))
    run(tmp_path / "y" / "a", [3.0, 3.0])
    run(tmp_path / "y" / "b", [3.0, 3.0], memory="none")
    assert "`none` and `s2pg` are level on `recall`" in said(made(tmp_path / "y"))


def test_few_seeds_are_never_clear_and_one_says_nothing(tmp_path: Path):
    run(tmp_path / "x" / "a", [10.0, 10.1, 10.2])
    run(tmp_path / "x" / "b", [1.0, 1.1, 1.2], memory="none")
    text = said(made(tmp_path / "x"))
    assert "The lead is likely" in text and "Intervals of 3 seeds are too narrow" in text
    run(tmp_path / "y" / "a", [10.0])
    run(tmp_path / "y" / "b", [1.0], memory="none")
    assert "One seed cannot tell how sure that is" in said(made(tmp_path / "y"))


def test_labels_that_see_the_full_state_are_told_apart(tmp_path: Path):
    for name, end in (("oracle", 9.0), ("none", 3.0), ("s2pg", 6.0)):
        run(tmp_path / name, [end, end + 0.1], memory=name)
    text = said(made(tmp_path))
    assert "`oracle` sees the full state. Of labels that do not, `s2pg` is ahead with 6.05" in text


def test_tasks_are_averaged_on_the_scale_that_the_study_gives(tmp_path: Path):
    (tmp_path / "study.toml").write_text(
        'about = "Two <tasks>"\n[grid]\n[normalise]\nrecall = [0, 10]\n"*" = ["none", "oracle"]\n'
    )
    for task, factor in (("recall", 1.0), ("halfcheetah", 100.0)):
        for name, end in (("oracle", 10.0), ("none", 0.0), ("s2pg", 5.0)):
            run(tmp_path / "runs" / f"{task}-{name}", [end * factor] * 2, task=task, memory=name, options={})
    report = made(tmp_path)
    assert report.scales["recall"][:2] == (0.0, 10.0)
    assert report.scales["halfcheetah"][:2] == (0.0, 1000.0)
    assert "`oracle` is ahead over `halfcheetah` and `recall`: the IQM of its normalised returns is 1.00" in said(
        report
    )
    assert made(tmp_path / "runs").scales == report.scales
    assert "Two &lt;tasks&gt;" in render(report)
    other = made(tmp_path, rules={"*": (0.0, "s2pg"), "recall": (0.0, 1.0)})
    assert [other.scales[task].ceiling for task in ("halfcheetah", "recall")] == [500.0, 1.0]
    # A floor that is not below its ceiling would turn the order round.
    upside_down = made(tmp_path, rules={"*": ("oracle", "none")}).scales["halfcheetah"]
    assert upside_down.floor < upside_down.ceiling and "not below" in upside_down.source


def test_robots_are_split_as_in_the_paper(tmp_path: Path):
    for task, best in (("ant", "s2pg"), ("hopper", "none")):
        for name in ("s2pg", "none"):
            run(tmp_path / f"{task}-{name}", [2.0 if name == best else 1.0] * 2, task=task, memory=name, options={})
    text = said(made(tmp_path))
    assert "low-dimensional (`hopper`) `none` leads" in text and "high-dimensional (`ant`) `s2pg` leads" in text


def test_a_line_on_a_task_tells_who_is_quick(tmp_path: Path):
    run(tmp_path / "a", [10.0, 10.0])
    run(tmp_path / "b", [9.5, 9.5], start=9.5, memory="none")
    report = made(tmp_path)
    # The scale goes from 0 to 10: 9 is reached at step 200 by one, at step 100, after 10 seconds, by the other.
    about = report.found.on("recall"), report.scales["recall"]
    assert "`none` is the first to reach 9.000, after 10 s of training" in on_task(*about)
    assert "`none` is the first to reach 9.000, after 100 steps" in on_task(*about, seconds=False)
    run(tmp_path / "c", [9.2, 9.2], start=9.2, memory="oracle")
    report = made(tmp_path)
    level = on_task(report.found.on("recall"), report.scales["recall"], seconds=False)
    assert "`none` and `oracle` are the first to reach 9.000, after 100 steps" in level


def test_a_page_without_seconds_has_none_in_words_either(tmp_path: Path):
    for name in ("none", "s2pg"):
        run(tmp_path / name, [10.0, 10.0], memory=name)
    pages = {seconds: render(made(tmp_path, seconds=seconds)) for seconds in (True, False)}
    assert " s of training" in pages[True] and " s of training" not in pages[False]


def test_a_machine_is_listed_once_however_many_of_its_devices_a_run_used(tmp_path: Path):
    for name, more in {
        "none": {},
        "s2pg": {"devices_used": 1, "machine": "x86_64"},
        "oracle": {"devices_used": 4},
    }.items():
        run(tmp_path / name, [1.0], memory=name, hardware={"device": "H200", "cores": 8} | more)
    text = render(made(tmp_path))
    (listed,) = re.findall(r'<ul class="makers">(.*?)</ul>', text)
    assert sorted(re.findall(r"</b> (.*?)</li>", listed)) == [
        "H200, 8 cores, 4 devices used; jax 0.10.2", "H200, 8 cores; jax 0.10.2"
    ]  # fmt: skip
    assert sorted(Counter(re.findall(r"Made on (.), below", text)).values()) == [1, 2]


def test_runs_that_differ_in_seeds_alone_are_one_cell(tmp_path: Path):
    run(tmp_path / "a", [1.0, 2.0])
    run(tmp_path / "b", [3.0], seeds=[2])
    run(tmp_path / "c", [4.0], seeds=[3], hyper={"lanes": 64, "learning_rate": 1e-3})
    run(tmp_path / "d", [5.0], task="repeat-first", hyper={"lanes": 64, "learning_rate": 1e-3})
    found = compare([load(tmp_path / name) for name in "abcd"], "eval_return")
    assert found.labels == ("s2pg, lanes 32", "s2pg, lanes 64")
    np.testing.assert_array_equal(found.cells["recall", "s2pg, lanes 32"].scores, [1.0, 2.0, 3.0])
    assert ("repeat-first", "s2pg, lanes 64") in found.cells


def test_the_same_seed_twice_is_two_runs(tmp_path: Path):
    run(tmp_path / "a", [1.0])
    run(tmp_path / "b", [2.0])
    assert made(tmp_path).found.labels == ("s2pg", "s2pg (b)")


def test_tasks_of_other_options_are_other_tasks(tmp_path: Path):
    run(tmp_path / "a", [1.0])
    run(tmp_path / "b", [2.0], options={"k": 8})
    assert made(tmp_path).found.tasks == ("recall, k 4", "recall, k 8")


def test_a_diverged_run_counts_with_its_last_return_and_is_named(tmp_path: Path):
    run(tmp_path / "a", [4.0])
    broken = run(tmp_path / "b", [1.0], start=2.0, seeds=[1])
    lines = (broken / "metrics.jsonl").read_text().splitlines()
    (broken / "metrics.jsonl").write_text(lines[0] + "\n")
    (broken / "diverged.json").write_text('{"why": "value_loss is not finite"}')
    report = made(tmp_path)
    np.testing.assert_array_equal(report.found.cells["recall", "s2pg"].scores, [4.0, 2.0])
    assert "diverged with seeds 1: value_loss is not finite" in render(report)


def test_what_failed_is_named(tmp_path: Path):
    run(tmp_path / "a", [1.0], steps=400)
    begun = run(tmp_path / "begun", [1.0], memory="none")
    (begun / "metrics.jsonl").unlink()
    text = " ".join(Page(render(made(tmp_path))).words)
    assert "unfinished at 200 of 400 steps, 50" in text
    assert re.search(r"begun\s*: no returns yet", text)
    assert "2 cells are unfinished" in text


def test_a_run_that_a_process_writes_to_is_running_not_unfinished(tmp_path: Path):
    run(tmp_path / "a", [1.0], steps=400)
    run(tmp_path / "b", [1.0], steps=400, memory="none")
    with locked(tmp_path / "a", print):
        text = " ".join(Page(render(made(tmp_path))).words)
    assert "running, now at 200 of 400 steps, 50" in text and "unfinished at 200 of 400 steps, 50" in text
    assert "1 cell is running" in text and "1 cell is unfinished" in text


def test_runs_without_returns_have_a_page_to_wait_at(tmp_path: Path):
    (run(tmp_path / "a", [1.0]) / "metrics.jsonl").unlink()
    page = Page(render(made(tmp_path), live="1"))
    assert "No run has returns yet." in page.words and page.count("script") == 2


def test_the_page_is_whole_and_asks_nothing_of_the_network(tmp_path: Path):
    for name in ("s2pg", "none", "oracle"):
        run(tmp_path / name, [1.0, 2.0, 3.0], memory=name)
    report = made(tmp_path)
    report = Report(**vars(report) | {"films": [Film("recall", "s2pg", 0, b"GIF89a")]})
    text = render(report)
    page = Page(text)
    assert page.count("polyline") == 3 * 3  # against steps, against seconds, and the profile
    assert page.count("details") == 3 and page.count("img") == 1
    for _, attributes in page.tags:
        for name in ("src", "href"):
            assert (attributes.get(name) or "data:").startswith("data:")
    assert "//" not in re.sub(r"http://www\.w3\.org/2000/svg|(?m:^//.*$)", "", text).replace("base64,", "")
    assert "default-src 'none'" in text and "connect-src" not in text
    assert "url(" not in text and "@import" not in text


def test_text_of_runs_stays_text(tmp_path: Path):
    evil = "<script>alert(1)</script>"
    run(tmp_path / "<script>alert(1)<script>", [1.0, 2.0], memory=evil, task=f'"{evil}&', options={"k": evil})
    run(tmp_path / "other", [1.0, 2.0], task=f'"{evil}&', options={"k": "`"}, hyper={evil: evil})
    page = Page(render(made(tmp_path)))
    assert page.count("script") == 1
    assert any(evil in word for word in page.words)
    assert not any("alert" in word for word in page.words if word.startswith('"use strict"'))


def test_ninety_six_curves_are_small_and_quick(tmp_path: Path):
    rng = np.random.default_rng(0)
    for task in range(12):
        for label in ("s2pg", "s2pg-8", "s2pg-pathwise", "bptt-8", "bptt-32", "window-5", "none", "oracle"):
            path = run(tmp_path / f"{task}-{label}", [0.0], task=f"task-{task}", memory=label, seeds=[0])
            rows = [
                {"step": step, "seed": seed, "eval_return": rng.normal(), "wall_s": step / 7, "steps_per_s": 1}
                for step in range(1, 101)
                for seed in range(3)
            ]
            (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    began = time.process_time()
    text = render(made(tmp_path))
    assert len(text) <= 1_000_000
    assert time.process_time() - began < 15  # with annotations checked, on a busy machine; 3 without
    longest = max(points.count(" ") for points in re.findall(r'<polyline[^>]*points="([^"]*)"', text))
    assert longest == 120  # 60 points of a curve; a profile has 121


@pytest.mark.parametrize("folder", ["robots/warp", "cpg", "pointmass-goal/sweep"])
def test_committed_results_can_be_reported(folder: str):
    report = made(BENCHMARKS / folder)
    assert Page(render(report)).count("polyline") >= 2 * len(report.found.cells)


def test_the_command_line_writes_a_page_and_names_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run(tmp_path / "runs" / "a", [1.0])
    out = tmp_path / "new" / "report.html"
    assert main(["report", str(tmp_path / "runs"), "-o", str(out), "--normalise", "0", "s2pg"]) == 0
    assert "<!doctype html>" in out.read_text() and list(out.parent.iterdir()) == [out]
    (tmp_path / "none").mkdir()
    run(tmp_path / "later" / "a", [1.0], schema=99)
    waiting = run(tmp_path / "waiting" / "a", [1.0])
    (waiting / "metrics.jsonl").unlink()
    damaged = run(tmp_path / "damaged" / "a", [1.0])
    (damaged / "config.json").write_text("[]")
    run(tmp_path / "odd" / "a", [1.0], seeds=[0], steps="many")
    torn = run(tmp_path / "torn" / "a", [1.0])
    (torn / "metrics.jsonl").write_text('{"step": 1, "seed": 0}\n')
    capsys.readouterr()
    for folder, words in (
        ("none", "none holds no run"), ("nowhere", "nowhere holds no run"), ("later", "later/a has schema 99"),
        ("waiting", "has returns yet"), ("damaged", "is damaged"), ("odd", "its steps cannot be 'many'"),
        ("torn", "a row lacks its step, seed or time"),
    ):  # fmt: skip
        assert main(["report", str(tmp_path / folder), "-o", str(tmp_path / "x.html")]) == 2
        told = capsys.readouterr().err
        assert words in told and told.count("\n") == 1
    assert not (tmp_path / "x.html").exists()


def test_a_metric_that_nobody_logs_is_refused(tmp_path: Path):
    path = run(tmp_path / "a", [1.0])
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        del row["train_return"]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match="unknown metric 'eval_retrun'; did you mean eval_return"):
        made(tmp_path, value="eval_retrun")


def test_the_command_of_a_cell_repeats_it():
    words = shlex.split(command(CONFIG | {"options": {"hide": [2, 3], "name": "a b"}, "demos": "x.npz"}))
    assert words[:3] == ["s2pg", "train", "ppo"]
    assert {"hide=2,3", "name=a b", "lanes=32", "learning_rate=0.001"} <= set(words)
    assert words[-2:] == ["--seeds", "0"]


def test_numbers_are_short_and_aligned():
    assert aligned([1234.5, -2.0], 4) == ["1,234", "\N{MINUS SIGN}2"]  # halves go to even
    assert aligned([0.5, 12.25, float("nan")]) == ["0.5", "12.2", "\N{EN DASH}"]
    assert [number(0.0), number(0.012345)] == ["0", "0.0123"]
    assert [short(x) for x in (0.25, 1500, -2e6)] == ["0.25", "1.5k", "\N{MINUS SIGN}2M"]
    assert [duration(x) for x in (5.25, 90, 600, 7200)] == ["5.2 s", "90 s", "10.0 min", "2.0 h"]


def test_ticks_are_round_and_within():
    assert ticks(0.0, 10.0) == [0, 2, 4, 6, 8, 10]
    assert ticks(-0.13, 0.31) == [-0.1, 0.0, 0.1, 0.2, 0.3]
    assert ticks(3.0, 3.0) == [3.0]
