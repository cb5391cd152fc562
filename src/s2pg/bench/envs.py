"""One step of each robot under random actions, beside Gymnasium's own vector environments; and training on top of it.

sync            SyncVectorEnv of the plain robot
async           AsyncVectorEnv of the same, a process for each environment
gymnasium       our lanes on the host
mjx, warp       our environments on the device, many steps inside one compiled function
mjx, ppo s2pg   whole updates of PPO on those (also "warp, ppo s2pg"): collecting and learning

Those on the device take options of the task, "mjx, iterations=4", and training PPO's hyper-parameters as well:
"warp, ppo s2pg, minibatches=16".
"""

from __future__ import annotations

import contextlib
import functools
import runpy
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from jaxtyping import Array

from s2pg.bench.base import Settings, Workload
from s2pg.config.hyper import settings as hyper_settings
from s2pg.envs.base import Env
from s2pg.envs.host import HostTask
from s2pg.envs.mujoco import warp
from s2pg.envs.mujoco.models import mujoco
from s2pg.envs.mujoco.options import DEVICE
from s2pg.envs.mujoco.task import NAMES
from s2pg.envs.tasks import make
from s2pg.errors import UserError, unknown
from s2pg.loops import DeviceLoop
from s2pg.runs.experiment import resolve
from s2pg.runs.request import Request

SYNC, ASYNC, HOST, TRAINING = "sync", "async", "gymnasium", "ppo s2pg"


def workloads(settings: Settings) -> dict[str, Workload]:
    """One step of each robot, each way."""
    # On a CPU MJX compiles for minutes, only to be slower than MuJoCo itself: there it has to be asked for.
    device = [way for way in ON_DEVICE if way.startswith("warp") <= warp.available()]
    chosen = settings.labels or (*ON_HOST, *(() if jax.default_backend() == "cpu" else device))
    tasks = settings.tasks or tuple(NAMES)
    for label in chosen:
        way, options = parts(label)
        kind, known = ("way to step with options", tuple(ON_DEVICE)) if options else ("way to step", LABELS)
        if way not in known:
            raise unknown(kind, way, known)
        if fixed := {"lanes", "steps"} & options.keys():
            raise UserError(f"{min(fixed)} of '{label}': --device-lanes and --device-steps set them for all labels")
    for task in tasks:
        if task not in NAMES:
            raise unknown("robot", task, NAMES)
    mujoco()  # one line where it is missing

    def facts(task: str, label: str) -> dict[str, Any]:
        lanes, steps = settings.host_lanes, settings.steps
        if parts(label)[0] in ON_DEVICE:
            lanes, steps = settings.device_lanes, settings.device_steps
        known = {"lanes": lanes, "pieces": lanes * steps, "piece": "steps", "against": f"{task} {chosen[0]}"}
        bare = stepping(label)
        return known | ({"share_of": f"{task} {bare}"} if bare != label and bare in chosen else {})

    cases = {f"{task} {label}": (task, label) for task in tasks for label in chosen}
    compiled = _compiled({name: case for name, case in cases.items() if parts(case[1])[0] in ON_DEVICE}, settings)
    made: dict[str, Workload] = {}
    for name, (task, label) in cases.items():
        timed = compiled[name] if name in compiled else ON_HOST[label](task, settings)
        made[name] = timed._replace(facts=facts(task, label))
    return made


def parts(label: str) -> tuple[str, dict[str, str]]:
    """(way to step, options): "mjx, ppo s2pg, iterations=4" has both."""
    words = label.split(", ")
    options = dict(word.split("=", 1) for word in words if "=" in word)
    return ", ".join(word for word in words if "=" not in word), options


def stepping(label: str) -> str:
    """The label of what training steps: "mjx, iterations=4" of "mjx, ppo s2pg, iterations=4, minibatches=16"."""
    words = label.split(", ")
    if TRAINING not in words:
        return label
    learned = hyper_settings("ppo", "gru")
    return ", ".join(word for word in words if word != TRAINING and word.partition("=")[0] not in learned)


