"""Learning curves and times on one GPU: seeds side by side under vmap, every case a process of its own.

    python benchmarks/learn.py --out FOLDER --cases halfcheetah/s2pg sac/pointmass-goal/s2pg-8! ...
    python benchmarks/learn.py --out FOLDER @benchmarks/trust/recall.txt          arguments from a file
    python benchmarks/learn.py --out FOLDER --grid ppo --beside 8                 the paper's robots, eight at a time
    python benchmarks/learn.py --out FOLDER --grid ppo --alone                    how long their updates take
    python benchmarks/learn.py --plot FOLDER [--reach 100 113]                    draws TASK.png, prints the tables

Every case is a run folder of `s2pg train` with the presets, and goes on where it stopped if it is there already. All
compile at once and then train in turn, so that `wall_s` is that of one alone; or, with `--beside`, so many at a time
(start NVIDIA's MPS before), and then seconds in tables and plots are those that `--alone` measured, times the steps.
`--pack FOLDER` leaves metrics, policies and what resuming takes there, in files of at most 15 MB, when all is done or
stopped; `--unpack FOLDER` begins from such. Their parts are put together with `cat metrics.* | tar xz`.

A case is [ALGORITHM/]TASK/LABEL[:KERNEL][!][+OPTION=VALUE,...][@HYPER=VALUE,...]; `!` is a privileged critic.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np

PART = 15_000_000  # bytes of a file of a pack
TASKS = ("halfcheetah", "hopper", "walker2d", "ant", "humanoid")
ON_POLICY = ("s2pg", "s2pg-pathwise", "s2pg-8", "bptt-5", "bptt-32", "window-5", "window-32", "none", "oracle")
OFF_POLICY = ("s2pg", "bptt-10", "bptt-10-last", "none", "oracle")
MASSES = "!+masses=0.3"


GRIDS = {
    "ppo": [f"{task}/{label}" for task in TASKS for label in ON_POLICY],
    "ppo-masses": [f"{task}/{label}{MASSES}" for task in TASKS for label in ON_POLICY],
    "offpolicy": [
        f"{algorithm}/{task}/{label}{MASSES}"
        for algorithm in ("sac", "td3")
        for task in ("halfcheetah", "ant")
        for label in OFF_POLICY
    ],
}


class Parser(argparse.ArgumentParser):
    """Takes arguments from files named with @, several in a line, behind # what they are for."""

    def convert_arg_line_to_args(self, arg_line: str) -> list[str]:
        return arg_line.partition("#")[0].split()


