"""One SAC update with the authors' network sizes under each memory rule, beside the machine's rate for matrices.

Transitions come from pointmass-goal with its privileged critic. Rules without a GRU get wider layers, so that all their
networks together have as many parameters as those of s2pg. Three more rows: `s2pg, stepping` makes an environment step
for each update, `slac window-8` is one of SLAC, its model learning too, and `matrices` multiplies square ones of the
same width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from s2pg.algorithms import Algorithm
from s2pg.algorithms.base import TrainState
from s2pg.bench.base import Settings, Workload
from s2pg.bench.flops import matrix_flops
from s2pg.config import build, hyper, labels, presets
from s2pg.envs.base import Env
from s2pg.envs.tasks import make
from s2pg.loops.base import settled
from s2pg.rollout import Carry, collect, start

LABELS = ("none", "s2pg", "bptt-5-last", "bptt-5", "bptt-10-last", "bptt-10", "bptt-32-last", "bptt-32")
MATRICES, STEPPING, SLAC = "matrices", "stepping", "window-8"
TIMES = 10  # updates in one timed piece of work


class Trial(NamedTuple):
    """An algorithm that learns from a replay buffer, on a task, with the authors' sizes of networks."""

    name: str
    env: Env
    settings: Settings
    shared: PyTree = ()

    @property
    def width(self) -> int:
        """Units of a layer, unless more make up for a GRU."""
        return self.settings.width or 256

    def built(self, label: str, **more: Any) -> Algorithm:
        """Makes it under a memory label."""
        width, batch, task = self.width, self.settings.batch, "pointmass-goal"
        # The authors' actor encodes observation and previous action apart, with `width` units each.
        own = {"width": width, "encoder_width": 2 * width, "size": 32, "q_network": "branched", "steps": 1, "lanes": 1}
        sizes = own | {"batch_size": batch, "capacity": 100_000, "gradient_steps": 1}
        given = hyper.defaults(self.name, "gru") | sizes | more
        choice = labels.parse(label)
        kernel, preset = choice.label.kernel, presets.values(self.name, presets.Situation(task))
        full = presets.resolve(self.name, preset, choice, kernel, self.env.spec, given, 1_000_000)
        return build.build(self.name, self.env.spec, choice, kernel, preset.critic, full)

    def equal(self, label: str) -> Algorithm:
        """The same with as many parameters as under s2pg, where there is no GRU."""
        wanted = parameters(self.built("s2pg"), self)
        count = lambda width: parameters(self.built(label, width=width), self)  # noqa: E731
        wider = {} if labels.parse(label).label.any_kernel else {"width": width_with(count, wanted)}
        return self.built(label, **wider)


def workloads(settings: Settings) -> dict[str, Workload]:
    """One update under each label, one with a step, and products of matrices."""
    trial = Trial("sac", pointmass(), settings)
    timed = {label: update(trial, trial.equal(label)) for label in settings.labels or LABELS}
    timed[f"s2pg, {STEPPING}"] = _stepping(trial)
    modelled = trial._replace(name="slac")
    timed[f"slac {SLAC}"] = update(modelled, modelled.built(SLAC, pretraining=0))
    timed[MATRICES] = _matrices(trial.width)
    return timed


def pointmass() -> Env:
    """The task that transitions come from."""
    env = make("pointmass-goal")
    assert isinstance(env, Env)
    return env


def parameters(algorithm: Algorithm, trial: Trial) -> int:
    """Of actor and critics, and of the model where there is one; slow copies are not counted."""
    state = eqx.filter_eval_shape(lambda: algorithm.init(trial.env.spec, trial.shared, key=jax.random.key(0)))
    parts = (state.policy.kernel, state.learner.critic, getattr(state.learner, "model", ()))
    return sum(leaf.size for leaf in jax.tree.leaves(parts))


def width_with(count: Callable[[int], int], wanted: int, unit: int = 8) -> int:
    """The multiple of `unit` at which `count`, which grows with the width, comes closest to what is wanted."""
    width = unit
    while count(width + unit) <= wanted:
        width += unit
    return min((width, width + unit), key=lambda each: abs(count(each) - wanted))


def _filled(algorithm: Algorithm, trial: Trial) -> tuple[TrainState, Carry]:
    """A training state with a full buffer: 2,000 steps, over and over."""
    keys, rows, env = jax.random.split(jax.random.key(0), 3), 2000, trial.env

    def prepare(shared: PyTree) -> tuple[TrainState, Carry]:
        state = algorithm.init(env.spec, shared, key=keys[0])
        actor = algorithm.actor(state.policy)
        carry, batch, _ = collect(env, actor, start(env, actor, algorithm.plan.lanes, keys[1]), rows, keys[2])
        again = lambda state, _: (algorithm.store(state, batch), None)  # noqa: E731
        return settled((jax.lax.scan(again, state, None, length=50)[0], carry))

    return jax.block_until_ready(jax.jit(prepare)(trial.shared))


def update(trial: Trial, algorithm: Algorithm) -> Workload:
    """Updates one after the other inside one compiled function, as in training, each of the same new row."""
    env = trial.env
    state, carry = _filled(algorithm, trial)
    key = jax.random.key(1)
    _, batch, _ = jax.jit(lambda: collect(env, algorithm.actor(state.policy), carry, algorithm.plan.steps, key))()

    def one(state: TrainState, key: Array, shared: PyTree) -> tuple[TrainState, Array]:
        state, metrics = algorithm.update(state, batch, shared, key)
        return settled(state), metrics["critic_loss"]

    return _repeated(one, state, parameters(algorithm, trial), trial.shared)


def _stepping(trial: Trial) -> Workload:
    """The same with an environment step before each update."""
    algorithm = trial.built("s2pg")

    def one(loop: tuple, key: Array, shared: PyTree) -> tuple[tuple, Array]:
        state, carry = loop
        collect_key, update_key = jax.random.split(key)
        carry, batch, _ = collect(trial.env, algorithm.actor(state.policy), carry, algorithm.plan.steps, collect_key)
        state, metrics = algorithm.update(state, batch, shared, update_key)
        return settled((state, carry)), metrics["critic_loss"]

    return _repeated(one, _filled(algorithm, trial), parameters(algorithm, trial), trial.shared)


def _repeated(
    one: Callable[[Any, Array, PyTree], tuple[Any, Array]], start: Any, size: int, shared: PyTree
) -> Workload:
    """`one` over and over, the buffer within what it carries changed in place."""

    def whole(carry: Any, key: Array, shared: PyTree) -> tuple[Any, Array]:
        return jax.lax.scan(lambda carry, key: one(carry, key, shared), carry, jax.random.split(key, TIMES))

    run, kept, key = jax.jit(whole, donate_argnums=0), [start], jax.random.key(2)
    gflop = matrix_flops(whole, start, key, shared) / TIMES / 1e9

    def work() -> Any:
        kept[0], losses = run(kept[0], key, shared)
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