def _compiled(cases: dict[str, tuple[str, str]], settings: Settings) -> dict[str, Workload]:
    """Everything that is compiled for the device; for MJX side by side: each takes minutes, and XLA holds no lock."""
    # Source one after the other: reading a model silences MuJoCo for the whole process.
    robots: dict[tuple[str, str], Any] = {}
    for task, label in cases.values():
        backend, options = parts(stepping(label))
        if (task, stepping(label)) not in robots:
            robots[task, stepping(label)] = make(task, backend=backend, **options)

    def warm(case: tuple[str, str]) -> Workload:
        task, label = case
        way, options = parts(label)
        hyper = {name: value for name, value in options.items() if name not in parts(stepping(label))[1]}
        timed = ON_DEVICE[way](robots[task, stepping(label)], settings, **hyper)
        jax.block_until_ready(timed.work())
        return timed

    # Warp compiles its kernels when they are first asked for, one process's one after the other.
    first = {name: warm(case) for name, case in cases.items() if case[1].startswith("warp")}
    rest = {name: case for name, case in cases.items() if name not in first}
    # MJX's import swaps stdout, for the whole process as well: threads may leave it swapped.
    with contextlib.redirect_stdout(sys.stdout), ThreadPoolExecutor(max(1, len(rest))) as pool:
        return first | dict(zip(rest, pool.map(warm, rest.values()), strict=True))


def _vector(task: str, settings: Settings, build: Callable[..., VectorEnv]) -> Workload:
    file, id = str(Path(__file__).with_name("plain.py")), NAMES[task]
    makers = [lambda: runpy.run_path(file)["make"](id)] * settings.host_lanes  # a lambda travels as it is
    # As ours do: a step that ends an episode begins the next one.
    stepped = build(makers, autoreset_mode=AutoresetMode.SAME_STEP)
    stepped.reset(seed=0)
    space = stepped.single_action_space
    assert isinstance(space, gymnasium.spaces.Box)
    actions = np.random.default_rng(0).uniform(
        space.low, space.high, (settings.steps, settings.host_lanes, *space.shape)
    )

    def work() -> None:
        for action in actions.astype(np.float32):
            stepped.step(action)

    return Workload(work, close=stepped.close)


def _sync(task: str, settings: Settings) -> Workload:
    return _vector(task, settings, SyncVectorEnv)


def _async(task: str, settings: Settings) -> Workload:
    # Beside JAX's threads a forked process may wait for a lock for ever; this forks from a process without any.
    return _vector(task, settings, functools.partial(AsyncVectorEnv, context="forkserver"))


def _host(task: str, settings: Settings) -> Workload:
    robot = make(task, backend="gymnasium")
    assert isinstance(robot, HostTask)
    lanes = robot.lanes([0], settings.host_lanes)
    lanes.reset()
    shape = (settings.steps, 1, settings.host_lanes, robot.spec.action.size)
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, shape).astype(np.float32)

    def work() -> None:
        for action in actions:
            lanes.step(action)

    return Workload(work, close=lanes.close)


def _device(env: Any, settings: Settings) -> Workload:
    assert isinstance(env, Env)
    lanes, size = settings.device_lanes, env.spec.action.size

    def step(state: Any, key: Array) -> tuple[Any, Array]:
        action_key, env_key = jax.random.split(key)
        actions = jax.random.uniform(action_key, (lanes, size), minval=-1.0, maxval=1.0)
        state, after = jax.vmap(env.step)(state, actions, jax.random.split(env_key, lanes))
        # What a policy would read has to be made as well: what nobody asks for XLA leaves out.
        return state, sum(view.sum() for view in after.obs.values()) + after.reward.sum()

    reset = jax.jit(lambda key: jax.vmap(env.reset)(jax.random.split(key, lanes))[0])
    run = jax.jit(
        lambda state, key: jax.lax.scan(step, state, jax.random.split(key, settings.device_steps)), donate_argnums=0
    )
    return _carried(run, reset(jax.random.key(0)), jax.random.key(1))


def _carried(run: Callable[..., Any], state: Any, *given: Any) -> Workload:
    """Work that goes on where it stopped the last time."""
    kept = [state]

    def work() -> Any:
        kept[0], told = run(kept[0], *given)
        return told

    return Workload(work)


def _training(env: Any, settings: Settings, **hyper: str) -> Workload:
    sizes = {"lanes": settings.device_lanes, "steps": settings.device_steps}
    _, algorithm = resolve(Request("ppo", "", hyper=hyper | sizes), env)
    loop = DeviceLoop(algorithm, env, (0,), chunk=1, episodes=1)
    return _carried(loop.advance, loop.init())


# Of a task by name, and of one that is made already.
ON_HOST: dict[str, Callable[[str, Settings], Workload]] = {SYNC: _sync, ASYNC: _async, HOST: _host}
ON_DEVICE: dict[str, Callable[..., Workload]] = {
    way: work for backend in DEVICE for way, work in ((backend, _device), (f"{backend}, {TRAINING}", _training))
}
LABELS = (*ON_HOST, *ON_DEVICE)