def parse(case: str) -> dict:
    case, _, hyper = case.partition("@")
    case, _, options = case.partition("+")
    privileged = case.endswith("!")
    *algorithm, task, label = case.rstrip("!").split("/")
    label, _, kernel = label.partition(":")
    split = lambda text: dict(pair.split("=") for pair in text.split(",") if pair)  # noqa: E731
    return {
        "algorithm": algorithm[0] if algorithm else "ppo",
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


def _alone(out: Path, run: str) -> Path:
    """What was measured of a case alone; not in its run folder, which may not be there yet."""
    return out / "alone" / f"{run}.json"


def _wait(out: Path, case: str) -> None:
    while not _turn(out, case).exists():
        time.sleep(0.1)


def one(case: str, args: argparse.Namespace) -> None:
    """Compiles, waits for its turn, trains."""
    import s2pg
    from s2pg.runs.request import Request
    from s2pg.runs.training import Border

    found = parse(case)
    backend = {"backend": args.backend} if found["task"] in TASKS else {}  # other tasks have none to choose
    env = s2pg.make(found["task"], **backend, **found["options"])
    request = Request(
        found["algorithm"], "", memory=found["label"], kernel=found["kernel"],
        critic="critic" if found["privileged"] else "policy", hyper=found["hyper"],
        seeds=tuple(range(args.seeds)), steps=args.steps, borders=args.borders, episodes=args.episodes,
        demos=args.demos,
    )  # fmt: skip
    if args.alone:
        return alone(case, request, env, args.out)
    began = time.monotonic()

    def report(border: Border) -> None:
        if border.compiled and not border.rows:
            print(f"{case}: compiled after {time.monotonic() - began:.0f} s", flush=True)
            _wait(args.out, case)
        if border.rows:
            returns = [float(f"{row['eval_return']:.4g}") for row in border.rows]
            speed, wall = border.rows[0]["steps_per_s"], border.rows[0]["wall_s"]
            print(f"{case}: {border.step:,} {wall:.0f} s {speed:,.0f}/s return {returns}", flush=True)

    s2pg.train(
        request.algorithm, env, memory=request.memory, kernel=request.kernel, critic=request.critic,
        hyper=request.hyper, seeds=request.seeds, steps=request.steps, borders=request.borders,
        episodes=request.episodes, demos=args.demos, out=args.out / folder(case), resume=True, report=report,
        say=lambda line: print(f"{case}: {line}", flush=True),
    )  # fmt: skip


def alone(case: str, request, env, out: Path) -> None:
    """Measures how long a step of training takes while nothing else runs, and counts parameters."""
    import equinox as eqx
    import jax

    from s2pg.io.sinks import write_json
    from s2pg.loops import DeviceLoop
    from s2pg.runs.demonstrated import demonstrated
    from s2pg.runs.experiment import resolve

    experiment, algorithm = resolve(request, env)
    shared = demonstrated(algorithm, experiment, env.spec, request.demos, print) if request.demos else ()
    plan = algorithm.plan
    chunk = max(1, 200_000 // (len(request.seeds) * plan.lanes * plan.steps))
    loop = DeviceLoop(algorithm, env, request.seeds, chunk=chunk, episodes=1, shared=shared)
    state = eqx.filter_eval_shape(lambda key: algorithm.init(env.spec, shared, key=key), jax.random.key(0))
    learner = getattr(state.learner, "inner", state.learner)  # what GAIL wraps
    is_array = lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)  # noqa: E731
    sizes = {
        name: sum(leaf.size for leaf in jax.tree.leaves(tree) if is_array(leaf))
        for name, tree in (("actor", state.policy.kernel), ("critic", learner.critic))
    }
    running = loop.init()
    loop.prepare(running, fresh=True)
    print(f"{case}: compiled", flush=True)
    _wait(out, case)
    running = jax.block_until_ready(loop.warm_up(running))
    running, _ = loop.advance(running)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        running, _ = loop.advance(running)
        times.append(time.perf_counter() - began)
    steps = chunk * plan.lanes * plan.steps
    found = {"seconds_per_step": float(np.median(times)) / steps, "parameters": sizes}
    _alone(out, folder(case)).parent.mkdir(exist_ok=True)
    write_json(_alone(out, folder(case)), found)
    print(f"{case}: {len(request.seeds) / found['seconds_per_step']:,.0f} steps/s alone, {sizes}", flush=True)


def main() -> int:
    parser = Parser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, fromfile_prefix_chars="@"
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="train into run folders here")
    what.add_argument("--plot", type=Path, help="draw and tabulate what was measured there")
    parser.add_argument(
        "--untimed", action="store_true", help="--plot: they shared the GPU, so no seconds but --alone's"
    )
    parser.add_argument("--reach", type=float, nargs="*", default=[], help="--plot: when did returns reach these?")
    parser.add_argument("--cases", nargs="*", default=[])
    parser.add_argument("--grid", nargs="*", choices=list(GRIDS), default=[], help="cases of the paper's experiments")
    parser.add_argument("--one", help="train this case in this process")
    parser.add_argument("--alone", action="store_true", help="measure the time of an update instead")
    parser.add_argument("--steps", type=int, help="of each seed (the preset's)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--borders", type=int, default=10)
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--backend", default="warp")
    parser.add_argument("--demos", type=Path, help="demonstrations, for algorithms that imitate")
    parser.add_argument("--beside", type=int, default=1, help="cases that train at a time")
    parser.add_argument("--ready", type=int, help="processes at a time, with those that wait (the number of cores)")
    parser.add_argument("--total", type=float, default=1e9, help="seconds after which all is stopped, to be resumed")
    parser.add_argument("--pack", type=Path, help="put configurations and metrics, and what resuming takes, into here")
    parser.add_argument("--unpack", type=Path, help="go on from what --pack left here")
    args = parser.parse_args()
    if args.plot:
        plot(args.plot, timed=not args.untimed, reach=args.reach)
        return 0
    if args.one:
        one(args.one, args)
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    if args.unpack:
        unpack(args.unpack, args.out)
    cases = [*args.cases, *(case for name in args.grid for case in GRIDS[name])]
    failed = run_all(list(dict.fromkeys(cases)), args)
    if args.pack:
        pack(args.out, args.pack)
    return int(failed)


