"""Environment steps a second of training, ours beside Stable-Baselines3's: HalfCheetah with its velocities hidden.

    python benchmarks/sb3/compare.py --out benchmarks/sb3/cpu.json      (or `make sb3-compare`; on idle cores)

Everyone has 8 environments x 128 steps an update, 10 epochs x 8 minibatches, hidden layers and memories of 128. A round
is one rollout and one update of each contender, one after the other in one process, so that none runs beside another
and a busy moment hits all alike. Each may use all cores.

SB3 runs as fast as it can here: how environments are vectorised and how many threads PyTorch has is chosen beforehand
for each of its contenders, by measuring; the figures of all ways are in the report. It has no `VecNormalize`, though
ours normalise observations, and one hidden layer behind its LSTM, as ours has behind the GRU.

RecurrentPPO takes some nine times as long over a rollout in which an episode begins, as it then unrolls in Python:
one in eight here, since episodes have 1000 steps. So there are two figures: `steps_per_s` is that of the median
round, in which none begins, and `sustained` that of all rounds together, which is what training gets.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from sb3_contrib import RecurrentPPO
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

import s2pg
from s2pg.bench import plain
from s2pg.configure import compilation_cache
from s2pg.io.provenance import hardware, versions
from s2pg.loops import HostLoop
from s2pg.runs.experiment import resolve
from s2pg.runs.request import Request

SCHEMA = 1
LANES, STEPS, EPOCHS, MINIBATCHES, WIDTH = 8, 128, 10, 8, 128
POSITIONS = 8  # entries of an observation of HalfCheetah-v5, before its 9 velocities
VECTORISED = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}
OURS = ("s2pg", "none")
HIDDEN = {"pi": [WIDTH], "vf": [WIDTH]}
THEIRS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "RecurrentPPO": (RecurrentPPO, "MlpLstmPolicy", {"lstm_hidden_size": WIDTH, "net_arch": HIDDEN}),
    # The critic without an LSTM of its own, which is no default but does less: ours has none either.
    "RecurrentPPO, shared LSTM": (
        RecurrentPPO,
        "MlpLstmPolicy",
        {"lstm_hidden_size": WIDTH, "net_arch": HIDDEN, "shared_lstm": True, "enable_critic_lstm": False},
    ),
    "PPO": (PPO, "MlpPolicy", {"net_arch": {"pi": [WIDTH, WIDTH], "vf": [WIDTH, WIDTH]}}),
}


@dataclass
class Contender:
    """Who takes part: `turn` is one rollout and one update."""

    turn: Callable[[], None]
    close: Callable[[], None]
    facts: dict[str, Any] = field(default_factory=dict)
    parts: list[dict[str, float]] = field(default_factory=list)  # seconds of each turn's parts, where known
    seconds: list[float] = field(default_factory=list)


class Watched:
    """Lanes that note when each step began and ended."""

    def __init__(self, lanes: Any):
        self._lanes, self.times = lanes, []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lanes, name)

    def step(self, actions: Any) -> Any:
        began = time.perf_counter()
        after = self._lanes.step(actions)
        self.times.append((began, time.perf_counter()))
        return after


def ours(label: str) -> Contender:
    task = s2pg.make("halfcheetah", backend="gymnasium", hide="velocities")
    sizes = {"lanes": LANES, "steps": STEPS, "epochs": EPOCHS, "minibatches": MINIBATCHES}
    hyper = sizes | {"size": WIDTH, "width": WIDTH}
    experiment, algorithm = resolve(Request("ppo", "halfcheetah", memory=label, hyper=hyper), task)
    loop = HostLoop(algorithm, task, (0,), chunk=1, episodes=1)
    watched = loop.lanes = Watched(loop.lanes)
    kept, made = [loop.init()], {"hyper": experiment.hyper, "critic": experiment.critic}

    def turn() -> None:
        watched.times.clear()
        began = time.perf_counter()
        kept[0], _ = loop.advance(kept[0])  # the metrics come with the update: it has ended when they are there
        ended, steps = time.perf_counter(), np.array(watched.times)
        stepping, updating = float(np.sum(steps[:, 1] - steps[:, 0])), ended - steps[-1, 1]
        parts = {"stepping": stepping, "acting": ended - began - stepping - updating, "updating": updating}
        contender.parts.append(parts)

    contender = Contender(turn, loop.close, made)
    return contender


def masked() -> gymnasium.Env:
    """HalfCheetah without its velocities, as our own `hide=velocities` has it."""
    env = plain.make("HalfCheetah-v5", disable_env_checker=True)
    space = env.observation_space
    shown = gymnasium.spaces.Box(space.low[:POSITIONS], space.high[:POSITIONS], dtype=space.dtype.type)
    return gymnasium.wrappers.TransformObservation(env, lambda seen: seen[:POSITIONS], shown)


def theirs(name: str, vectorised: str, threads: int) -> Contender:
    cls, policy, networks = THEIRS[name]
    how = {"start_method": "forkserver"} if vectorised == "subproc" else {}
    env = make_vec_env(masked, LANES, seed=0, vec_env_cls=VECTORISED[vectorised], vec_env_kwargs=how)
    sizes = {"n_steps": STEPS, "batch_size": LANES * STEPS // MINIBATCHES, "n_epochs": EPOCHS}
    model = cls(policy, env, **sizes, policy_kwargs=networks, seed=0, device="cpu")

    def turn() -> None:
        torch.set_num_threads(threads)
        model.learn(LANES * STEPS, log_interval=10**9, reset_num_timesteps=False)

    return Contender(turn, env.close, {"vectorised": vectorised, "threads": threads})


def alternate(contenders: dict[str, Contender], rounds: int, warmups: int = 0, told: bool = False) -> None:
    for number in range(-warmups, rounds):  # the first rounds compile and warm up
        for contender in contenders.values():
            began = time.perf_counter()
            contender.turn()
            if number >= 0:
                contender.seconds.append(time.perf_counter() - began)
            else:
                contender.parts.clear()
        if told and number >= 0:
            print(f"round {number + 1} of {rounds}", flush=True)


def tried(contender: Contender) -> dict[str, Any]:
    """The rates that trials promise. Episodes begin in the first turn, and then in about one of eight."""
    first, within = contender.seconds[0], float(np.median(contender.seconds[1:]))
    rates = {"steps_per_s": LANES * STEPS / within, "sustained": 8 * LANES * STEPS / (first + 7 * within)}
    return contender.facts | rates


def sustained(contender: Contender) -> float:
    return tried(contender)["sustained"]


def best_of(name: str, trials: int) -> tuple[Contender, list[dict[str, Any]]]:
    """The fastest way of this contender, with no times yet, and what was measured of every way."""
    ways = {vectorised: theirs(name, vectorised, threads=1) for vectorised in VECTORISED}
    alternate(ways, 1 + trials)
    ways["threads"] = theirs(name, max(ways.values(), key=sustained).facts["vectorised"], threads=os.cpu_count() or 1)
    alternate({"threads": ways["threads"]}, 1 + trials)
    best, report = max(ways.values(), key=sustained), [tried(each) for each in ways.values()]
    for each in ways.values():
        if each is not best:
            each.close()
    best.seconds.clear()
    return best, report


def row(label: str, contender: Contender) -> dict[str, Any]:
    rates = LANES * STEPS / np.array(contender.seconds)
    quartiles = np.quantile(rates, (0.25, 0.75))
    told = {"label": label, "steps_per_s": float(np.median(rates)), "spread": float(quartiles[1] - quartiles[0])}
    told["sustained"] = len(rates) * LANES * STEPS / sum(contender.seconds)
    if contender.parts:
        whole = sum(sum(parts.values()) for parts in contender.parts)
        names = contender.parts[0]
        told["shares"] = {name: sum(parts[name] for parts in contender.parts) / whole for name in names}
        told["milliseconds"] = {name: 1e3 * float(np.median([p[name] for p in contender.parts])) for name in names}
    return told | contender.facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the report here, as JSON")
    parser.add_argument("--rounds", type=int, default=16, help="of the measurement; 8 are about an episode")
    parser.add_argument("--trials", type=int, default=3, help="rounds of choosing how SB3 runs")
    args = parser.parse_args()
    compilation_cache()
    contenders, ways = {label: ours(label) for label in OURS}, {}
    load_before = os.getloadavg()
    for name in THEIRS:
        contenders[name], ways[name] = best_of(name, args.trials)
        for way in ways[name]:
            rates = f"{way['steps_per_s']:,.0f} steps/s, {way['sustained']:,.0f} sustained"
            print(f"{name}, {way['vectorised']}, {way['threads']} threads: {rates}", flush=True)
    try:
        alternate(contenders, args.rounds, warmups=2, told=True)
    finally:
        for contender in contenders.values():
            contender.close()
    rows = [row(label, contender) for label, contender in contenders.items()]
    for each in rows:
        for name, figure in (("ratios", "steps_per_s"), ("sustained_ratios", "sustained")):
            each[name] = {other["label"]: each[figure] / other[figure] for other in rows}
    sizes = {"lanes": LANES, "steps": STEPS, "epochs": EPOCHS, "minibatches": MINIBATCHES, "width": WIDTH}
    packages = {name: version(name) for name in ("mujoco", "torch", "stable-baselines3", "sb3-contrib")}
    report = {
        "schema": SCHEMA,
        "name": "sb3",
        "hardware": hardware() | {"load_before": load_before, "load_after": os.getloadavg()},
        "versions": versions() | packages,
        "settings": {"task": "halfcheetah, velocities hidden", "rounds": args.rounds, "trials": args.trials} | sizes,
        "ways": ways,
        "rows": rows,
    }
    if args.out:
        args.out.write_text(json.dumps(report, indent=2) + "\n")
    for each in rows:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in each.get("shares", {}).items())
        rates = f"{each['steps_per_s']:>6,.0f} steps/s (IQR {each['spread']:,.0f}), {each['sustained']:,.0f} sustained"
        print(f"{each['label']:<26} {rates}  {shares}")
    for name in THEIRS:
        ratios = f"{rows[0]['ratios'][name]:.2f} times the steps/s of {name}, {rows[0]['sustained_ratios'][name]:.2f}"
        print(f"s2pg has {ratios} sustained")


if __name__ == "__main__":
    main()
