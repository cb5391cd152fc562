"""The command line: what a user sees, what it leaves behind, and what mistakes get."""

from __future__ import annotations

import ast
import inspect
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from s2pg import cli, demo
from s2pg.algorithms import ALGORITHMS
from s2pg.cli import main
from s2pg.cli.main import COMMANDS, load
from s2pg.cli.progress import Watch
from s2pg.config.hyper import settings
from s2pg.config.labels import LABELS
from s2pg.envs.tasks import PREFIXES, TASKS, task_settings
from s2pg.io.sinks import read_metrics
from s2pg.kernels import KERNELS
from s2pg.runs import training
from s2pg.runs.training import Border

SMALL = ["--hyper", "lanes=32", "steps=8", "size=8", "width=8"]
REAL = ["--task", "recall", "--set", "cue=real"]
RECALL = [
    "train",
    "ppo",
    "--task",
    "recall",
    "--set",
    "k=4",
    "--memory",
    "s2pg",
    *SMALL,
    "--episodes",
    "8",
    "--seeds",
    "0",
    "1",
]


def call(*args: str) -> int:
    """The exit code, whether the command returns it or tyro raises it."""
    try:
        return main(list(args))
    except SystemExit as left:
        return int(left.code or 0)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "recall"
    assert call(*RECALL, "--steps", "2048", "--out", str(out)) == 0
    return out


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs go to the working directory unless told otherwise."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["ppq"], "unknown algorithm 'ppq'; did you mean ppo?"),
        (["ppo", "--task", "recal"], "unknown task 'recal'; did you mean recall?"),
        (["ppo", "--memory", "s2pgg"], "unknown memory 's2pgg'; did you mean s2pg"),
        (["ppo", "--kernel", "gro"], "unknown kernel 'gro'; did you mean gru?"),
        (["ppo", "--critic", "polcy"], "unknown critic 'polcy'; did you mean policy?"),
        (["ppo", "--memory", "bptt-0"], "a segment has 1 step or more"),
        (["ppo", "--memory", "window-99"], "longer than an episode"),
        (["ppo", "--kernel", "mlp"], "kernel 'mlp' has no state"),
        (["ppo", "--memory", "none", "--kernel", "gru"], "memory 'none' goes with kernel 'mlp'"),
        (["reinforce", "--memory", "s2pg-pathwise"], "reinforce has no critic"),
        (["ppo", "--steps", "-5"], "steps must be a whole number of 1 or more, not -5"),
        (["ppo", "--episodes", "0"], "episodes must be 1 or more, not 0"),
        (["ppo", "--seeds", "1", "1"], "seeds must be different"),
        (["ppo", "--set", "k"], "--set takes NAME=VALUE, not 'k'"),
        (["ppo", "--set", "k=2", "k=3"], "--set names 'k' twice"),
        (["ppo", "--set", "kk=3"], "unknown option of task recall 'kk'"),
        (["ppo", "--set", "k=1e999"], "must be int"),
        (["ppo", "--hyper", "lane=3"], "did you mean lanes?"),
        (["ppo", "--hyper", "lanes=1e999"], "must be int"),
        (["ppo", "--hyper", "minibatches=0"], "'minibatches' must be 1 or more"),
        (["ppo", "--hyper", "lanes={[]:1}"], "must be int"),
        (["ppo", "--hyper", "discount=2"], "'discount' must be between 0 and 1"),
        (["ppo", "--hyper", "learning_rate=-1"], "'learning_rate' must be above 0"),
        (["ppo", "--memory", "bptt-99999999"], "a segment is longer than the rollout"),
        (["reinforce", "--hyper", "steps=2"], "reinforce learns from whole episodes of up to 8 steps"),
        (["td3"], "td3 needs continuous actions"),
        (
            ["sac", *REAL, "--memory", "bptt-9"],
            "a segment is longer than an episode, which has 8 steps",
        ),
        (
            ["sac", *REAL, "--memory", "s2pg-pathwise"],
            "learns z' through dQ/dz' already",
        ),
        (
            ["sac", *REAL, "--hyper", "batch_size=2000"],
            "a batch of 2000 is larger than what the buffer holds",
        ),
        (["sac", *REAL, "--hyper", "capacity=1e12"], "GiB: make 'capacity' smaller"),
        (["sac", *REAL, "--steps", "500"], "500 steps are all warm-up"),
        (["ppo", "--task", "gym:Pendulum-v1", "--set", "hide=2.5"], "hide must be indices"),
        (["ppo", "--task", "gym:Pendulum-v1", "--set", "max_episode_steps=5"], "is set by the option horizon"),
        (["ppo", "--task", "gym:Pendulum-v1", "--set", "hide=7"], "cannot hide entry 7"),
        (["ppo", "--task", "gym:NoSuch-v1"], "cannot make gym:NoSuch-v1"),
        (["ppo", "--task", "gym:Blackjack-v1", "--set", "hide=x"], "hide must be indices"),
    ],
)
def test_a_mistake_in_training_gets_one_line_and_leaves_nothing(args: list[str], told: str, tmp_path: Path, capsys):
    task = [] if "--task" in args else ["--task", "recall"]
    assert call("train", *args, *task) == 2
    out, err = capsys.readouterr()
    assert told in err
    assert err.startswith("s2pg: ") and len(err.strip().splitlines()) == 1
    assert out == "" and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "args", [["train", "ppo"], ["train", "ppo", "--task", "recall", "--steps", "many"], ["trian"], [], ["plot", "run"]]
)
def test_arguments_that_do_not_parse_get_exit_code_2(args: list[str], tmp_path: Path, capsys):
    assert call(*args) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["eval", "nowhere"], "nowhere is no run folder"),
        (["plot", "nowhere", "-o", "a.png"], "nowhere is no run folder"),
        (["plot", "-o", "a.png"], "no run folder was named"),
        (["list", "recal"], "unknown name 'recal'; did you mean recall"),
        (["list", "bptt-0"], "a segment has 1 step or more"),
        (["bench", "memry"], "unknown benchmark 'memry'; did you mean memory?"),
        (["bench", "memory", "--rounds", "0"], "rounds of a benchmark must be 1 or more"),
    ],
)
def test_a_mistake_elsewhere_gets_one_line(args: list[str], told: str, tmp_path: Path, capsys):
    assert call(*args) == 2
    err = capsys.readouterr().err
    assert told in err and len(err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_mistakes_about_a_run_are_told(run: Path, capsys):
    for args, told in (
        (["--seed", "9"], "has no seed 9; it has 0, 1"),
        (["--episodes", "0"], "episodes must be 1 or more"),
        (["--video", "a.avi"], "cannot film a.avi"),
        (["--eval-seed", "-1"], "--eval-seed must lie between"),
    ):
        assert call("eval", str(run), *args) == 2
        err = capsys.readouterr().err
        assert told in err and len(err.strip().splitlines()) == 1
    assert call("plot", str(run), "-o", "a.bmp") == 2
    assert "cannot draw a.bmp" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_gets_one_line(run: Path, tmp_path: Path, capsys):
    (tmp_path / "file").touch()
    assert call(*RECALL, "--out", "file/run") == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("s2pg: ")
    assert call("plot", str(run), "-o", "file/a.png") == 2


def test_a_run_that_exists_is_refused_and_untouched(run: Path, capsys):
    before = files(run)
    assert call(*RECALL, "--steps", "2048", "--out", str(run)) == 2
    assert "is a run already: --resume goes on" in capsys.readouterr().err
    assert files(run) == before


def test_resuming_with_another_option_is_refused(run: Path, capsys):
    before = files(run)
    assert call(*RECALL, "--steps", "4096", "--critic", "critic", "--out", str(run), "--resume") == 2
    err = capsys.readouterr().err
    assert "critic was policy and is now critic; only steps may differ" in err
    assert len([line for line in err.splitlines() if line.startswith("s2pg:")]) == 1
    assert files(run) == before


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    assert call(*RECALL, "--out", "mine") == 2
    assert "exists and is no run" in capsys.readouterr().err
    assert call("demo", "--quick", "--out", "mine") == 2
    assert "exists and is no demo" in capsys.readouterr().err
    assert files(tmp_path) == {"mine/thesis.tex": b"years of work"}


def test_training_tells_how_far_it_is_and_how_to_go_on(capsys):
    assert call(*RECALL, "--steps", "2048", "--out", "r") == 0
    out, err = capsys.readouterr()
    assert "s2pg eval r" in out
    assert "compiling" in err and "2,048/2,048 steps" in err and "return" in err
    assert len(err.splitlines()) <= 11
    assert call(*RECALL, "--steps", "2304", "--out", "r", "--resume") == 0
    assert "2,304/2,304 steps" in capsys.readouterr().err


def test_eval_prints_json_of_every_seed_and_repeats_itself(run: Path, capsys):
    def report(*args: str) -> dict:
        assert call("eval", str(run), "--json", "--episodes", "16", *args) == 0
        return json.loads(capsys.readouterr().out)

    both = report()
    assert both["schema"] == 1 and [row["seed"] for row in both["seeds"]] == [0, 1]
    assert both["iqm"] == pytest.approx(np.mean([row["mean"] for row in both["seeds"]]))
    assert all(0 <= row["min"] <= row["mean"] <= row["max"] <= 1 for row in both["seeds"])
    horizon = json.loads((run / "config.json").read_text())["spec"]["horizon"]
    assert {row["length"] for row in both["seeds"]} == {horizon}  # nothing ends it early
    assert report("--seed", "1")["seeds"] == both["seeds"][1:]
    assert report("--stochastic")["stochastic"] is True


def test_eval_prints_a_table_and_films(run: Path, tmp_path: Path, capsys):
    assert call("eval", str(run), "--episodes", "4", "--video", "film.gif") == 0
    assert "IQM over seeds" in capsys.readouterr().out
    assert (tmp_path / "film.gif").read_bytes().startswith(b"GIF8")


def test_eval_takes_other_options_of_the_task_that_show_the_same(run: Path, capsys):
    assert call("eval", str(run), "--json", "--episodes", "4", "--set", "k=2") == 0
    assert json.loads(capsys.readouterr().out)["iqm"] <= 1
    assert call("eval", str(run), "--episodes", "4", "--set", "length=2") == 2
    assert "unknown option of task recall 'length'" in capsys.readouterr().err


@pytest.fixture(scope="module")
def robot_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "hopper"
    small = ["--hyper", "lanes=2", "steps=8", "size=4", "width=4", "epochs=1", "minibatches=1"]
    task = ["--task", "hopper", "--set", "horizon=8", "backend=gymnasium", "--memory", "none"]
    rest = ["--steps", "16", "--borders", "1", "--episodes", "2", "--out", str(out)]
    assert call("train", "ppo", *task, *small, *rest) == 0
    return out


def test_a_robot_is_evaluated_with_other_masses(robot_run: Path, capsys):
    # Masses are in the critic's view alone: a policy that has not seen any may meet them.
    assert call("eval", str(robot_run), "--episodes", "3", "--json", "--set", "masses=0.3", "noise=0.1") == 0
    assert json.loads(capsys.readouterr().out)["seeds"][0]["min"] > 0


def test_a_host_task_trains_and_evaluates(capsys):
    small = ["--hyper", "lanes=2", "steps=4", "size=4", "width=4", "epochs=1", "minibatches=1"]
    args = ["--task", "gym:s2pg/Recall-v0", "--set", "k=3", "--memory", "none", *small, "--steps", "16"]
    assert call("train", "ppo", *args, "--episodes", "2", "--out", "host") == 0
    capsys.readouterr()
    assert call("eval", "host", "--episodes", "3", "--json", "--video", "host.gif") == 0
    assert 0 <= json.loads(capsys.readouterr().out)["iqm"] <= 1
    assert Path("host.gif").stat().st_size


def test_plot_draws_and_prints_where_runs_ended(run: Path, tmp_path: Path, capsys):
    assert call("plot", str(run), "-o", "curves.png") == 0
    assert "2,048" in capsys.readouterr().out
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_list_names_every_axis_in_lines_that_fit_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert call("list") == 0
    lines = capsys.readouterr().out.splitlines()
    # A description that did not fit would go on in a line of its own, without a name before it.
    assert max(map(len, lines)) <= 80 and not [line for line in lines if line.startswith("   ") and line.strip()]
    for name in (*TASKS, "gym:ID", *ALGORITHMS, *LABELS, *KERNELS):
        assert any(line.startswith(f" {name} ") for line in lines), name


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ppo", ("kl_stop", "0.2", "clip(ratio", "masked-pendulum")),
        ("sac", ("alpha_state", "full state unless --critic policy", "branched")),
        ("reinforce", ("the horizon", "Lemma 1")),
        ("recall", ("cue", "bit", "entropy_action=0.01")),
        ("ant", ("masses", "backend", "cpg")),
        ("gym:Pendulum-v1", ("hide", "horizon")),
        ("bptt-16", ("segments of N steps",)),
        ("cpg", ("oscillators", "state_log_std=-4.0")),
        ("gru", ("gated recurrent unit",)),
    ],
)
def test_list_tells_all_about_one_name(name: str, told: tuple[str, ...], capsys):
    assert call("list", name) == 0
    out = " ".join(capsys.readouterr().out.split())
    for text in told:
        assert text in out


