"""PPO on POPGym's Easy tasks: a case is a task and a label, each a process on one core, several of them side by side.

    python benchmarks/popgym/measure.py --out FOLDER --beside 16 --seconds 550     trains, goes on with what is there
    python benchmarks/popgym/measure.py --plot FOLDER                              results.json, curves.png, the tables

Every case is a run folder of `s2pg.train` with the presets and a critic that sees what the policy sees; its seeds step
together. When `--seconds` are over all are stopped, and nothing but what followed their last border is lost. `--pack`
and `--unpack` are those of benchmarks/learn.py. A label is LABEL[:KERNEL][@HYPER=VALUE,...].

`MMER` is the score of POPGym's authors: the highest mean return of training episodes that a seed ever had, here within
the updates between two borders; then the mean over seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from learn import folder, pack, parse, unpack

# Without the two labyrinths, which POPGym itself warns of: they can be solved without memory.
TASKS = (
    "AutoencodeEasy", "BattleshipEasy", "ConcentrationEasy", "CountRecallEasy", "HigherLowerEasy", "MineSweeperEasy",
    "MultiarmedBanditEasy", "NoisyPositionOnlyCartPoleEasy", "NoisyPositionOnlyPendulumEasy",
    "PositionOnlyCartPoleEasy", "PositionOnlyPendulumEasy", "RepeatFirstEasy", "RepeatPreviousEasy",
    "VelocityOnlyCartpoleEasy",
)  # fmt: skip
LABELS = ("s2pg", "s2pg-8", "bptt-32", "bptt-64:mingru", "window-8", "none")
# One process has one core: threads of its own would only get in each other's way. The networks are too small for a GPU.
ALONE = {
    "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "NPROC": "1", "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
}  # fmt: skip


def one(case: str, args: argparse.Namespace) -> None:
    """Trains a case in this process, on its core alone."""
    os.sched_setaffinity(0, {args.core})
    import s2pg
    from s2pg.configure import compilation_cache
    from s2pg.runs.training import Border

    def report(border: Border) -> None:
        if border.rows:
            returns = [round(row["eval_return"], 2) for row in border.rows]
            print(f"{case}: {border.step:,} {border.rows[0]['steps_per_s']:,.0f}/s return {returns}", flush=True)

    compilation_cache()
    found = parse(case)
    s2pg.train(
        "ppo", s2pg.make(f"gym:popgym:popgym-{found['task']}-v0"), memory=found["label"], kernel=found["kernel"],
        critic="policy", hyper=found["hyper"], seeds=range(args.seeds), steps=args.steps, borders=args.borders,
        episodes=args.episodes, out=args.out / folder(case), resume=True, report=report,
        say=lambda line: print(f"{case}: {line}", flush=True),
    )  # fmt: skip


def run_all(cases: list[str], args: argparse.Namespace) -> bool:
    """Keeps `--beside` processes at work until all is done or the time is over; whether a case failed."""
    given = [f"--{name}={getattr(args, name)}" for name in ("steps", "seeds", "borders", "episodes", "out")]
    deadline, cores = time.monotonic() + args.seconds, sorted(os.sched_getaffinity(0))
    free, failed = [cores[i % len(cores)] for i in range(args.beside)], False
    waiting = [case for case in cases if reached(args.out / folder(case)) < args.steps]
    running: dict[str, tuple[subprocess.Popen, int]] = {}
    while (waiting or running) and time.monotonic() < deadline:
        while waiting and free:
            case, core = waiting.pop(0), free.pop(0)
            command = [sys.executable, __file__, *given, "--one", case, "--core", str(core)]
            running[case] = subprocess.Popen(command, env=os.environ | ALONE), core
        for case, (process, core) in list(running.items()):
            if process.poll() is not None:
                print(f"{case}: ended with {process.returncode}", flush=True)
                failed |= process.returncode != 0
                free.append(core)
                del running[case]
        time.sleep(0.2)
    for process, _ in running.values():
        process.kill()
        process.wait()
    print(f"{len(cases) - len(waiting) - len(running)} of {len(cases)} cases are done", flush=True)
    return failed


def reached(run: Path) -> int:
    """How many steps a run has made so far."""
    rows = metrics(run)
    return rows[-1]["step"] if rows else 0


def metrics(run: Path) -> list[dict]:
    from s2pg.io.sinks import read_metrics

    return read_metrics(run / "metrics.jsonl") if (run / "metrics.jsonl").exists() else []


def result(run: Path) -> dict:
    """What came of a run, for each of its seeds."""
    rows, config = metrics(run), json.loads((run / "config.json").read_text())
    seeds = sorted({row["seed"] for row in rows})
    per_seed = [[row for row in rows if row["seed"] == seed] for seed in seeds]
    trained = [[row["train_return"] for row in mine if row.get("train_return") is not None] for mine in per_seed]
    return {
        "task": config["task"].removeprefix("gym:popgym:popgym-").removesuffix("-v0"),
        "label": run.name.partition("_")[2],  # with its kernel and hyper-parameters
        "steps": rows[-1]["step"],
        "final": [mine[-1]["eval_return"] for mine in per_seed],
        "mmer": [float(np.nanmax([np.nan, *mine])) for mine in trained],
        "steps_per_s": float(np.median([row["steps_per_s"] for row in rows])),
        "wall_s": rows[-1]["wall_s"],
    }


def tabulate(where: Path, into: Path) -> None:
    """Writes results.json and curves.png, prints the tables of benchmarks/README.md."""
    from s2pg.io.sinks import write_json

    runs = [config.parent for config in sorted(where.glob("*/config.json")) if metrics(config.parent)]
    if not runs:
        raise SystemExit(f"{where} holds no run that was evaluated")
    results = [result(run) for run in runs]
    facts = json.loads((runs[0] / "config.json").read_text())
    into.mkdir(parents=True, exist_ok=True)
    write_json(into / "results.json", {name: facts[name] for name in ("hardware", "versions")} | {"runs": results})
    found = {(each["task"], each["label"]): each for each in results}
    tasks, labels = sorted({task for task, _ in found}), _ordered({label for _, label in found})
    for name, title in (("mmer", "MMER"), ("final", "deterministic evaluation at the end")):
        print(f"\n{title}, mean ± deviation over seeds\n")
        cells = {key: f"{np.mean(each[name]):.2f} ± {np.std(each[name]):.2f}" for key, each in found.items()}
        _print_table(cells, tasks, labels)
    print("\nsteps/s of all seeds together, on one core (steps of each seed)\n")
    cells = {key: f"{each['steps_per_s']:,.0f} ({each['steps'] / 1e6:.2f}M)" for key, each in found.items()}
    _print_table(cells, tasks, labels)
    draw(runs, tasks, labels, into / "curves.png")


def _ordered(labels: set[str]) -> list[str]:
    """In the order of `LABELS`, others behind."""
    order = [folder(label) for label in LABELS]
    return sorted(labels, key=lambda label: (order.index(label) if label in order else len(order), label))


def _print_table(cells: dict[tuple[str, str], str], tasks: list[str], labels: list[str]) -> None:
    heads = ["task", *(f"`{label}`" for label in labels)]
    rows = [[task, *(cells.get((task, label), "") for label in labels)] for task in tasks]
    for row in (heads, ["---"] * len(heads), *rows):
        print(f"| {' | '.join(row)} |")


def draw(runs: list[Path], tasks: list[str], labels: list[str], file: Path) -> None:
    """The mean return of training episodes over steps, of which MMER is the highest point; one box a task."""
    from s2pg.analysis.logs import read
    from s2pg.analysis.plots import PALETTE
    from s2pg.io.figures import figure_class

    columns = min(4, len(tasks))
    lines = -(-len(tasks) // columns)
    figure = figure_class(file)(figsize=(3.4 * columns, 2.6 * lines + 0.4), layout="constrained")
    boxes = dict(zip(tasks, np.ravel(figure.subplots(lines, columns, squeeze=False)), strict=False))
    for run in runs:
        found = result(run)
        steps, _, values = read(run).points("train_return")
        colour = PALETTE[labels.index(found["label"]) % len(PALETTE)]
        boxes[found["task"]].plot(steps, values.mean(axis=0), color=colour, label=found["label"])
    for task, box in boxes.items():
        box.set_title(task, fontsize=9)
        box.tick_params(labelsize=7)
    for box in figure.axes[len(tasks) :]:
        box.set_axis_off()
    shown = {text: line for box in boxes.values() for line, text in zip(*box.get_legend_handles_labels(), strict=True)}
    figure.legend([shown[text] for text in labels if text in shown], [text for text in labels if text in shown],
                  loc="outside lower center", ncols=len(labels), fontsize=8)  # fmt: skip
    figure.savefig(file, dpi=110)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="train into run folders here")
    what.add_argument("--plot", type=Path, help="draw and tabulate what was measured there")
    parser.add_argument("--tasks", nargs="*", default=TASKS, help="ids without popgym- and -v0")
    parser.add_argument("--labels", nargs="*", default=LABELS)
    parser.add_argument("--one", help="train this case in this process, on --core")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1_000_000, help="of each seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--borders", type=int, default=20, help="evaluations and checkpoints on the way")
    parser.add_argument("--episodes", type=int, default=32, help="of an evaluation")
    parser.add_argument("--beside", type=int, default=1, help="cases that train at a time, one core each")
    parser.add_argument("--seconds", type=float, default=1e9, help="after which all is stopped, to be resumed")
    parser.add_argument("--pack", type=Path, help="put results, metrics and what resuming takes into here")
    parser.add_argument("--unpack", type=Path, help="go on from what --pack left here")
    args = parser.parse_args()
    if args.plot:
        tabulate(args.plot, args.plot)
        return 0
    if args.one:
        one(args.one, args)
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    if args.unpack:
        unpack(args.unpack, args.out)
    failed = run_all([f"{task}/{label}" for task in args.tasks for label in args.labels], args)
    tabulate(args.out, args.pack or args.out)
    if args.pack:
        pack(args.out, args.pack)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
