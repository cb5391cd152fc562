"""How far dV/dz' should be followed: PPO on recall and repeat-previous, with and without privilege, on a CPU.

    python benchmarks/trust/measure.py --out FOLDER [--beside 2]     trains, a process for each case; again: goes on
    python benchmarks/trust/measure.py --plot FOLDER                 results.json and the table

The table has the returns of the seeds at the end, and the step from which on all stayed at 0.95 or above.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOLVED = 0.95
# As many processes as cores: threads of their own would only get in each other's way.
ALONE = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "NPROC": "1"}
# name: (task, options, whether the critic sees the full state, steps, evaluations, hyper-parameters)
TASKS = {
    "recall, 24 steps, privileged": ("recall", {"k": 24}, True, 245_760, 12, {}),
    "recall, 24 steps": ("recall", {"k": 24}, False, 245_760, 12, {}),
    "repeat-previous": ("repeat-previous", {}, False, 450_560, 11, {"learning_rate": 1e-3}),
}
CRITICS = {"critic with z alone": {"critic_memory": False}, "critic with a memory": {}}
WEIGHTS = {
    "not followed": {"pathwise_weight": 0.0},
    "followed": {"critic_trust": False},
    "followed at 0.3": {"critic_trust": False, "pathwise_weight": 0.3},
    "as trusted": {},
}


def cases(labels: list[str]) -> dict[str, tuple]:
    """name: (task, label, hyper-parameters)."""
    found = {}
    for task, (_, _, privileged, *_) in TASKS.items():
        for label in labels:
            # What sees the full state needs no memory, and what learns through one step has none.
            plain = privileged or label == "s2pg-pathwise"
            for critic, seen in {"critic": {}}.items() if plain else CRITICS.items():
                for weight, hyper in WEIGHTS.items():
                    found[f"{task} | {label} | {critic} | {weight}"] = task, label, seen | hyper
    return found


def folder(case: str) -> str:
    return "".join(each if each.isalnum() or each in "-." else "_" for each in case)


def one(case: str, out: Path, seeds: int) -> None:
    """Trains a case in this process."""
    import s2pg
    from s2pg.configure import compilation_cache

    compilation_cache()
    task, label, hyper = cases([case.split(" | ")[1]])[case]
    name, options, privileged, steps, borders, own = TASKS[task]
    s2pg.train(
        "ppo", s2pg.make(name, **options), memory=label, critic="critic" if privileged else "policy", hyper=own | hyper,
        seeds=range(seeds), steps=steps, borders=borders, episodes=64, out=out / folder(case), resume=True,
    )  # fmt: skip


def tabulate(out: Path) -> None:
    from s2pg.io.sinks import read_metrics, write_json

    results, facts = [], {}
    for case in cases(["s2pg-pathwise", "s2pg-8"]):
        run = out / folder(case)
        if not (run / "metrics.jsonl").exists():
            continue
        rows = read_metrics(run / "metrics.jsonl")
        steps = sorted({row["step"] for row in rows})
        returns = {step: [row["eval_return"] for row in rows if row["step"] == step] for step in steps}
        solved = None
        for step in reversed(steps):
            if min(returns[step]) < SOLVED:
                break
            solved = step
        config = json.loads((run / "config.json").read_text())
        facts = {name: config[name] for name in ("hardware", "versions")}
        results.append({"case": case, "steps": steps[-1], "returns": returns[steps[-1]], "solved_from": solved})
    write_json(out / "results.json", facts | {"runs": results})
    print("| task | label | critic | dV/dz' is | seeds at the end | all at 0.95 from |\n|---|---|---|---|---|---|")
    for each in results:
        seeds, solved = " ".join(f"{value:.2f}" for value in each["returns"]), each["solved_from"]
        print(f"| {each['case']} | {seeds} | {f'{solved / 1000:.0f}k steps' if solved else 'never'} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="train into run folders here")
    what.add_argument("--plot", type=Path, help="tabulate what was measured there")
    parser.add_argument("--labels", nargs="*", default=["s2pg-pathwise", "s2pg-8"])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--beside", type=int, default=2, help="processes at a time")
    parser.add_argument("--one", help="train this case in this process")
    args = parser.parse_args()
    if args.plot:
        tabulate(args.plot)
        return 0
    if args.one:
        one(args.one, args.out, args.seeds)
        return 0
    command = [sys.executable, __file__, "--out", str(args.out), "--seeds", str(args.seeds), "--one"]
    with ThreadPoolExecutor(args.beside) as pool:
        run = lambda case: subprocess.run([*command, case], env=os.environ | ALONE, check=False).returncode  # noqa: E731
        codes = list(pool.map(run, cases(args.labels)))
    tabulate(args.out)
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