def test_every_option_and_hyper_parameter_is_explained():
    known = {name: each for cls in ALGORITHMS for kernel in KERNELS for name, each in settings(cls, kernel).items()}
    for task in (*TASKS, *(f"{prefix}ID" for prefix in PREFIXES)):
        known |= {f"{task} {name}": each for name, each in task_settings(task).items()}
    assert len(known) > 80 and not [name for name, each in known.items() if not each.option.help]


def test_bench_reports_medians_and_ratios(tmp_path: Path, capsys):
    sizes = ["--rounds", "2", "--lanes", "4", "--steps", "4", "--width", "8", "--labels", "none", "oracle"]
    assert call("bench", "memory", *sizes, "--json", "--out", "deep/bench.json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((tmp_path / "deep" / "bench.json").read_text())
    assert {"schema", "name", "hardware", "versions", "settings", "rows"} == set(report)
    assert [row["label"] for row in report["rows"]] == ["none", "oracle"]
    assert report["rows"][0]["ratio"] == 1.0
    assert all(row["seconds"] > 0 and row["spread"] >= 0 for row in report["rows"])
    assert call("bench", "memory", *sizes, "bptt-9") == 2
    assert "longer than the rollout" in capsys.readouterr().err


def test_bench_of_off_policy_updates_gives_equal_parameters_and_shares_of_the_matrix_rate(capsys):
    sizes = ["--rounds", "1", "--batch", "4", "--width", "16", "--labels", "none"]
    assert call("bench", "offpolicy", *sizes, "--out", "bench.json") == 0
    assert "share" in capsys.readouterr().out
    rows = {row["label"]: row for row in json.loads(Path("bench.json").read_text())["rows"]}
    assert list(rows) == ["none", "s2pg, stepping", "slac window-8", "matrices"]
    assert abs(rows["none"]["parameters"] / rows["s2pg, stepping"]["parameters"] - 1) < 0.15
    assert rows["matrices"]["share"] == 1.0 and all(row["share"] > 0 for row in rows.values())


def test_bench_of_imitation_learns_from_an_expert_too(capsys):
    sizes = ["--rounds", "1", "--batch", "4", "--width", "16", "--labels", "none", "s2pg"]
    assert call("bench", "imitation", *sizes, "--json") == 0
    rows = {row["label"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert list(rows) == ["none", "s2pg"]
    assert abs(rows["none"]["parameters"] / rows["s2pg"]["parameters"] - 1) < 0.15


def test_the_demo_leaves_table_plot_and_film_and_can_be_repeated(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setitem(demo.QUICK, "labels", (demo.FILMED,))
    for _ in range(2):
        assert call("demo", "--quick") == 0
        assert "s2pg-pathwise" in capsys.readouterr().out
        left = tmp_path / "demo"
        assert (left / "curves.png").read_bytes().startswith(b"\x89PNG")
        assert (left / "memory.gif").read_bytes().startswith(b"GIF8")
        assert "steps/s" in (left / "table.txt").read_text()
        (left / "notes.txt").write_text("mine")
    assert (tmp_path / "demo" / "notes.txt").exists()


def test_divergence_names_the_last_good_checkpoint(capsys):
    absurd = ["--hyper", "lanes=32", "steps=8", "width=8", "learning_rate=1e38", "max_grad_norm=1e38"]
    args = ["--task", "recall", "--memory", "none", *absurd, "--steps", "512", "--episodes", "8", "--out", "r"]
    assert call("train", "ppo", *args) == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("s2pg: ") and "is not finite at update" in told and "checkpoint" in told


@pytest.mark.parametrize("command", [["--help"], *([name, "--help"] for name in COMMANDS)])
def test_every_command_has_help_that_keeps_to_the_width_of_the_terminal(command: list[str], capsys):
    assert call(*command) == 0
    out = capsys.readouterr().out
    assert ("usage: s2pg" in out and "default" in out) or command == ["--help"]
    lines = [line for line in out.splitlines() if "{train," not in line]  # the list of commands has no place to break
    assert max(map(len, lines)) <= 101  # a space of no width counts as one here


def test_help_says_what_may_differ_when_a_run_is_resumed_and_what_is_no_longer_bit_for_bit(capsys):
    told = {}
    for command in ("train", "distill"):
        call(command, "--help")
        told[command] = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "only --steps, --devices and --log may differ" in told["train"]
    assert "up to rounding, not bit for bit" in told["train"] and "unless --devices differs" in told["train"]
    assert "only --steps and --log may differ" in told["distill"]


def test_the_list_of_commands_says_of_each_what_its_class_does():
    for entry in COMMANDS.values():
        assert (inspect.getdoc(load(entry)) or "").partition("\n")[0] == entry.line


@pytest.mark.parametrize("command", [["--help"], ["report", "RUN", "-o", "a.html"], ["report", "--help"]])
def test_help_and_reports_need_no_jax(command: list[str], run: Path, tmp_path: Path):
    script = (
        "import sys; from s2pg.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: assert not {'jax', 'mujoco', 'scipy'} & sys.modules.keys()"
    )
    words = [str(run) if word == "RUN" else word for word in command]
    done = subprocess.run([sys.executable, "-c", script, *words], check=False, cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "-o" not in command or (tmp_path / "a.html").exists()


# One call for every place in the command line's own files that refuses something.
REFUSED = [
    (["train", "ppo", "--task", "recall", "--set", "k"], "--set takes NAME=VALUE"),
    (["train", "ppo", "--task", "recall", "--set", "k=2", "k=3"], "--set names 'k' twice"),
    (["eval", "RUN", "--episodes", "0"], "episodes must be 1 or more"),
    (["eval", "RUN", "--eval-seed", "-1"], "--eval-seed must lie between"),
    (["eval", "ROBOT", "--set", "hide=none"], "the view 'policy' is another than the policy was trained on"),
    (["list", "recal"], "unknown name 'recal'"),
    (["theory", "varience"], "unknown figure 'varience'; did you mean variance?"),
    (["theory", "bias", "--out", "x.png", "--json", "x.png"], "figure and numbers cannot both go to x.png"),
    (["study", "QUICK", "--cell", "recall"], "has no cell 'recall'; there are recall-ppo-s2pg, "),
    (["study", "QUICK", "--cell", "recall-ppo-s2pg", "--out", "RUN"], "exists and is no study: --out names another"),
    (["report"], "no folder was named"),
    (["report", "RUN", "--films", "-1"], "--films must be 0 or more"),
    (["report", "RUN", "--value", "eval_retrun"], "unknown metric 'eval_retrun'; did you mean eval_return"),
    (["report", "BEGUN"], "has returns yet"),
    (["watch"], "no folder was named"),
    (["watch", "RUN", "--port", "70000"], "--port must lie between 0 and 65535"),
]


def refusals() -> set[tuple[str, int]]:
    """Every line of the command line's own files that raises a `UserError`, by itself or through `unknown`."""
    found = set()
    for path in Path(cli.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            call = node.exc if isinstance(node, ast.Raise) else None
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("UserError", "unknown"):
                found.add((path.name, node.lineno))
    return found


def test_every_refusal_of_the_command_line_is_reached_and_takes_one_line(
    run: Path, robot_run: Path, tmp_path: Path, capsys
):
    reached, wanted, places = set(), refusals(), {"RUN": str(run), "ROBOT": str(robot_run)}
    places["BEGUN"] = str(tmp_path)
    (tmp_path / "config.json").write_bytes((run / "config.json").read_bytes())
    places["QUICK"] = str(Path(__file__).parents[1] / "studies" / "quick.toml")

    def trace(frame, event, arg):
        name = Path(frame.f_code.co_filename)
        if name.parent.name != "cli":
            return None
        reached.add((name.name, frame.f_lineno))
        return trace

    for args, told in REFUSED:
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            code = call(*(places.get(arg, arg) for arg in args))
        finally:
            sys.settrace(before)
        err = capsys.readouterr().err
        assert code == 2 and told in err and len(err.strip().splitlines()) == 1, (args, err)
    assert wanted and not wanted - reached, wanted - reached


def test_ctrl_c_leaves_a_run_that_can_be_resumed(monkeypatch: pytest.MonkeyPatch, capsys):
    report = Watch.report

    def interrupted(self: Watch, border: Border) -> None:
        report(self, border)
        if border.step == 512:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:  # undoing all of it would undo the change of directory as well
        patch.setattr(Watch, "report", interrupted)
        assert call(*RECALL, "--steps", "2048", "--out", "r") == 130
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err
    assert err.splitlines()[-1] == "s2pg: stopped at step 512; the same command goes on with --resume"
    assert call(*RECALL, "--steps", "2048", "--out", "r", "--resume") == 0
    steps = [row["step"] for row in read_metrics("r/metrics.jsonl") if row["seed"] == 0]
    assert steps == sorted(set(steps)) and 512 in steps and steps[-1] == 2048


def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "s2pg", "list", "nothing"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("s2pg: unknown name 'nothing'") and len(done.stderr.splitlines()) == 1


def test_ctrl_c_ends_the_demo_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys):
    def interrupted(*args, **kwargs):
        raise training.Interruption

    monkeypatch.setattr("s2pg.demo.train", interrupted)
    assert call("demo", "--quick") == 130
    assert capsys.readouterr().err.strip().splitlines()[-1] == "s2pg: stopped"


def test_a_metric_that_no_run_has_is_not_replaced_by_another(run: Path, tmp_path: Path, capsys):
    assert call("plot", str(run), "-o", str(tmp_path / "a.png"), "--value", "eval_retrun") == 2
    assert "did you mean eval_return" in capsys.readouterr().err