def run_all(cases: list[str], args: argparse.Namespace) -> bool:
    """Compiles all at once, as far as there are cores, and gives turns; whether a case failed."""
    names = ("steps", "seeds", "borders", "episodes", "backend", "demos", "out")
    values = {name: getattr(args, name) for name in names}
    given = [f"--{name}={value}" for name, value in values.items() if value is not None] + ["--alone"] * args.alone
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several processes share the GPU
    deadline, waiting, running = time.monotonic() + args.total, list(cases), {}
    for case in cases:
        _turn(args.out, case).unlink(missing_ok=True)
    at_once, training, failed = max(args.beside, args.ready or os.cpu_count() or 1), [], False
    while (waiting or running) and time.monotonic() < deadline:
        while waiting and len(running) < at_once:
            case = waiting.pop(0)
            running[case] = subprocess.Popen([sys.executable, __file__, *given, "--one", case])
        training = [case for case in training if case in running]
        for case in [each for each in running if each not in training][: max(0, args.beside - len(training))]:
            _turn(args.out, case).touch()
            training.append(case)
        for case, process in list(running.items()):
            if process.poll() is not None:
                print(f"{case}: ended with {process.returncode}", flush=True)
                failed |= process.returncode != 0
                del running[case]
        time.sleep(0.2)
    for process in running.values():
        process.kill()
        process.wait()
    return failed


def pack(out: Path, into: Path) -> None:
    """Three archives in parts: what plots need, policies beside it, and what resuming takes.

    Replay buffers are too large to travel: a run that has one is not in the last, and starts anew.
    """
    into.mkdir(parents=True, exist_ok=True)
    runs = sorted(config.parent for config in out.glob("*/config.json"))
    small = [run / name for run in runs for name in ("config.json", "metrics.jsonl")] + [*out.glob("alone/*.json")]
    policies = [file for run in runs for file in (run / "policies").glob("*")]
    fresh = [run for run in runs if any((run / "checkpoints").glob("*replay*"))]
    newest = [sorted((run / "checkpoints").glob("*"))[-1:] for run in runs if run not in fresh]
    whole = [file for file in (*small, *policies) if not any(run in file.parents for run in fresh)]
    archives = {
        "metrics": small,
        "policies": [*small, *policies],
        "resume": [*whole, *(f for each in newest for f in each)],
    }
    for name, files in archives.items():
        for old in into.glob(f"{name}.*"):
            old.unlink()
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as archive:
            for file in files:
                if file.exists():
                    archive.add(file, file.relative_to(out))
        for number, start in enumerate(range(0, data.getbuffer().nbytes, PART)):
            (into / f"{name}.{number:04d}").write_bytes(data.getvalue()[start : start + PART])


def unpack(source: Path, out: Path) -> None:
    parts = sorted(source.glob("resume.*"))
    if not parts:
        raise SystemExit(f"{source} has no resume.0000: name a folder that --pack wrote")
    with tarfile.open(fileobj=io.BytesIO(b"".join(file.read_bytes() for file in parts)), mode="r:gz") as archive:
        archive.extractall(out, filter="data")


