"""Steps of robots a second: rows, what their ratios are against, and that everything opened is closed."""

import json
import multiprocessing
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import pytest

from s2pg import bench
from s2pg.bench import Settings, envs
from s2pg.bench.base import Workload
from s2pg.cli.main import main

SMALL = ["--rounds", "2", "--host-lanes", "2", "--steps", "3"]


def test_robots_are_stepped_in_each_way_and_compared_with_the_first_of_their_own(capsys):
    args = ["bench", "envs", *SMALL, "--tasks", "hopper", "halfcheetah", "--labels", "sync", "gymnasium"]
    assert main([*args, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["label"] for row in rows] == [
        "hopper sync", "hopper gymnasium", "halfcheetah sync", "halfcheetah gymnasium",
    ]  # fmt: skip
    assert [row["against"] for row in rows] == ["hopper sync"] * 2 + ["halfcheetah sync"] * 2
    assert rows[0]["ratio"] == rows[2]["ratio"] == 1.0
    assert rows[3]["ratio"] == pytest.approx(rows[3]["seconds"] / rows[2]["seconds"])
    for row in rows:
        assert row["lanes"] == 2 and row["steps_per_s"] == pytest.approx(1 / row["seconds"])
    assert main(args) == 0
    assert "steps/s" in capsys.readouterr().out


def test_environments_in_processes_of_their_own_leave_none_behind():
    report = bench.run("envs", Settings(rounds=1, host_lanes=2, steps=2, tasks=("halfcheetah",), labels=("async",)))
    assert report["rows"][0]["steps_per_s"] > 0
    assert not multiprocessing.active_children()


WITHOUT_FILMS = f"""
import runpy, sys
find = sys.meta_path[-1]
assert find.__name__ == "PathFinder"
class Without:
    def find_spec(name, *more):
        return None if name == "imageio" else find.find_spec(name, *more)
sys.meta_path[-1] = Without
for _ in range(2):
    made = runpy.run_path({str(Path(envs.__file__).with_name("plain.py"))!r})["make"]("HalfCheetah-v5")
    made.reset(seed=0)
    made.step(made.action_space.sample())
assert not {{"jax", "s2pg"}} & set(sys.modules)
"""


def test_a_plain_robot_needs_neither_films_nor_jax_and_leaves_no_file(tmp_path: Path):
    subprocess.run([sys.executable, "-c", WITHOUT_FILMS], cwd=tmp_path, check=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--tasks", "hoper"], "unknown robot 'hoper'; did you mean hopper?"),
        (["--labels", "snyc"], "unknown way to step 'snyc'; did you mean sync or async?"),
        (["--labels", "sync, iterations=4"], "unknown way to step with options 'sync'"),
        (["--labels", "mjx, ppo s2pg, lanes=4"], "lanes of 'mjx, ppo s2pg, lanes=4': --device-lanes and"),
        (["--tasks", "ant", "--labels", "mjx, iteratons=4"], "unknown option of task ant 'iteratons'"),
        (["--host-lanes", "0"], "host_lanes of a benchmark must be 1 or more"),
        (["--tasks", "ant", "ant"], "tasks of a benchmark must be different"),
    ],
)
def test_a_mistake_gets_one_line(args: list[str], told: str, capsys):
    assert main(["bench", "envs", *args]) == 2
    err = capsys.readouterr().err
    assert told in err and len(err.strip().splitlines()) == 1


def test_rows_of_the_device_are_left_out_on_a_cpu_and_compiled_first_where_they_are_asked_for(monkeypatch):
    built: list[str] = []

    def step(name: str) -> Any:
        return lambda task, settings, **hyper: Workload(lambda: built.append(" ".join([name, *hyper.values()])))

    for kind in (envs.ON_HOST, envs.ON_DEVICE):
        for name in kind:
            monkeypatch.setitem(kind, name, step(name))
    asked: list[dict] = []
    monkeypatch.setattr(envs, "make", lambda task, backend, **options: asked.append(options))
    monkeypatch.setattr(envs.jax, "default_backend", lambda: "cpu")
    assert list(envs.workloads(Settings(tasks=("ant",)))) == ["ant sync", "ant async", "ant gymnasium"]
    made = envs.workloads(Settings(tasks=("ant",), labels=("sync", "mjx", "mjx, ppo s2pg")))
    assert sorted(built) == ["mjx", "mjx, ppo s2pg"]
    assert made["ant mjx"].facts["lanes"] == Settings().device_lanes
    assert made["ant mjx, ppo s2pg"].facts["share_of"] == "ant mjx"
    asked.clear()
    quick = ("mjx, iterations=4", "mjx, ppo s2pg, iterations=4")
    assert (
        envs.workloads(Settings(tasks=("ant",), labels=quick))[f"ant {quick[1]}"].facts["share_of"] == f"ant {quick[0]}"
    )
    assert asked == [{"iterations": "4"}]
    asked.clear()
    built.clear()
    fewer = ("mjx, iterations=4", "mjx, ppo s2pg, iterations=4, minibatches=16")
    made = envs.workloads(Settings(tasks=("ant",), labels=fewer))
    assert made[f"ant {fewer[1]}"].facts["share_of"] == f"ant {fewer[0]}"
    assert asked == [{"iterations": "4"}] and sorted(built) == ["mjx", "mjx, ppo s2pg 16"]
    monkeypatch.setattr(envs.jax, "default_backend", lambda: "gpu")
    assert len(envs.workloads(Settings())) == 25


def test_a_share_is_of_the_rate_of_the_row_named_and_everything_is_closed_even_after_an_error(monkeypatch):
    closed: list[str] = []

    def pair(seconds: float, fail: bool = False) -> dict[str, Workload]:
        def work() -> None:
            assert not fail
            time.sleep(seconds)

        facts = {"pieces": 2, "piece": "steps", "against": "bare"}
        bare = Workload(lambda: time.sleep(0.01), facts, lambda: closed.append("bare"))
        return {"bare": bare, "whole": Workload(work, {**facts, "share_of": "bare"}, lambda: closed.append("whole"))}

    monkeypatch.setitem(bench.BENCHES, "pair", lambda settings: pair(0.02))
    bare, whole = bench.run("pair", Settings(rounds=2))["rows"]
    assert whole["share"] == pytest.approx(1 / whole["ratio"]) and 0.3 < whole["share"] < 1
    assert bare["steps_per_s"] > whole["steps_per_s"] and closed == ["bare", "whole"]
    monkeypatch.setitem(bench.BENCHES, "pair", lambda settings: pair(0.02, fail=True))
    with pytest.raises(AssertionError):
        bench.run("pair", Settings(rounds=2))
    assert closed == ["bare", "whole"] * 2


@pytest.mark.slow
def test_a_robot_is_stepped_and_trained_on_the_device():
    settings = Settings(
        rounds=1, host_lanes=2, steps=2, device_lanes=4, device_steps=2, tasks=("halfcheetah",), labels=envs.LABELS[2:]
    )
    # MJX is not as strict as our tests; for all threads, as it is compiled in others than this one.
    jax.config.update("jax_numpy_rank_promotion", "allow")
    try:
        rows = bench.run("envs", settings)["rows"]
    finally:
        jax.config.update("jax_numpy_rank_promotion", "raise")
    assert [row["label"] for row in rows] == [f"halfcheetah {label}" for label in envs.LABELS[2:]]
    assert 0 < rows[2]["share"] < 1
