"""Study files: which cells they have, what is wrong with them, and how runs share a machine."""

import json
import os
import subprocess
import sys
import time
import types
from collections import Counter
from pathlib import Path

import pytest

from s2pg.cli import main
from s2pg.cli import study as cli_study
from s2pg.errors import UserError
from s2pg.io.checkpoint import Checkpoints
from s2pg.runs import training
from s2pg.runs.request import Request
from s2pg.study import cells, local, ray, share
from s2pg.study.check import check
from s2pg.study.plan import Cell, Resources, read
from s2pg.study.worker import from_json, to_json

STUDIES = Path(__file__).parents[1] / "studies"
GRID = 'schema = 1\n[grid]\ntask = "recall"\nalgorithm = "ppo"\n'
TINY = """
schema = 1
seeds = 2
[grid]
task = "recall"
algorithm = "ppo"
memory = ["none", "s2pg"]
steps = 256
episodes = 4
borders = 8
options.k = 4
hyper = { lanes = 4, steps = 8, size = 4, width = 4, epochs = 1, minibatches = 2 }
"""


def study(tmp_path, text, name="a.toml"):
    file = tmp_path / name
    file.write_text(text)
    return read(file, tmp_path / "out")


def names(found):
    return [cell.name for cell in found.cells]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")


# The file


def test_a_grid_is_the_product_of_its_lists_in_their_order(tmp_path):
    found = study(
        tmp_path,
        """
        schema = 1
        seeds = 3
        [grid]
        task = ["recall", "masked-pendulum"]
        algorithm = "ppo"
        hyper.learning_rate = [3e-4, 1e-3]
        memory = ["none", "bptt-4"]
        steps = 4e3
        """,
    )
    assert names(found) == [
        f"{task}-ppo-{memory}-learning_rate={rate}"
        for task in ("recall", "masked-pendulum") for rate in (0.0003, 0.001) for memory in ("none", "bptt-4")
    ]  # fmt: skip
    request = found.cells[1].request
    assert (request.task, request.memory, request.hyper) == ("recall", "bptt-4", {"learning_rate": 0.0003})
    assert request.steps == 4000 and type(request.steps) is int and request.seeds == (0, 1, 2) and request.resume
    assert request.folder == tmp_path / "out" / "runs" / found.cells[1].name


def test_cells_are_skipped_and_get_settings_of_their_own(tmp_path):
    found = study(
        tmp_path,
        """
        schema = 1
        [grid]
        task = ["recall", "pointmass-goal"]
        algorithm = ["ppo", "sac"]
        memory = ["s2pg", "s2pg-pathwise", "bptt-4", "bptt-8"]
        options.k = 4
        [[skip]]
        algorithm = "sac"
        memory = ["s2pg-pathwise", "bptt-8"]
        [[skip]]
        task = "pointmass-*"
        memory = "bptt-*"
        [[where]]
        match = { memory = "bptt-*" }
        set = { hyper.width = 8, steps = 10, options.hide = [2, 3] }
        [[where]]
        match = { algorithm = "sac", memory = "bptt-4" }
        set = { hyper.width = 16 }
        """,
    )
    assert names(found) == [
        "recall-ppo-s2pg", "recall-ppo-s2pg-pathwise", "recall-ppo-bptt-4", "recall-ppo-bptt-8", "recall-sac-s2pg",
        "recall-sac-bptt-4", "pointmass-goal-ppo-s2pg", "pointmass-goal-ppo-s2pg-pathwise", "pointmass-goal-sac-s2pg",
    ]  # fmt: skip
    by_name = {cell.name: cell.request for cell in found.cells}
    assert by_name["recall-ppo-bptt-4"].hyper == {"width": 8}
    assert by_name["recall-ppo-bptt-4"].options == {"k": 4, "hide": [2, 3]}
    assert by_name["recall-sac-bptt-4"].hyper == {"width": 16}  # what stands later wins
    assert by_name["recall-ppo-s2pg"].hyper == {} and by_name["recall-ppo-s2pg"].steps is None
    assert not found.notes


