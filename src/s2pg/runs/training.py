"""Training from start to end: logs, evaluates and checkpoints at the borders of chunks, and resumes bit for bit."""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from s2pg.algorithms import Algorithm, Plan
from s2pg.envs.base import Env
from s2pg.envs.host import HostTask
from s2pg.errors import DivergenceError, OutOfMemoryError, UserError
from s2pg.io import checkpoint
from s2pg.io.atomic import sweep
from s2pg.io.checkpoint import Checkpoints
from s2pg.io.folder import CHECKPOINTS, CONFIG, DIVERGED, METRICS, POLICIES, policy_file, read_meta
from s2pg.io.sinks import MetricsFile, Row, write_object
from s2pg.io.trackers import Tracker, tracking
from s2pg.loops import DeviceLoop, HostLoop, Loop, Looper, layout
from s2pg.rollout import OBSERVATIONS, REWARDS
from s2pg.types import Spec


class Border(NamedTuple):
    """What a training run reports between two chunks, and, without rows, before and after it compiles."""

    step: int  # environment steps of each seed so far
    steps: int  # ... in all
    rows: list[Row]
    compiled: bool = True


class Interruption(KeyboardInterrupt):
    """Ctrl-C: the run has been checkpointed and can be resumed."""


def learning_steps(plan: Plan, steps: int) -> int:
    """What is left of a run of `steps` after the warm-up."""
    return steps - plan.warmup * plan.lanes


def updates_per_chunk(plan: Plan, steps: int, borders: int = 50) -> int:
    """So many updates between two borders that a run of `steps` has about `borders` of them."""
    return max(1, round(learning_steps(plan, steps) / (plan.lanes * plan.steps * borders)))


ROOM = 0.8  # the share of memory that replay buffers may take


def check(
    algorithm: Algorithm, spec: Spec, seeds: Sequence[int], steps: int, shared: PyTree = (), share: float = 1.0
) -> None:
    """Refuses a run that would end before it learns, or not fit into its share of the device, before it is built."""
    if learning_steps(algorithm.plan, steps) <= 0:
        raise UserError(f"{steps:,} steps are all warm-up (learning_starts): train for more")
    checkpoint.fingerprint(shared)  # which refuses what is no array
    # A buffer is filled before the first update, so that an algorithm without a warm-up has none.
    needed = len(seeds) * replay_bytes(algorithm, spec, shared) if algorithm.plan.warmup else 0
    if needed:
        check_room(needed, len(seeds), int(ROOM * share * device_memory()))


def check_room(needed: int, seeds: int, there: int) -> None:
    """Refuses replay buffers that take more bytes than there are."""
    if needed > there:
        of, needs, has = f"{seeds} seed{'s' * (seeds > 1)}", f"{needed / 2**30:,.1f} GiB", f"{there / 2**30:,.1f} GiB"
        raise UserError(
            f"the replay buffer of {of} would take {needs}, and there is room for {has}: make 'capacity' smaller"
        )


def replay_bytes(algorithm: Algorithm, spec: Spec, shared: PyTree = ()) -> int:
    """What the replay buffer of one seed takes; nothing is allocated to find out."""
    state = eqx.filter_eval_shape(lambda key: algorithm.init(spec, shared, key=key), jax.random.key(0))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state.replay))


def device_memory() -> int:
    """Bytes that the device has, or the host where a device does not say."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats.get("bytes_limit", os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


@contextlib.contextmanager
def _within_memory(algorithm: Algorithm, seeds: Sequence[int]) -> Iterator[None]:
    """Says in one line that the device's memory ran out, and what to do."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        envs = f"{algorithm.plan.lanes:,} environments for each of {len(seeds)} seed{'s' * (len(seeds) > 1)}"
        told = f"the device has no memory for {envs}: make 'lanes' smaller, or train fewer seeds"
        raise OutOfMemoryError(told) from error


