"""One SAC update with the authors' network sizes under each memory rule, beside the machine's rate for matrices.

Transitions come from pointmass-goal with its privileged critic. Rules without a GRU get wider layers, so that all their
networks together have as many parameters as those of s2pg. Two more rows: `s2pg, stepping` makes an environment step
for each update, and `matrices` multiplies square ones of the same width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from s2pg.algorithms import Algorithm
from s2pg.algorithms.base import TrainState
from s2pg.bench.base import Settings, Workload
from s2pg.bench.flops import matrix_flops
from s2pg.config import build, hyper, labels, presets
from s2pg.envs.base import Env
from s2pg.envs.tasks import make
from s2pg.loops.base import settled
from s2pg.rollout import Carry, collect, start
from s2pg.types import CRITIC

LABELS = ("none", "s2pg", "bptt-5-last", "bptt-5", "bptt-10-last", "bptt-10", "bptt-32-last", "bptt-32")
MATRICES, STEPPING = "matrices", "stepping"
TIMES = 10  # updates in one timed piece of work


def workloads(settings: Settings) -> dict[str, Workload]:
    """One update under each label, one with a step, and products of matrices."""
    env, width = make("pointmass-goal"), settings.width or 256
    assert isinstance(env, Env)
    # The authors' actor encodes observation and previous action apart, with `width` units each.
    own = {"width": width, "encoder_width": 2 * width, "size": 32, "q_network": "branched", "steps": 1, "lanes": 1}
    sizes = own | {"batch_size": settings.batch, "capacity": 100_000, "gradient_steps": 1}
    given = hyper.defaults("sac", "gru") | sizes

    def built(label: str, **more: Any) -> Algorithm:
        choice = labels.parse(label)
        kernel, preset = choice.label.kernel, presets.values("sac", presets.Situation("pointmass-goal"))
        full = presets.resolve("sac", preset, choice, kernel, env.spec, given | more, 1_000_000)
        return build.build("sac", env.spec, choice, kernel, CRITIC, full)

    wanted = parameters(built("s2pg"), env)
    timed = {}
    for label in settings.labels or LABELS:
        count = lambda width, label=label: parameters(built(label, width=width), env)  # noqa: E731
        equal = {} if labels.parse(label).label.any_kernel else {"width": width_with(count, wanted)}
        timed[label] = _update(built(label, **equal), env)
    timed[f"s2pg, {STEPPING}"] = _stepping(built("s2pg"), env)
    timed[MATRICES] = _matrices(width)
    return timed


def parameters(algorithm: Algorithm, env: Env) -> int:
    """Of actor and critics; slow copies are not counted."""
    state = eqx.filter_eval_shape(lambda: algorithm.init(env.spec, (), key=jax.random.key(0)))
    return sum(leaf.size for leaf in jax.tree.leaves((state.policy.kernel, state.learner.critic)))


def width_with(count: Callable[[int], int], wanted: int, unit: int = 8) -> int:
    """The multiple of `unit` at which `count`, which grows with the width, comes closest to what is wanted."""
    width = unit
    while count(width + unit) <= wanted:
        width += unit
    return min((width, width + unit), key=lambda each: abs(count(each) - wanted))


def _filled(algorithm: Algorithm, env: Env) -> tuple[TrainState, Carry]:
    """A training state with a full buffer: 2,000 steps, over and over."""
    keys, rows = jax.random.split(jax.random.key(0), 3), 2000

    def prepare() -> tuple[TrainState, Carry]:
        state = algorithm.init(env.spec, (), key=keys[0])
        actor = algorithm.actor(state.policy)
        carry, batch, _ = collect(env, actor, start(env, actor, algorithm.plan.lanes, keys[1]), rows, keys[2])
        again = lambda state, _: (algorithm.store(state, batch), None)  # noqa: E731
        return settled((jax.lax.scan(again, state, None, length=50)[0], carry))

    return jax.block_until_ready(jax.jit(prepare)())


def _update(algorithm: Algorithm, env: Env) -> Workload:
    """Updates one after the other inside one compiled function, as in training, each of the same new row."""
    state, carry = _filled(algorithm, env)
    key = jax.random.key(1)
    _, batch, _ = jax.jit(lambda: collect(env, algorithm.actor(state.policy), carry, algorithm.plan.steps, key))()

    def one(state: TrainState, key: Array) -> tuple[TrainState, Array]:
        state, metrics = algorithm.update(state, batch, (), key)
        return settled(state), metrics["critic_loss"]

    return _repeated(one, state, parameters(algorithm, env))


def _stepping(algorithm: Algorithm, env: Env) -> Workload:
    """The same with an environment step before each update."""

    def one(loop: tuple, key: Array) -> tuple[tuple, Array]:
        state, carry = loop
        collect_key, update_key = jax.random.split(key)
        carry, batch, _ = collect(env, algorithm.actor(state.policy), carry, algorithm.plan.steps, collect_key)
        state, metrics = algorithm.update(state, batch, (), update_key)
        return settled((state, carry)), metrics["critic_loss"]

    return _repeated(one, _filled(algorithm, env), parameters(algorithm, env))


def _repeated(one: Callable[[Any, Array], tuple[Any, Array]], start: Any, size: int) -> Workload:
    """`one` over and over, the buffer within what it carries changed in place."""
    whole = lambda carry, key: jax.lax.scan(one, carry, jax.random.split(key, TIMES))  # noqa: E731
    run, kept, key = jax.jit(whole, donate_argnums=0), [start], jax.random.key(2)
    gflop = matrix_flops(whole, start, key) / TIMES / 1e9

    def work() -> Any:
        kept[0], losses = run(kept[0], key)
        return losses

    return Workload(work, {"pieces": TIMES, "parameters": size, "gflop": gflop})


def _matrices(width: int, times: int = 50) -> Workload:
    """A chain of products of square matrices."""
    matrix = jnp.full((width, width), 1.0 / width)

    def chain(x: Array) -> Array:
        for _ in range(times):
            x = x @ matrix
        return x

    run = jax.jit(chain)
    return Workload(lambda: run(matrix), {"gflop": times * 2 * width**3 / 1e9})
