"""SAC on the point-mass tasks on one GPU: 5 seeds side by side, the same environments and updates for every label.

    python benchmarks/offpolicy/measure.py --out FOLDER                  measures, writes rows.jsonl as it goes
    python benchmarks/offpolicy/measure.py --plot FOLDER                 draws goal.png and door.png, prints the tables

Hyper-parameters are the presets of `s2pg train sac --task TASK`. Times are those of a chunk of updates with nothing
else on the machine, the warm-up included, neither compilation nor evaluation; then several processes may learn side by
side (`--together`). Returns are means over 256 deterministic episodes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

TASKS = {"goal": ("pointmass-goal", 126.0, 100.0), "door": ("pointmass-door", 1297.0, 900.0)}  # scripted oracle, floor
UPDATES = 100_000
LABELS = ("s2pg", "bptt-10", "none", "oracle", "bptt-10-last", "bptt-5", "window-5", "bptt-32")
SPEED_CHUNK = 2000


def build(task: str, label: str, seeds: tuple[int, ...], chunk: int, hyper: dict) -> tuple:
    import s2pg
    from s2pg.loops import DeviceLoop
    from s2pg.runs.experiment import resolve
    from s2pg.runs.request import Request

    env = s2pg.make(TASKS[task][0])
    experiment, algorithm = resolve(Request("sac", TASKS[task][0], memory=label, hyper=hyper, seeds=seeds), env)
    return DeviceLoop(algorithm, env, seeds, chunk, 256), algorithm, experiment


def compiled(case: tuple[str, str], seeds: tuple[int, ...], chunk: int, hyper: dict) -> tuple:
    loop, algorithm, experiment = build(*case, seeds, chunk, hyper)
    loop.prepare(loop.init(), fresh=True)
    return case, loop, algorithm, experiment


def alone(made: tuple, chunk: int) -> tuple[float, float]:
    """Seconds of the warm-up and of one update, with nothing else on the machine."""
    _, loop, *_ = made
    began = time.perf_counter()
    state = loop.warm_up(loop.init())
    state.update.block_until_ready()
    warm = time.perf_counter()
    loop.advance(state)
    return warm - began, (time.perf_counter() - warm) / chunk


class Turns:
    """Several processes on one GPU take their times one after the other, and then learn side by side."""

    def __init__(self, folder: Path, number: int, of: int) -> None:
        self.folder, self.number, self.of = folder, number, of

    def _wait(self, name: str, upto: int) -> None:
        deadline = time.monotonic() + 240  # one that failed must not hold up the others
        while sum((self.folder / f"{name}-{i}").exists() for i in range(upto)) < upto and time.monotonic() < deadline:
            time.sleep(0.2)

    def __enter__(self) -> None:
        (self.folder / f"compiled-{self.number}").touch()
        self._wait("compiled", self.of)
        self._wait("timed", self.number)

    def __exit__(self, *_: object) -> None:
        (self.folder / f"timed-{self.number}").touch()
        self._wait("timed", self.of)


def speed(made: tuple, seeds: int, rounds: int = 4) -> dict:
    """Updates per second of all seeds together, s2pg."""
    _, loop, _, experiment = made
    state, seconds = loop.warm_up(loop.init()), []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        state, _ = loop.advance(state)
        seconds.append(time.perf_counter() - began)
    rates = [SPEED_CHUNK * seeds / each for each in seconds[1:]]
    row = {"kind": "speed", "seeds": seeds, "updates_per_s": float(np.median(rates))}
    return row | {"spread": float(np.ptp(rates)), "hyper": experiment.hyper}


def learn(made: tuple, seconds: tuple[float, float], seeds: tuple[int, ...], chunk: int, updates: int, write) -> None:
    (task, label), loop, algorithm, experiment = made
    warm, each = seconds
    write({"kind": "config", "task": task, "label": label, "hyper": experiment.hyper})
    state = loop.warm_up(loop.init())
    for done in range(chunk, updates + 1, chunk):
        state, metrics = loop.advance(state)
        wall = warm + done * each
        step = (algorithm.plan.warmup + done * algorithm.steps) * algorithm.lanes
        measured = loop.evaluate(state)
        measured |= {name: metrics[name].mean(1) for name in ("value", "critic_loss", "entropy_action")}
        for i, seed in enumerate(seeds):
            row = {"kind": "row", "task": task, "label": label, "seed": seed, "step": step, "updates": done}
            row |= {"wall_s": round(wall, 3), "steps_per_s": round(len(seeds) * algorithm.lanes / each)}
            write(row | {name: round(float(values[i]), 4) for name, values in measured.items()})
    last = measured["eval_return"]
    print(f"{task} {label}: median {np.median(last):.1f}, {np.round(last, 1)}, {wall:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="measure, and write rows.jsonl here")
    what.add_argument("--plot", type=Path, help="draw and tabulate what was measured there")
    parser.add_argument("--updates", type=int, default=UPDATES)
    parser.add_argument("--chunk", type=int, default=5_000, help="updates between evaluations")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cases", nargs="*", default=[f"{task}/{label}" for label in LABELS for task in TASKS])
    parser.add_argument("--hyper", nargs="*", default=[], help="NAME=VALUE, for all")
    parser.add_argument("--speed", type=int, nargs="*", default=[1, 8], help="seeds side by side to take the speed of")
    parser.add_argument("--together", type=int, nargs=2, default=(0, 1), metavar=("I", "N"), help="process I of N")
    parser.add_argument("--total", type=float, default=1e9, help="seconds after which no label is started")
    args = parser.parse_args()
    if args.plot:
        return plot(args.plot)
    began = time.monotonic()
    from s2pg.io.provenance import hardware, versions

    hyper = dict(pair.split("=") for pair in args.hyper)
    args.out.mkdir(parents=True, exist_ok=True)
    seeds = tuple(range(args.seeds))
    with (args.out / "rows.jsonl").open("w") as file:

        def write(row: dict) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()

        write({"kind": "machine", "hardware": hardware(), "versions": versions()})
        cases = [tuple(case.split("/")) for case in args.cases]
        # One environment step for each update, batch 256, critics that are plain perceptrons of 256.
        single = {"lanes": 1, "capacity": 100_000, "q_network": "plain", "batch_size": 256, "anneal_updates": 0}
        with ThreadPoolExecutor(12) as pool:
            fast = [pool.submit(compiled, ("goal", "s2pg"), tuple(range(n)), SPEED_CHUNK, single) for n in args.speed]
            ready = list(pool.map(lambda case: compiled(case, seeds, args.chunk, hyper), cases))
        print(f"compiled after {time.monotonic() - began:.0f} s", flush=True)
        with Turns(args.out.parent, *args.together):
            for number, made in zip(args.speed, fast, strict=True):
                write(row := speed(made.result(), number))
                print(f"s2pg, {number} seeds: {row['updates_per_s']:.0f} updates/s", flush=True)
            seconds = [alone(made, args.chunk) for made in ready]
        print(f"timed after {time.monotonic() - began:.0f} s: {seconds}", flush=True)
        for made, each in zip(ready, seconds, strict=True):
            if time.monotonic() - began < args.total:
                learn(made, each, seeds, args.chunk, args.updates, write)


def plot(folder: Path) -> None:
    """As run folders, so that the library's own plot serves; and the tables of benchmarks/README.md."""
    from s2pg.analysis.plots import curves

    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    for task, (name, oracle, floor) in TASKS.items():
        with tempfile.TemporaryDirectory() as scratch:
            runs = []
            for config in (row for row in rows if row["kind"] == "config" and row["task"] == task):
                mine = [r for r in rows if r["kind"] == "row" and (r["task"], r["label"]) == (task, config["label"])]
                if not mine:
                    continue
                run = Path(scratch) / config["label"]
                run.mkdir()
                runs.append(run)
                same = {"task": name, "kernel": "", "critic": "critic", "options": {}, "seeds": [], "algorithm": "sac"}
                (run / "config.json").write_text(json.dumps(same | {"memory": config["label"]}))
                (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in mine))
                print(line(config["label"], mine, floor))
            if runs:
                curves(runs, folder / f"{task}.png", floors={"scripted oracle": oracle})


def line(label: str, rows: list[dict], floor: float) -> str:
    """A line of a table: medians over seeds."""
    times = sorted({row["updates"] for row in rows})
    returns = {time: sorted(row["eval_return"] for row in rows if row["updates"] == time) for time in times}
    median = {time: float(np.median(returns[time])) for time in times}
    best = max(times, key=median.__getitem__)
    wall = {row["updates"]: row["wall_s"] for row in rows}
    reached = next((f"{time // 1000}k, {wall[time]:.0f} s" for time in times if median[time] >= floor), "never")
    seeds = " ".join(f"{each:.0f}" for each in returns[times[-1]])
    end = f"{median[times[-1]]:.1f}"
    rate = times[-1] / wall[times[-1]]
    top = f"{median[best]:.1f} ({best // 1000}k)"
    return f"| `{label}` | {end} | {top} | {reached} | {seeds} | {wall[times[-1]]:.0f} s | {rate:.0f} |"


if __name__ == "__main__":
    main()