def train(
    algorithm: Algorithm,
    env: Env | HostTask,
    *,
    seeds: Sequence[int],
    steps: int,
    out: Path,
    chunk: int | None = None,
    episodes: int = 64,
    resume: bool = False,
    keep: int = 3,
    shared: PyTree = (),
    trackers: Sequence[type[Tracker]] = (),
    devices: int = 1,
    report: Callable[[Border], None] = lambda border: None,
    say: Callable[[str], None] = lambda line: None,
    guard: Callable[[], None] = lambda: None,
) -> Path:
    """Trains all seeds side by side for `steps` environment steps each; returns the run folder.

    `steps`, the warm-up included, is rounded up to whole chunks. With `resume`, goes on from the newest checkpoint, if
    there is one; with other `shared` data than before it is refused. Lanes on the device are spread over `devices`.
    `guard` is called before anything is written at a border, and raises where the folder has become another process'.
    """
    layout.check(devices, env, algorithm.plan.lanes)
    check(algorithm, env.spec, seeds, steps, shared)
    plan, fingerprint = algorithm.plan, checkpoint.fingerprint(shared)
    (out / POLICIES).mkdir(parents=True, exist_ok=True)
    for folder in (out, out / POLICIES):
        sweep(folder)
    chunk = chunk or updates_per_chunk(plan, steps)
    per_chunk = chunk * plan.lanes * plan.steps
    chunks = -(-learning_steps(plan, steps) // per_chunk)
    at = lambda number: plan.warmup * plan.lanes + number * per_chunk  # noqa: E731
    files = Checkpoints(out / CHECKPOINTS, keep)
    done, wall = 0, 0.0
    with contextlib.ExitStack() as opened, _within_memory(algorithm, seeds):
        make = functools.partial(DeviceLoop, devices=devices) if isinstance(env, Env) else HostLoop
        looper: Looper = make(algorithm, env, seeds, chunk, episodes, shared)  # pyright: ignore[reportArgumentType]
        opened.callback(looper.close)
        metrics = opened.enter_context(contextlib.closing(MetricsFile(out / METRICS)))
        found = None
        logged = resume and metrics.size() > 0  # rows by a process before this one
        if resume:
            like, replay = _split(looper.shapes())
            found = files.latest(looper.pack(like), replay)
            if found and found.meta["shared"] != fingerprint:
                raise UserError(f"cannot resume {out}: it was trained with other shared data")
        later = max((read_meta(policy_file(out, seed)) or {}).get("step", 0) for seed in seeds)
        if found:
            loop, exact = looper.unpack(found.tree)
            loop = _with_replay(loop, () if found.bulk is None else found.bulk)
            done, wall = found.meta["chunks"], found.meta["wall_s"]
            if at(done) != files.steps()[-1]:
                raise UserError(
                    f"checkpoint {files.path(files.steps()[-1])} is that of step {at(done)}, by what is in it"
                )
            metrics.truncate(found.meta["metrics_bytes"], found.meta.get("metrics_sha256"))
            if later > at(done):  # policies are written after their checkpoint
                say(f"{out} has lost its checkpoints after step {at(done):,}: goes on from there")
            # A run that was killed just after its checkpoint has older ones.
            _save_policies(out, _policies(loop), seeds, at(done))
            if not exact:
                say("the environment is not deterministic: its open episodes could not be replayed exactly")
        else:
            loop = looper.init()
            metrics.truncate(0)
            if later:
                say(f"{out} has lost its checkpoints: begins anew")
        if done >= chunks:
            say(f"{out} has {at(done):,} steps already: nothing to do")
            return out
        (out / DIVERGED).unlink(missing_ok=True)
        # Rows after the checkpoint are written again: trackers may hide those that an earlier process left.
        track = opened.enter_context(tracking(trackers, out, at(done) if logged else None, say))
        stop = opened.enter_context(_Stop(say))
        begun = Border(at(done) if found else 0, at(chunks), [])
        report(begun._replace(compiled=False))
        looper.prepare(loop, fresh=not found)
        report(begun)
        if not found:
            began = time.perf_counter()
            loop = jax.block_until_ready(looper.warm_up(loop))
            wall = time.perf_counter() - began if plan.warmup else 0.0
        for number in range(done, chunks):
            began = time.perf_counter()
            loop, measured = looper.advance(loop)
            seconds = time.perf_counter() - began
            wall += seconds
            guard()
            policies = _policies(loop)
            try:
                _check_finite(measured, seeds, number * chunk)
                _check_state({**policies, "learner": loop.train.learner}, seeds, (number + 1) * chunk)
            except DivergenceError as error:
                write_object(out / DIVERGED, {"schema": 1, "why": str(error), "step": at(number)})
                raise
            speed = {"wall_s": wall, "steps_per_s": len(seeds) * per_chunk / seconds}
            if lost := int(np.sum(measured.get("overflowed", 0))):
                say(f"{lost:,} steps of environments had no room for all contacts: raise 'contacts' or 'constraints'")
            played = looper.evaluate(loop)
            for name, values in played.items():
                if bad := [seed for seed, finite in zip(seeds, np.isfinite(values), strict=True) if not finite]:
                    say(f"{name} is not finite in seed {', '.join(map(str, bad))} at step {at(number + 1):,}")
            measured = {name: values for name, values in measured.items() if name not in (OBSERVATIONS, REWARDS)}
            rows = _rows(measured | played, seeds, at(number + 1), speed)
            metrics.write(rows)
            track(rows)
            meta = {"chunks": number + 1, "wall_s": wall, "shared": fingerprint}
            meta |= {"metrics_bytes": metrics.size(), "metrics_sha256": metrics.sum()}
            kept, replay = _split(loop)
            files.save(at(number + 1), looper.pack(kept), meta, replay)
            _save_policies(out, policies, seeds, at(number + 1))
            report(Border(at(number + 1), at(chunks), rows))
            if stop.asked:
                raise Interruption
    return out


def _with_replay(loop: Loop, replay: PyTree) -> Loop:
    return loop._replace(train=loop.train._replace(replay=replay))


def _split(loop: Loop) -> tuple[Loop, PyTree]:
    """A loop without its replay buffer, and that, None where there is none."""
    replay = loop.train.replay
    return _with_replay(loop, ()), replay if jax.tree.leaves(replay) else None


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
        raise DivergenceError(f"{names[quantity]} is not finite at update {before + update + 1} in seed {seeds[seed]}")


def _check_state(state: PyTree, seeds: Sequence[int], updates: int) -> None:
    """Stops where a parameter is not finite: losses are those before an update, and may still have been."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            continue
        finite = np.isfinite(np.asarray(leaf)).reshape(len(seeds), -1).all(axis=1)
        if not finite.all():
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            raise DivergenceError(f"{name} is not finite at update {updates} in seed {seeds[int(np.argmin(finite))]}")


def _rows(measured: dict[str, np.ndarray], seeds: Sequence[int], step: int, speed: Row) -> list[Row]:
    def mean(values: np.ndarray | np.generic) -> float:
        seen = np.ravel(values)[np.isfinite(np.ravel(values))]
        return float(seen.mean()) if seen.size else float("nan")

    return [
        {"step": step, "seed": seed} | {name: mean(values[i]) for name, values in measured.items()} | speed
        for i, seed in enumerate(seeds)
    ]


def _policies(loop: Loop) -> PyTree:
    """What it takes to act, kernel and normaliser, on the host: there a seed is taken out without compiling."""
    return jax.device_get(loop.train.policy._asdict())


def _save_policies(out: Path, policies: PyTree, seeds: Sequence[int], step: int) -> None:
    """Writes one file per seed."""
    for i, seed in enumerate(seeds):
        found = jax.tree.map(operator.itemgetter(i), policies)
        checkpoint.save(policy_file(out, seed), found, {"seed": seed, "step": step})


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
    """Refuses a folder that holds no run."""
    if not (out / CONFIG).is_file():
        raise UserError(f"{out} is no run folder: it has no {CONFIG}")
