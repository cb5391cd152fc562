"""Learning on the robots on one GPU: seeds side by side under vmap, one label after the other.

    python benchmarks/robots/learn.py --out FOLDER --cases halfcheetah/s2pg halfcheetah/bptt-32 ...
    python benchmarks/robots/learn.py --plot FOLDER              draws TASK.png, prints the tables

Every case is a run folder of `s2pg train` with the presets, and goes on where it stopped if it is there already. All
compile at once, each in a process of its own, and then train in turn, so that `wall_s` is that of one alone.
`TASK/LABEL:KERNEL` names a kernel, `CASE@NAME=VALUE,...` gives a case hyper-parameters of its own, `CASE+NAME=VALUE`
options of the task, and `CASE!` a privileged critic.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np


def parse(case: str) -> dict:
    case, _, hyper = case.partition("@")
    case, _, options = case.partition("+")
    privileged = case.endswith("!")
    task, _, label = case.rstrip("!").partition("/")
    label, _, kernel = label.partition(":")
    split = lambda text: dict(pair.split("=") for pair in text.split(",") if pair)  # noqa: E731
    return {
        "task": task,
        "label": label,
        "kernel": kernel or None,
        "hyper": split(hyper),
        "options": split(options),
        "privileged": privileged,
    }


def folder(case: str) -> str:
    return "".join(each if each.isalnum() or each in "-=." else "_" for each in case)


def _turn(out: Path, case: str) -> Path:
    """The file that tells a process that it is its turn."""
    return out / f"turn-{folder(case)}"


def one(case: str, args: argparse.Namespace) -> None:
    """Compiles, waits for its turn, trains."""
    import s2pg
    from s2pg.runs.training import Border

    found = parse(case)
    env = s2pg.make(found["task"], backend=args.backend, **found["options"])
    began = time.monotonic()

    def report(border: Border) -> None:
        if border.compiled and not border.rows:
            print(f"{case}: compiled after {time.monotonic() - began:.0f} s", flush=True)
            while not _turn(args.out, case).exists():
                time.sleep(0.1)
        if border.rows:
            returns = [round(row["eval_return"]) for row in border.rows]
            train = [round(row["train_return"]) for row in border.rows if np.isfinite(row["train_return"])]
            speed, wall = border.rows[0]["steps_per_s"], border.rows[0]["wall_s"]
            print(
                f"{case}: {border.step:,} {wall:.0f} s {speed:,.0f}/s return {returns} in training {train}", flush=True
            )

    s2pg.train(
        args.algorithm, env, memory=found["label"], kernel=found["kernel"],
        critic="critic" if found["privileged"] else "policy",
        hyper=found["hyper"],
        seeds=tuple(range(args.seeds)), steps=args.steps, borders=args.borders, episodes=args.episodes,
        out=args.out / folder(case), resume=True, report=report, say=lambda line: print(f"{case}: {line}", flush=True),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="train into run folders here")
    what.add_argument("--plot", type=Path, help="draw and tabulate what was measured there")
    parser.add_argument("--beside", action="store_true", help="--plot: they shared the GPU, so leave seconds out")
    parser.add_argument("--cases", nargs="*", default=[])
    parser.add_argument("--one", help="train this case in this process")
    parser.add_argument("--algorithm", default="ppo")
    parser.add_argument("--steps", type=int, default=10_000_000, help="of each seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--borders", type=int, default=10)
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--backend", default="mjx")
    parser.add_argument("--total", type=float, default=1e9, help="seconds after which all is stopped, to be resumed")
    parser.add_argument("--after", type=Path, help="compile, but train only when this file is there")
    parser.add_argument("--pack", type=Path, help="put configurations and metrics, and what resuming takes, into here")
    args = parser.parse_args()
    if args.plot:
        return plot(args.plot, timed=not args.beside)
    if args.one:
        return one(args.one, args)
    args.out.mkdir(parents=True, exist_ok=True)
    for case in args.cases:
        _turn(args.out, case).unlink(missing_ok=True)
    given = [
        f"--{name}={getattr(args, name)}"
        for name in ("algorithm", "steps", "seeds", "borders", "episodes", "backend", "out")
    ]
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several processes share the GPU
    deadline = time.monotonic() + args.total
    running = {case: subprocess.Popen([sys.executable, __file__, *given, "--one", case]) for case in args.cases}
    while args.after and not args.after.exists() and time.monotonic() < deadline:
        time.sleep(0.5)
    for case, process in running.items():
        _turn(args.out, case).touch()
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
    if args.pack:
        pack(args.out, args.pack)


def pack(out: Path, into: Path) -> None:
    """One file to plot from and one to resume from; replay buffers, which are too large, stay behind."""
    into.mkdir(parents=True, exist_ok=True)
    with tarfile.open(into / "metrics.tar.gz", "w:gz") as metrics, tarfile.open(into / "resume.tar", "w") as resume:
        for run in sorted(path for path in out.iterdir() if (path / "config.json").exists()):
            newest = sorted(each for each in (run / "checkpoints").glob("*") if "replay" not in each.name)[-1:]
            for file in (run / "config.json", run / "metrics.jsonl"):
                if file.exists():
                    metrics.add(file, file.relative_to(out))
                    resume.add(file, file.relative_to(out))
            for file in [*newest, *(run / "policies").glob("*")]:
                resume.add(file, file.relative_to(out))


def plot(where: Path, timed: bool) -> None:
    from s2pg.analysis.plots import curves

    runs: dict[str, list[Path]] = {}
    for config in sorted(where.glob("*/config.json")):
        found = json.loads(config.read_text())
        if not (config.parent / "metrics.jsonl").read_text():  # stopped before its first evaluation
            continue
        kind = "-privileged" if found["critic"] == "critic" else ""
        runs.setdefault(found["task"] + kind, []).append(config.parent)
    for task, folders in runs.items():
        names = ("label", "return", "seeds", "best mean", "steps", *(("training time", "steps/s") if timed else ()))
        print(f"\n{task}\n")
        for row in (names, ["---"] * len(names), *(line(run)[: len(names)] for run in folders)):
            print(f"| {' | '.join(row)} |")
        curves(folders, where / f"{task}.png", seconds=timed)


def line(run: Path) -> list[str]:
    """A line of a table: means over seeds of the deterministic evaluation."""
    rows = [json.loads(text) for text in (run / "metrics.jsonl").read_text().splitlines()]
    steps = sorted({row["step"] for row in rows})
    returns = {step: sorted(row["eval_return"] for row in rows if row["step"] == step) for step in steps}
    last = rows[-1]
    best = max(steps, key=lambda step: np.mean(returns[step]))
    seeds = " ".join(f"{each:.0f}" for each in returns[steps[-1]])
    rate = np.median([row["steps_per_s"] for row in rows])
    end = f"{np.mean(returns[steps[-1]]):.0f} ± {np.std(returns[steps[-1]]):.0f}"
    top = f"{np.mean(returns[best]):.0f} ({best / 1e6:.1f}M)"
    return [f"`{run.name}`", end, seeds, top, f"{steps[-1] / 1e6:.1f}M", f"{last['wall_s']:.0f} s", f"{rate:,.0f}"]


if __name__ == "__main__":
    main()
