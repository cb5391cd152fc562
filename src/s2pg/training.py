"""Training from start to end: logs, evaluates and checkpoints at the borders of chunks, and resumes bit for bit."""

from __future__ import annotations

import contextlib
import operator
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import jax
import numpy as np

from s2pg.algorithms.base import Algorithm
from s2pg.envs.base import Env
from s2pg.errors import Diverged, UserError
from s2pg.io import checkpoint
from s2pg.io.atomic import sweep
from s2pg.io.checkpoint import Checkpoints
from s2pg.io.sinks import MetricsFile, Row, TensorBoard
from s2pg.loops import DeviceLoop, HostLoop, Loop, Looper

CONFIG, METRICS, CHECKPOINTS, POLICIES, EVENTS = "config.json", "metrics.jsonl", "checkpoints", "policies", "events"


class Border(NamedTuple):
    """What a training run reports between two chunks, and, without rows, before it compiles."""

    step: int  # environment steps of each seed so far
    steps: int  # ... in all
    rows: list[Row]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C: the run has been checkpointed and can be resumed."""


def updates_per_chunk(algorithm: Algorithm, steps: int, borders: int = 50) -> int:
    """So many updates between two borders that a run of `steps` has about 50 of them."""
    return max(1, round(steps / (algorithm.lanes * algorithm.steps * borders)))


def policy_file(out: Path, seed: int) -> Path:
    return out / POLICIES / f"seed-{seed}.npz"


def train(
    algorithm: Algorithm,
    env: Any,
    *,
    seeds: Sequence[int],
    steps: int,
    out: Path,
    chunk: int | None = None,
    episodes: int = 64,
    resume: bool = False,
    keep: int = 3,
    report: Callable[[Border], None] = lambda border: None,
    say: Callable[[str], None] = lambda line: None,
) -> Path:
    """Trains all seeds side by side for `steps` environment steps each; returns the run folder.

    `steps` is rounded up to whole chunks. With `resume`, goes on from the newest checkpoint, if there is one.
    """
    (out / POLICIES).mkdir(parents=True, exist_ok=True)
    for folder in (out, out / POLICIES):
        sweep(folder)
    chunk = chunk or updates_per_chunk(algorithm, steps)
    per_chunk = chunk * algorithm.lanes * algorithm.steps
    chunks = -(-steps // per_chunk)
    files = Checkpoints(out / CHECKPOINTS, keep)
    done, wall, size = 0, 0.0, 0
    with contextlib.ExitStack() as opened:
        kind = DeviceLoop if isinstance(env, Env) else HostLoop
        looper: Looper = kind(algorithm, env, seeds, chunk, episodes)
        opened.callback(looper.close)
        loop = looper.init()
        if resume and (found := files.latest(looper.pack(loop))):
            packed, meta = found
            loop, exact = looper.unpack(packed)
            done, wall, size = meta["chunks"], meta["wall_s"], meta["metrics_bytes"]
            _save_policies(out, loop, seeds)  # a run killed just after its checkpoint has older ones
            if not exact:
                say("the environment is not deterministic: its open episodes could not be replayed exactly")
        metrics = opened.enter_context(contextlib.closing(MetricsFile(out / METRICS)))
        metrics.truncate(size)
        if done >= chunks:
            say(f"{out} has {done * per_chunk:,} steps already: nothing to do")
            return out
        # Rows after the checkpoint are written again: hide those that an earlier process left.
        purge_step = done * per_chunk + 1 if resume else None
        board = opened.enter_context(contextlib.closing(TensorBoard(out / EVENTS, purge_step)))
        stop = opened.enter_context(_Stop(say))
        report(Border(done * per_chunk, chunks * per_chunk, []))
        looper.prepare(loop)
        for number in range(done, chunks):
            began = time.perf_counter()
            loop, measured = looper.advance(loop)
            seconds = time.perf_counter() - began
            wall += seconds
            _check_finite(measured, seeds, number * chunk)
            speed = {"wall_s": wall, "steps_per_s": len(seeds) * per_chunk / seconds}
            rows = _rows(measured | looper.evaluate(loop), seeds, (number + 1) * per_chunk, speed)
            metrics.write(rows)
            board.write(rows)
            meta = {"chunks": number + 1, "wall_s": wall, "metrics_bytes": metrics.size()}
            files.save((number + 1) * per_chunk, looper.pack(loop), meta)
            _save_policies(out, loop, seeds)
            report(Border((number + 1) * per_chunk, chunks * per_chunk, rows))
            if stop.asked:
                raise Interrupted
    return out


def _check_finite(measured: dict[str, np.ndarray], seeds: Sequence[int], before: int) -> None:
    """Stops at the first update, seed and quantity that is not finite.

    No episode need have ended, though, and one ratio that overflows makes the divergence infinite but no loss.
    """
    bad = {name: ~np.isfinite(values) for name, values in measured.items() if name not in ("train_return", "kl")}
    where = np.stack([flags for flags in bad.values()])  # [quantities, seeds, chunk]
    if where.any():
        update = int(np.argmax(where.any(axis=(0, 1))))
        names = list(bad)
        quantity, seed = (int(i[0]) for i in np.nonzero(where[:, :, update]))
        raise Diverged(f"{names[quantity]} is not finite at update {before + update + 1} in seed {seeds[seed]}")


def _rows(measured: dict[str, np.ndarray], seeds: Sequence[int], step: int, speed: Row) -> list[Row]:
    def mean(values: np.ndarray | np.generic) -> float:
        seen = np.ravel(values)[np.isfinite(np.ravel(values))]
        return float(seen.mean()) if seen.size else float("nan")

    return [
        {"step": step, "seed": seed} | {name: mean(values[i]) for name, values in measured.items()} | speed
        for i, seed in enumerate(seeds)
    ]


def _save_policies(out: Path, loop: Loop, seeds: Sequence[int]) -> None:
    """What it takes to act, kernel and normaliser, in one file per seed."""
    # On the host, where taking one seed out needs no compiled function.
    policies = jax.device_get({"kernel": loop.train.kernel, "normaliser": loop.train.normaliser})
    for i, seed in enumerate(seeds):
        checkpoint.save(policy_file(out, seed), jax.tree.map(operator.itemgetter(i), policies), {"seed": seed})


class _Stop:
    """Turns the first Ctrl-C into a request that is honoured at the next border; the second one breaks off at once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.asked, self._say = False, say

    def __enter__(self) -> _Stop:
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        self._say("stopping at the next checkpoint; Ctrl-C again stops at once")

    def __exit__(self, *error: object) -> None:
        if self._main:
            signal.signal(signal.SIGINT, self._before)


def require_run(out: Path) -> None:
    if not (out / CONFIG).is_file():
        raise UserError(f"{out} is no run folder: it has no {CONFIG}")
