"""PPO on pointmass-goal on one GPU: 8 seeds side by side for 75 s of training, and the speed of one seed.

    python benchmarks/pointmass-goal/measure.py --out FOLDER     measures, writes as it goes
    python benchmarks/pointmass-goal/measure.py --plot FOLDER    draws curves.png and prints the table

Training time does not count compilation or evaluation. Returns are means over 256 deterministic episodes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

# All labels share networks (GRU or MLP of 64), batches, epochs and rate, as found by short sweeps; the rate falls to 0
# over about the updates that fit into the time.
COMMON = {"minibatches": 4, "epochs": 4, "learning_rate": 5e-4, "lanes": 1024, "steps": 64}
LEARN = [  # name, memory label, hyper-parameters, updates between evaluations
    ("s2pg-pathwise", "s2pg-pathwise", {"drift_cost": 0.1, "anneal_updates": 1750}, 50),
    ("bptt-32", "bptt-32", {"anneal_updates": 1000}, 20),
    ("bptt-64", "bptt-64", {"anneal_updates": 800}, 20),
    ("bptt-32, critic without z", "bptt-32", {"anneal_updates": 1000, "critic_state": False}, 20),
    ("none", "none", {"anneal_updates": 4000}, 100),
]
SPEED = [("s2pg", {}), ("s2pg-pathwise", {})]


def speed(label: str, hyper: dict, chunk: int = 50, rounds: int = 5) -> dict:
    """Environment steps per second of training, one seed, 2048 environments x 32 steps, 4 epochs x 4 minibatches."""
    loop, algorithm, _ = prepare(label, (0,), chunk, COMMON | {"lanes": 2048, "steps": 32} | hyper)
    state = loop.init()
    loop.prepare(state)
    seconds = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        state, _ = loop.advance(state)
        seconds.append(time.perf_counter() - began)
    rates = [chunk * algorithm.lanes * algorithm.steps / each for each in seconds[1:]]
    return {"kind": "speed", "label": label, "steps_per_s": float(np.median(rates)), "spread": float(np.ptp(rates))}


def prepare(label: str, seeds: tuple[int, ...], chunk: int, hyper: dict) -> tuple:
    import s2pg
    from s2pg.loops import DeviceLoop
    from s2pg.runs.experiment import resolve
    from s2pg.runs.request import Request

    env = s2pg.make("pointmass-goal")
    request = Request("ppo", "pointmass-goal", memory=label, critic="critic", hyper=hyper, seeds=seeds)
    experiment, algorithm = resolve(request, env)
    return DeviceLoop(algorithm, env, seeds, chunk, 256), algorithm, experiment


def learn(name: str, label: str, hyper: dict, chunk: int, budget: float, seeds: tuple[int, ...], write) -> None:
    loop, algorithm, experiment = prepare(label, seeds, chunk, COMMON | hyper)
    write({"kind": "config", "label": name, "memory": label, "hyper": experiment.hyper, "algorithm": "ppo"})
    state = loop.init()
    loop.prepare(state)
    wall, step = 0.0, 0
    while wall < budget:
        began = time.perf_counter()
        state, metrics = loop.advance(state)
        seconds = time.perf_counter() - began
        wall, step = wall + seconds, step + chunk * algorithm.lanes * algorithm.steps
        rate = len(seeds) * chunk * algorithm.lanes * algorithm.steps / seconds
        measured = loop.evaluate(state) | {"kl": metrics["kl"].mean(1), "drift": metrics["drift"].mean(1)}
        for i, seed in enumerate(seeds):
            row = {"kind": "row", "label": name, "seed": seed, "step": step}
            row |= {"wall_s": round(wall, 3), "steps_per_s": round(rate)}
            write(row | {name: round(float(values[i]), 4) for name, values in measured.items()})
    last = measured["eval_return"]
    spread = f"{last.min():.1f} to {last.max():.1f}"
    print(f"{name}: median {np.median(last):.1f}, {spread}, {step / 1e6:.0f}M steps a seed in {wall:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="measure, and write rows.jsonl here")
    what.add_argument("--plot", type=Path, help="draw and tabulate what was measured there")
    parser.add_argument("--seconds", type=float, default=75.0)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--total", type=float, default=1e9, help="seconds after which no label is started")
    args = parser.parse_args()
    if args.plot:
        return plot(args.plot)
    began = time.monotonic()
    import jax

    from s2pg.io.provenance import hardware, versions

    args.out.mkdir(parents=True, exist_ok=True)
    with (args.out / "rows.jsonl").open("w") as file:

        def write(row: dict) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()

        write({"kind": "machine", "hardware": hardware(), "versions": versions() | {"jax": jax.__version__}})
        for label, hyper in SPEED:
            write(row := speed(label, hyper))
            print(f"{label}: {row['steps_per_s'] / 1e6:.2f}M steps/s with one seed", flush=True)
        for name, label, hyper, chunk in LEARN:
            left = began + args.total - time.monotonic() - 25  # compiling and evaluating take about so long
            if left > 20:
                learn(name, label, hyper, chunk, min(args.seconds, left), tuple(range(args.seeds)), write)


def plot(folder: Path) -> None:
    """As run folders, so that the library's own plot serves; and the table of benchmarks/README.md."""
    from s2pg.analysis.plots import curves

    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    with tempfile.TemporaryDirectory() as scratch:
        runs = []
        for config in (row for row in rows if row["kind"] == "config"):
            run = Path(scratch) / config["label"].replace(" ", "-")
            run.mkdir()
            runs.append(run)
            same = {"task": "pointmass-goal", "kernel": "", "critic": "critic", "options": {}, "seeds": []}
            (run / "config.json").write_text(json.dumps(same | {"memory": config["label"], "algorithm": "ppo"}))
            mine = [row for row in rows if row["kind"] == "row" and row["label"] == config["label"]]
            (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in mine))
            print(line(config["label"], mine))
        curves(runs, folder / "curves.png", floors={"scripted oracle": 126.0})


def line(label: str, rows: list[dict], target: float = 113.0, limit: float = 75.5) -> str:
    """A line of the table: medians over seeds of what was evaluated within the time."""
    times = sorted({row["wall_s"] for row in rows if row["wall_s"] <= limit})
    returns = {time: sorted(row["eval_return"] for row in rows if row["wall_s"] == time) for time in times}
    median = {time: float(np.median(returns[time])) for time in times}
    best = max(times, key=median.__getitem__)
    reached = next((f"{time:.0f} s" for time in times if median[time] >= target), "never")
    seeds = " ".join(f"{each:.0f}" for each in returns[times[-1]])
    rate = float(np.median([row["steps_per_s"] for row in rows])) / 1e6
    end = f"{median[times[-1]]:.1f} ({times[-1]:.0f} s)"
    return f"| {label} | {end} | {median[best]:.1f} ({best:.0f} s) | {reached} | {seeds} | {rate:.1f}M |"


if __name__ == "__main__":
    main()