def test_a_rule_that_matches_nothing_is_remarked(tmp_path):
    found = study(tmp_path, GRID + '[[where]]\nmatch = { task = "recal" }\nset = { steps = 3 }')
    assert found.notes == ("[[where]] 1 matches no cell",)


def test_seeds_go_together_or_in_parts(tmp_path):
    text = "seeds = 5\n" + GRID
    assert [cell.request.seeds for cell in study(tmp_path, text).cells] == [(0, 1, 2, 3, 4)]
    found = study(tmp_path, text + "[run]\ntogether = 2")
    assert names(found) == [f"recall-ppo-s2pg-seeds={part}" for part in ("0-1", "2-3", "4")]
    assert [cell.request.seeds for cell in found.cells] == [(0, 1), (2, 3), (4,)]
    assert study(tmp_path, "seeds = [7, 3]\n" + GRID).cells[0].request.seeds == (7, 3)


def test_what_normalises_returns_and_what_a_run_takes(tmp_path):
    text = 'schema = 1\n[grid]\ntask = ["recall", "pointmass-goal"]\nalgorithm = "ppo"\nmemory = ["none", "oracle"]\n'
    found = study(
        tmp_path,
        text + '[run]\ngpu = 0.25\ncpus = 2\nretries = 1\n[normalise]\nrecall = [0, 1]\n"*" = ["none", "oracle"]',
    )
    assert found.normalise == {"recall": (0.0, 1.0), "*": ("none", "oracle")}
    assert found.resources == Resources(0, 0.25, 2, 1)