def plot(where: Path, timed: bool, reach: list[float]) -> None:
    from s2pg.analysis.plots import curves

    runs: dict[str, list[Path]] = {}
    for config in sorted(where.glob("*/config.json")):
        found = json.loads(config.read_text())
        metrics = config.parent / "metrics.jsonl"
        if not metrics.exists() or not metrics.read_text():  # stopped before its first evaluation
            continue
        kind = "-privileged" if found["critic"] == "critic" else ""
        runs.setdefault(f"{found['algorithm']}-{found['task']}{kind}", []).append(config.parent)
    for task, folders in runs.items():
        print(f"\n{task}\n")
        with tempfile.TemporaryDirectory() as scratch:
            copies = [_timed(run, Path(scratch)) for run in folders]
            rows = [line(run, timed, reach) for run in copies]
            for row in (list(rows[0]), ["---"] * len(rows[0]), *(list(each.values()) for each in rows)):
                print(f"| {' | '.join(row)} |")
            curves(copies, where / f"{task}.png", seconds=timed)
            alone = [run for run in copies if (run / "alone.json").exists()]
            if alone and not timed:
                curves(alone, where / f"{task}-seconds.png")


def _timed(run: Path, scratch: Path) -> Path:
    """A copy of a run whose seconds are those of one alone, where these were measured."""
    copy, file = scratch / run.name, _alone(run.parent, run.name)
    copy.mkdir()
    rows = [json.loads(text) for text in (run / "metrics.jsonl").read_text().splitlines()]
    if file.exists():
        seconds, seeds = json.loads(file.read_text())["seconds_per_step"], len({row["seed"] for row in rows})
        rows = [row | {"wall_s": row["step"] * seconds, "steps_per_s": seeds / seconds} for row in rows]
        (copy / "alone.json").write_text(file.read_text())
    (copy / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (copy / "config.json").write_text((run / "config.json").read_text())
    return copy


def line(run: Path, timed: bool, reach: list[float]) -> dict[str, str]:
    """A line of a table, of the deterministic evaluation: what stands at the end, and when it was reached."""
    rows = [json.loads(text) for text in (run / "metrics.jsonl").read_text().splitlines()]
    steps = sorted({row["step"] for row in rows})
    returns = {step: sorted(row["eval_return"] for row in rows if row["step"] == step) for step in steps}
    wall = {row["step"]: row["wall_s"] for row in rows}
    end = returns[steps[-1]]
    digits = next(i for i, size in enumerate((200, 5, 0)) if max(map(abs, end)) >= size)
    found = {
        "case": f"`{run.name}`",
        "median": f"{np.median(end):.{digits}f}",
        "mean": f"{np.mean(end):.{digits}f} ± {np.std(end):.{digits}f}",
        "seeds": " ".join(f"{each:.{digits}f}" for each in end),
        "steps": _count(steps[-1]),
    }
    for value in reach:
        when = next((step for step in steps if np.median(returns[step]) >= value), None)
        # The step from which on no seed was below it.
        below = [i for i, step in enumerate(steps) if returns[step][0] < value]
        stayed = steps[below[-1] + 1 :][:1] if below else steps[:1]
        found[f"median at {value:g}"] = _count(when) + f", {wall[when]:.0f} s" * timed if when else "never"
        found[f"all stay at {value:g} from"] = _count(stayed[0]) if stayed else "never"
    if timed:
        found["training time"] = f"{wall[steps[-1]]:.0f} s"
    measured = timed or (run / "alone.json").exists()
    found["steps/s"] = f"{np.median([row['steps_per_s'] for row in rows]):,.0f}" if measured else ""
    sizes = json.loads((run / "alone.json").read_text())["parameters"] if (run / "alone.json").exists() else {}
    return found | {"parameters": ", ".join(f"{name} {size / 1e3:.0f}k" for name, size in sizes.items())}


def _count(steps: int) -> str:
    return f"{steps / 1e6:.1f}M" if steps >= 1_000_000 else f"{steps / 1e3:.0f}k"


if __name__ == "__main__":
    sys.exit(main())
