"""PPO on POPGym's Easy tasks: a case is a task and a label, each a process on one core, several of them side by side.

    python benchmarks/popgym/measure.py --out FOLDER --beside 16 --seconds 550     trains, goes on with what is there
    python benchmarks/popgym/measure.py --plot FOLDER --into benchmarks/popgym     results.json, returns.png, the tables

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
    """Writes results.json and returns.png, prints the tables of benchmarks/README.md.

    What results.json held already and is not measured anew stays in it, so that tasks can be measured one by one.
    """
    from s2pg.io.sinks import write_json

    runs = [config.parent for config in sorted(where.glob("*/config.json")) if metrics(config.parent)]
    if not runs:
        raise SystemExit(f"{where} holds no run that was evaluated")
    file = into / "results.json"
    before = json.loads(file.read_text())["runs"] if file.exists() else []
    found = {(each["task"], each["label"]): each for each in [*before, *map(result, runs)]}
    facts = json.loads((runs[0] / "config.json").read_text())
    into.mkdir(parents=True, exist_ok=True)
    results = [found[key] for key in sorted(found)]
    write_json(file, {name: facts[name] for name in ("hardware", "versions")} | {"runs": results})
    tasks, labels = sorted({task for task, _ in found}), _ordered({label for _, label in found})
    for name, title in (("mmer", "MMER"), ("final", "deterministic evaluation at the end")):
        print(f"\n{title}, mean ± deviation over seeds\n")
        _print_table({key: _cell(each[name]) for key, each in found.items()}, tasks, labels)
    draw(found, tasks, labels, into / "returns.png")


def _cell(values: list[float]) -> str:
    spread = f" ± {np.std(values):.2f}" if len(values) > 1 else ""
    return f"{np.mean(values):.2f}{spread}"


def _ordered(labels: set[str]) -> list[str]:
    """In the order of `LABELS`, others behind."""
    order = [folder(label) for label in LABELS]
    return sorted(labels, key=lambda label: (order.index(label) if label in order else len(order), label))


def _print_table(cells: dict[tuple[str, str], str], tasks: list[str], labels: list[str]) -> None:
    heads = ["task", *(f"`{label}`" for label in labels)]
    rows = [[task, *(cells.get((task, label), "") for label in labels)] for task in tasks]
    for row in (heads, ["---"] * len(heads), *rows):
        print(f"| {' | '.join(row)} |")


def draw(found: dict[tuple[str, str], dict], tasks: list[str], labels: list[str], file: Path) -> None:
    """A line for each task, a mark for each label: the mean of its seeds, which are thin strokes beside it."""
    from s2pg.analysis.plots import PALETTE
    from s2pg.io.figures import figure_class

    figure = figure_class(file)(figsize=(7.5, 0.36 * len(tasks) + 1.3), layout="constrained")
    box = figure.subplots()
    for place, label in enumerate(labels):
        mine = [(at, found[task, label]["final"]) for at, task in enumerate(tasks) if (task, label) in found]
        heights = [at + 0.5 * (place + 0.5) / len(labels) - 0.25 for at, _ in mine]
        colour = PALETTE[place % len(PALETTE)]
        box.plot([np.mean(values) for _, values in mine], heights, "o", markersize=5, color=colour, label=label)
        for height, (_, values) in zip(heights, mine, strict=True):
            box.plot(values, [height] * len(values), "|", markersize=7, color=colour, alpha=0.6)
    box.set_yticks(range(len(tasks)), tasks, fontsize=8)
    box.invert_yaxis()
    box.set_xlabel("return of deterministic episodes at the end")
    box.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside upper center", ncols=len(labels), fontsize=8)
    figure.savefig(file, dpi=110)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="train into run folders here")
    what.add_argument("--plot", type=Path, help="draw and tabulate what was measured there")
    parser.add_argument("--into", type=Path, help="with --plot: add to the results of this folder")
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
        tabulate(args.plot, args.into or args.plot)
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