def test_demonstrations_lie_beside_the_study(tmp_path):
    (tmp_path / "sub").mkdir()
    found = study(tmp_path, GRID + 'demos = ["expert.npz"]', "sub/a.toml")
    assert found.cells[0].request.demos == tmp_path / "sub" / "expert.npz"
    assert names(found) == ["recall-ppo-s2pg-demos=expert.npz"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("schema = 1\n[grid]\n", "[grid] names no task: there is no cell"),
        ('schema = 1\n[grid]\ntask = "recall"', "[grid] names no algorithm"),
        (GRID + "memory = []", "'memory' of [grid] is an empty list: there is no cell"),
        (GRID + 'memory = ["none", "none"]', "two cells are called recall-ppo-none"),
        (GRID + 'hyper.a = ["x/y", "x y"]', "two cells are called recall-ppo-s2pg-a=x-y"),
        (
            GRID + 'steps = [1, 2]\n[[where]]\nmatch = { task = "*" }\nset = { steps = 3 }',
            "cells recall-ppo-s2pg-steps=1 and recall-ppo-s2pg-steps=2 are one and the same run",
        ),
        (GRID + '[[skip]]\ntask = "*"', "every cell of [grid] is skipped"),
        (GRID + '[[skip]]\nkernel = "gru"', "[[skip]] 1 asks for 'kernel', which [grid] does not name"),
        (GRID + 'memry = "none"', "unknown key of [grid] 'memry'; did you mean memory?"),
        ("grids = 3\n" + GRID, "unknown key 'grids'; did you mean grid?"),
        (GRID + "[run]\njob = 3", "unknown key of [run] 'job'"),
        (GRID + "[run]\ngpu = 2", "'gpu' of [run] must be between 0 and 1, not 2"),
        (GRID + "[run]\ntogether = 0", "'together' of [run] must be 1 or more, not 0"),
        (GRID + "[run]\nretries = true", "'run.retries' must be a whole number, not True"),
        (GRID + "[normalise]\nant = [0, 1]", "unknown task of [normalise] 'ant'"),
        (GRID + '[normalise]\nrecall = ["none", 1]', "unknown memory of [normalise] 'none'"),
        (GRID + "[normalise]\nrecall = [1]", "must be what is 0 and what is 1"),
        (GRID + "[where]\nset = 3", "'where' is written [[where]]"),
        (GRID + '[[where]]\nmatch = { task = "*" }', "[[where]] 1 needs both 'match' and 'set'"),
        (GRID + '[[where]]\nmatch = { task = "*" }\nset = { stepz = 1 }', "key of 'set' of [[where]] 1 'stepz'"),
        (GRID + "hyper = 3", "'hyper' of [grid] must be a table, not 3"),
        (GRID + "memory = 3", "'memory' must be a text, not 3"),
        (GRID + "steps = 1.5", "'steps' must be a whole number, not 1.5"),
        (GRID + "options.day = 2026-11-16", "'options.day' must be a text, a number"),
        (GRID + f"hyper.a = {list(range(10_001))}", "[grid] has 10,001 cells, and 10,000 are the most"),
        (GRID + f'hyper.a = ["{"x" * 300}"]', "is longer than 200 letters"),
        ("seeds = 0\n" + GRID, "'seeds' must be 1 or more, not 0"),
        ("schema = 2\n[grid]", "it must say schema = 1, not 2"),
        ("task = ", "a.toml is no TOML file: "),
        ("task = 1\ntask = 2", "a.toml is no TOML file: "),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_in_one_line(tmp_path, capsys, text, told):
    (tmp_path / "a.toml").write_text(text)
    assert main(["study", "a.toml"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and told in lines[0] and "a.toml" in lines[0], lines
    assert not (tmp_path / "runs").exists()


def test_no_file_and_no_text_are_refused_too(tmp_path, capsys):
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe\x00")
    for name, told in (("a.toml", "no study can be read from a.toml: No such file"), ("b.toml", "is no TOML file")):
        assert main(["study", name]) == 2
        assert told in capsys.readouterr().err


# Planning

SIXTY = """
schema = 1
seeds = 10
[grid]
task = ["pointmass-goal", "halfcheetah", "recall"]
algorithm = ["ppo", "sac"]
memory = ["s2pg", "s2pg-8", "bptt-32", "window-5", "none"]
hyper.learning_rate = [3e-4, 1e-3]
options.horizon = 200
[[where]]
match = { task = "recall" }
set = { options.cue = "real" }
"""


def test_a_wrong_cell_among_sixty_is_named_before_anything_trains(tmp_path, capsys):
    """Here those of recall, which has no horizon to set."""
    (tmp_path / "a.toml").write_text(SIXTY)
    began = time.process_time()
    assert main(["study", "a.toml"]) == 2
    assert time.process_time() - began < 10.0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("s2pg: a.toml: 20 of 60 cells cannot be trained: recall-ppo-s2pg-learning_rate=0.0003, ")
    assert "unknown option of task recall 'horizon'" in lines[0] and not (tmp_path / "runs").exists()


def test_every_wrong_cell_is_named_with_its_own_reason(tmp_path):
    wrong = TINY.replace('["none", "s2pg"]', '["none", "s2pg", "windo-3", "window-9"]')
    with pytest.raises(UserError) as refused:
        check(study(tmp_path, wrong))
    told = str(refused.value)
    assert "2 of 4 cells" in told and "recall-ppo-windo-3: unknown memory 'windo-3'" in told
    assert "recall-ppo-window-9: memory 'window-9': a window is longer than an episode" in told


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A study whose first cell is done."""
    folder = tmp_path_factory.mktemp("trained")
    found = study(folder, TINY)
    assert main(["study", str(folder / "a.toml"), "--out", str(folder / "out"), "--cell", found.cells[0].name]) == 0
    return folder


def test_a_run_that_is_there_but_is_another_is_refused_while_planning(trained, capsys):
    (trained / "b.toml").write_text(TINY.replace("k = 4", "k = 3"))
    assert main(["study", str(trained / "b.toml"), "--out", str(trained / "out")]) == 2
    told = capsys.readouterr().err
    assert "1 of 2 cells cannot be trained: recall-ppo-none: cannot resume" in told and "options was {'k': 4}" in told


def test_status_and_dry_run_train_nothing(trained, capsys):
    before = {path: path.stat().st_mtime_ns for path in (trained / "out").rglob("*")}
    for asked in ("--status", "--dry-run"):
        assert main(["study", str(trained / "a.toml"), "--out", str(trained / "out"), asked]) == 0
        done, waiting, total = capsys.readouterr().out.splitlines()[1:]
        assert "recall-ppo-none  done " in done and "0.256k of 0.256k" in done and "waiting" in waiting
        assert total.strip() == "2 cells: 1 done, 1 waiting"
    assert {path: path.stat().st_mtime_ns for path in (trained / "out").rglob("*")} == before


def test_a_cell_whose_policies_are_older_than_its_checkpoint_is_not_done(trained, tmp_path):
    cell = study(trained, TINY).cells[0]
    out = cell.request.folder
    assert cells.look(cell).state == cells.DONE
    file = training.policy_file(out, 1)
    content = file.read_bytes()
    file.unlink()
    assert cells.look(cell).state == cells.STOPPED
    file.write_bytes(content)
    assert cells.look(cell._replace(request=Request(**{**vars(cell.request), "steps": 512}))) == (
        cells.look(cell)._replace(state=cells.STOPPED, steps=512)
    )
    assert Checkpoints(out / training.CHECKPOINTS).steps()[-1] == 256


def test_a_cell_that_diverged_is_at_its_end_until_its_note_is_deleted(trained, capsys):
    cell = study(trained, TINY).cells[0]
    note = cell.request.folder / training.DIVERGED
    note.write_text(json.dumps({"schema": 1, "why": "kl is not finite", "step": 32}))
    found = cells.look(cell)
    assert (found.state, found.why) == (cells.DIVERGED, "kl is not finite") and found.state in cells.ENDED
    assert main(["study", str(trained / "a.toml"), "--out", str(trained / "out"), "--status"]) == 0
    told = capsys.readouterr().out
    assert "kl is not finite" in told and "2 cells: 1 diverged, 1 waiting" in told
    note.unlink()
    assert cells.look(cell).state == cells.DONE


def test_the_last_rows_of_metrics_are_those_of_the_last_whole_border(tmp_path):
    file = tmp_path / "metrics.jsonl"
    assert cells.last_rows(file) == []
    rows = [{"step": step, "seed": seed, "eval_return": step + seed} for step in (32, 64) for seed in (0, 1)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 96, "se')
    assert cells.last_rows(file) == rows[2:]
    file.write_text("x" * 2 * cells.TAIL + "\n" + json.dumps(rows[0]) + "\n")
    assert cells.last_rows(file) == rows[:1]


def test_a_folder_of_something_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "a.toml").write_text(TINY)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert main(["study", "a.toml", "--out", "mine"]) == 2
    assert "mine exists and is no study: --out names another folder" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("file", sorted(STUDIES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_studies_of_the_paper_can_be_planned(file, capsys):
    if file.stem == "popgym":
        pytest.importorskip("popgym")
    assert main(["study", str(file), "--dry-run"]) == 0
    told = capsys.readouterr()
    assert " cells: " in told.out and not told.err


# Sharing a machine


def test_cores_are_shared_where_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert share.share(Resources()) == share.Share(8, cpus=1, on_cpu=True)
    assert share.share(Resources(cpus=3)) == share.Share(2, cpus=3, on_cpu=True)
    assert share.share(Resources(cpus=16)).jobs == 1
    found = share.share(Resources(), jobs=5)
    assert found.jobs == 5 and found.environment(4)["NPROC"] == found.environment(4)["OMP_NUM_THREADS"] == "1"
    with pytest.raises(UserError, match="--jobs must be 1 or more, not 0"):
        share.share(Resources(), 0)


def test_what_fits_is_asked_of_the_memory_that_runs_will_have(monkeypatch):
    seen, fractions = [], (share.FRACTION, share.OLD_FRACTION)
    monkeypatch.setattr(share.jax, "devices", lambda: seen.append([os.environ.get(name) for name in fractions]))
    monkeypatch.delenv(share.FRACTION, raising=False)
    monkeypatch.setenv(share.OLD_FRACTION, "0.1")
    share.leave_the_gpu()
    share.leave_the_gpu(inherited=True)  # by tasks of SLURM, which start in this environment
    assert seen == [["0.9", None], [None, "0.1"]]
    assert float(share.Share(4, ("0",), 0.25).environment(0)[share.FRACTION]) == 0.25 * float(seen[0][0])
    assert [os.environ.get(name) for name in fractions] == [None, "0.1"]


def test_workers_of_ray_are_given_one_fraction(monkeypatch):
    asked = {}
    fake = types.SimpleNamespace(
        cluster_resources=lambda: {"GPU": 1}, remote=lambda **given: asked.update(given) or (lambda task: task)
    )
    ray._run(fake, [], Path(), Resources(gpu=0.5), "token", local.Stop(), lambda at_work, outcomes: None)
    given = asked["runtime_env"]["env_vars"]
    assert (given[share.FRACTION], given[share.OLD_FRACTION]) == ("0.450", "")  # JAX refuses to be told both


def test_runs_get_their_share_of_gpus_and_of_the_memory(monkeypatch):
    monkeypatch.setattr(share.jax, "default_backend", lambda: "gpu")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.setenv(share.OLD_FRACTION, "0.5")
    monkeypatch.setenv(share.PREALLOCATE, "true")
    share.leave_the_gpu()
    found = share.share(Resources(gpu=0.25))
    assert found == share.Share(8, ("3", "5"), 0.25)
    used = [found.environment(slot) for slot in range(4)]
    assert [each["CUDA_VISIBLE_DEVICES"] for each in used] == ["3", "5", "3", "5"]
    assert all(each[share.FRACTION] == "0.225" for each in used)  # 0.9 of a quarter
    assert all(each[share.PREALLOCATE] == "true" and share.OLD_FRACTION not in each for each in used)
    assert found.environment(0, alone=True)[share.FRACTION] == "0.900"
    assert share.share(Resources(gpu=0.25), jobs=2).part == 0.25
    assert share.share(Resources(), jobs=6).part == pytest.approx(1 / 3)  # three on each
    assert share.share(Resources(gpu=0.0)).environment(0)["JAX_PLATFORMS"] == "cpu"


def test_slurm_gets_a_script_that_names_what_is_left_to_do(trained, capsys):
    args = ["study", str(trained / "a.toml"), "--out", str(trained / "out"), "--on", "slurm"]
    assert main([*args, "--jobs", "3"]) == 0
    script = capsys.readouterr().out
    assert "#SBATCH --array=0-0%3\n" in script and "\ncells=(recall-ppo-s2pg)\n" in script
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=True).returncode == 0
    last = script.splitlines()[-1]
    echoed = subprocess.run(
        ["bash"], input=script.replace("exec ", "echo "), text=True, check=True, capture_output=True,
        env=os.environ | {"SLURM_ARRAY_TASK_ID": "0"},
    )  # fmt: skip
    assert echoed.stdout.split()[1:] == [
        "-m", "s2pg", "study", str(trained / "a.toml"), "--out", str(trained / "out"), "--cell", "recall-ppo-s2pg",
    ]  # fmt: skip
    assert last.startswith("exec ") and (trained / "out" / local.LOGS).is_dir()  # which SLURM would not make


def test_cells_of_slurm_have_a_whole_gpu_each(trained, capsys, monkeypatch):
    parts = []
    monkeypatch.setattr(cli_study, "share", lambda resources, jobs: share.Share(4, ("0",), 0.25))
    monkeypatch.setattr(cli_study, "check", lambda study, part: parts.append(part) or {})
    for on in ("local", "slurm"):
        args = ["study", str(trained / "a.toml"), "--out", str(trained / "out"), "--on", on, "--dry-run"]
        assert main(args) == 0
    assert parts == [0.25, 1.0]


def test_a_cell_by_name_has_to_be_one(trained, capsys):
    assert main(["study", str(trained / "a.toml"), "--cell", "recall-ppo-no"]) == 2
    assert "a.toml has no cell 'recall-ppo-no'; there are recall-ppo-none, recall-ppo-s2pg" in capsys.readouterr().err


def test_without_ray_nothing_is_begun(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "a.toml").write_text(TINY)
    assert main(["study", "a.toml", "--on", "ray"]) == 2
    assert capsys.readouterr().err == "s2pg: --on ray needs Ray: pip install 's2pg[ray]'\n"
    assert not (tmp_path / "runs").exists()


def test_ray_refuses_a_node_that_does_not_see_the_folder(tmp_path):
    state, why = ray._train("{}", str(tmp_path), "token")
    assert state == "mistake" and "which all nodes have to share" in why


def test_a_request_survives_the_way_to_another_process(tmp_path):
    request = study(tmp_path, TINY.replace('"recall"', '"recall"\ndemos = "x.npz"')).cells[0].request
    assert from_json(to_json(request)) == request


# The pool of processes, with workers that do nothing but end in a certain way

WORKER = """
import json, os, pathlib, signal, sys, time
out = pathlib.Path(json.loads(sys.stdin.readline())["out"])
out.mkdir(parents=True, exist_ok=True)
tries = len(list(out.glob("[0-9]*")))
(out / str(tries)).write_text(json.dumps([os.environ.get("XLA_CLIENT_MEM_FRACTION"), time.monotonic()]))
kind = out.name.partition("-")[0]
print(f"{kind}: for a reason", flush=True)
if kind == "killed" and tries < int(out.name.partition("-")[2]):
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(0.1)
(out / f"end{tries}").write_text(str(time.monotonic()))
sys.exit({"done": 0, "killed": 0, "failed": 1, "mistake": 2, "diverged": 3, "memory": 0 if tries else 4}[kind])
"""


def pool(tmp_path, monkeypatch, *kinds, jobs=2, retries=3, gpus=()):
    monkeypatch.setattr(local, "WORKER", (sys.executable, "-c", WORKER))
    (tmp_path / "out" / local.LOGS).mkdir(parents=True)
    request = study(tmp_path, TINY).cells[0].request
    todo = [Cell(kind, Request(**{**vars(request), "out": tmp_path / "out" / kind})) for kind in kinds]
    seen = Counter()

    def watch(running, outcomes):
        seen["most"] = max(seen["most"], len(running))

    shared = share.Share(jobs, gpus, 0.25 if gpus else 1.0, 1)
    found = local.run(todo, tmp_path / "out", shared, retries, local.Stop(), watch)
    tries = {kind: len([each for each in (tmp_path / "out" / kind).iterdir() if each.name.isdigit()]) for kind in kinds}
    return found, tries, seen["most"]


def test_what_was_killed_is_tried_again_and_what_would_fail_again_is_not(tmp_path, monkeypatch):
    found, tries, most = pool(tmp_path, monkeypatch, "done-1", "killed-2", "failed", "mistake", "diverged", "done-2")
    assert tries == {"done-1": 1, "killed-2": 3, "failed": 1, "mistake": 1, "diverged": 1, "done-2": 1}
    assert {name: outcome.state for name, outcome in found.items()} == {
        "done-1": "done", "killed-2": "done", "failed": "failed", "mistake": "mistake", "diverged": "diverged",
        "done-2": "done",
    }  # fmt: skip
    assert found["mistake"].why == "for a reason" and most == 2


def test_what_is_killed_again_and_again_is_given_up(tmp_path, monkeypatch):
    found, tries, _ = pool(tmp_path, monkeypatch, "killed-9", retries=2)
    assert tries == {"killed-9": 3} and found["killed-9"] == cells.Outcome("failed", "killed by SIGKILL")


def test_what_had_no_memory_is_tried_again_alone_with_the_gpu_to_itself(tmp_path, monkeypatch):
    kinds = ("memory", "done-1", "done-2", "done-3")
    found, tries, _ = pool(tmp_path, monkeypatch, *kinds, gpus=("0",))
    assert tries["memory"] == 2 and found["memory"].state == "done"
    (shared, _), (alone, began) = (json.loads((tmp_path / "out" / "memory" / n).read_text()) for n in ("0", "1"))
    assert (shared, alone) == ("0.225", "0.900")
    ends = [float((tmp_path / "out" / kind / "end0").read_text()) for kind in kinds[1:]]
    assert began > max(ends)
