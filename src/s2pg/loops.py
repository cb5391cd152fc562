"""The training loop proper, on the device and on the host: both turn a `Loop` into a later one and some metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray, PyTree

from s2pg.algorithms.base import Algorithm, Metrics, TrainState
from s2pg.evaluate import evaluate, play
from s2pg.optimise import norm
from s2pg.rollout import Carry, collect, initial_state, outcome, start, transition
from s2pg.types import Timestep, Transition

INIT, TRAIN, EVALUATE = 0, 1, 2  # streams of random numbers: none depends on how often another was used


class Loop(NamedTuple):
    """Everything that training is, for every seed: what a checkpoint holds."""

    train: TrainState
    carry: Carry
    key: PRNGKeyArray
    update: Array


class Looper(Protocol):
    """Runs `chunk` updates at a time; arrays have a leading axis of seeds."""

    def init(self) -> Loop: ...

    def prepare(self, loop: Loop) -> None:
        """Compiles, so that time measured later is time of training."""
        ...

    def advance(self, loop: Loop) -> tuple[Loop, dict[str, np.ndarray]]:
        """`chunk` updates: the loop after them (the one before is used up), metrics [seeds, chunk]."""
        ...

    def evaluate(self, loop: Loop) -> dict[str, np.ndarray]: ...

    def pack(self, loop: Loop) -> PyTree: ...

    def unpack(self, packed: PyTree) -> tuple[Loop, bool]:
        """The loop again; False where the environments could not be brought back exactly."""
        ...

    def close(self) -> None: ...


def stream(key: PRNGKeyArray, which: Array | int, update: Array | int = 0) -> PRNGKeyArray:
    return jax.random.fold_in(jax.random.fold_in(key, which), update)


def seed_keys(seeds: Sequence[int]) -> Key[Array, " seeds"]:
    return jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))


def settled(tree: PyTree) -> PyTree:
    """The same without weak types: the first update would lose them, and the second be compiled anew."""
    return jax.tree.map(lambda leaf: leaf.astype(leaf.dtype), tree)


def _norm(state: TrainState) -> Array:
    return norm((state.kernel, state.critic))


def _returns(evaluator: Any, algorithm: Algorithm, loop: Loop) -> dict[str, Array]:
    key = stream(loop.key, EVALUATE, loop.update)
    return {
        "eval_return": jnp.mean(evaluator(algorithm.actor(loop.train, explore=False), key)),
        "eval_return_stochastic": jnp.mean(evaluator(algorithm.actor(loop.train, explore=True), key)),
    }


def _nanmean(ended: np.ndarray) -> np.ndarray:
    """Mean over steps and lanes [T, S, N] of the episodes that ended, NaN for a seed where none did."""
    count = np.isfinite(ended).sum(axis=(0, 2))
    return np.where(count > 0, np.nansum(ended, axis=(0, 2)) / np.maximum(count, 1), np.nan)


class DeviceLoop:
    """Whole chunks of collecting and learning inside one compiled function, seeds under vmap."""

    def __init__(self, algorithm: Algorithm, env: Any, seeds: Sequence[int], chunk: int, episodes: int):
        self.algorithm, self.env, self.keys = algorithm, env, seed_keys(seeds)
        evaluator = lambda actor, key: evaluate(env, actor, episodes, key)  # noqa: E731
        self._evaluate: Any = jax.jit(jax.vmap(lambda loop: _returns(evaluator, algorithm, loop)))
        scan = lambda loop: jax.lax.scan(self._update, loop, None, length=chunk)  # noqa: E731
        self._advance: Any = jax.jit(jax.vmap(scan), donate_argnums=0)

    def init(self) -> Loop:
        def one(key: PRNGKeyArray) -> Loop:
            init_key, start_key = jax.random.split(stream(key, INIT))
            train = self.algorithm.init(self.env.spec, key=init_key)
            carry = start(self.env, self.algorithm.actor(train), self.algorithm.lanes, start_key)
            return settled(Loop(train, carry, key, jnp.zeros((), jnp.int32)))

        return jax.jit(jax.vmap(one))(self.keys)

    def _update(self, loop: Loop, _: None) -> tuple[Loop, Metrics]:
        start_key, collect_key, update_key = jax.random.split(stream(loop.key, TRAIN, loop.update), 3)
        actor, carry = self.algorithm.actor(loop.train), loop.carry
        if self.algorithm.whole_episodes:
            carry = start(self.env, actor, self.algorithm.lanes, start_key, stagger=False)
        carry, batch, ended = collect(self.env, actor, carry, self.algorithm.steps, collect_key)
        train, metrics = self.algorithm.update(loop.train, batch, update_key)
        metrics |= {"parameter_norm": _norm(train), "train_return": jnp.nanmean(ended)}
        return settled(Loop(train, carry, loop.key, loop.update + 1)), metrics

    def prepare(self, loop: Loop) -> None:
        self._advance = self._advance.lower(loop).compile()
        self._evaluate = self._evaluate.lower(loop).compile()

    def advance(self, loop: Loop) -> tuple[Loop, dict[str, np.ndarray]]:
        loop, metrics = self._advance(loop)
        return loop, jax.device_get(metrics)

    def evaluate(self, loop: Loop) -> dict[str, np.ndarray]:
        return jax.device_get(self._evaluate(loop))

    def pack(self, loop: Loop) -> PyTree:
        return loop

    def unpack(self, packed: PyTree) -> tuple[Loop, bool]:
        return packed, True

    def close(self) -> None:
        """The device holds nothing open."""


class HostLoop:
    """The same around environments of the host, which are stepped in Python between compiled functions."""

    def __init__(self, algorithm: Algorithm, task: Any, seeds: Sequence[int], chunk: int, episodes: int):
        self.algorithm, self.task, self.keys, self.chunk, self.episodes = (
            algorithm, task, seed_keys(seeds), chunk, episodes,
        )  # fmt: skip
        self.lanes, self.eval_lanes = task.lanes(seeds, algorithm.lanes), task.lanes(seeds, episodes)
        self._act = {explore: jax.jit(jax.vmap(self._actor(explore), (0, 0, 0, 0, None))) for explore in (False, True)}
        self._learn = jax.jit(jax.vmap(self._learner))
        self._key = jax.jit(jax.vmap(stream, (0, None, 0)))

    def _actor(self, explore: bool) -> Any:
        def act(train: TrainState, timestep: Timestep, z: PyTree, key: PRNGKeyArray, t: Array) -> Transition:
            keys = jax.random.split(jax.random.fold_in(key, t), timestep.reward.shape[0])
            actor = self.algorithm.actor(train, explore)
            return jax.vmap(transition, in_axes=(None, 0, 0, 0))(actor, timestep, z, keys)

        return act

    def _learner(self, loop: Loop, rows: list[Transition], after: list[Timestep]) -> tuple[TrainState, Metrics]:
        batch = outcome(*(jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts) for parts in (rows, after)))
        # The steps of the batch have taken the numbers below.
        key = jax.random.fold_in(stream(loop.key, TRAIN, loop.update), self.algorithm.steps)
        train, metrics = self.algorithm.update(loop.train, batch, key)
        return train, metrics | {"parameter_norm": _norm(train)}

    def init(self) -> Loop:
        def one(key: PRNGKeyArray) -> tuple[TrainState, PyTree]:
            train = self.algorithm.init(self.task.spec, key=stream(key, INIT))
            return settled((train, initial_state(self.algorithm.actor(train), self.algorithm.lanes)))

        train, z = jax.jit(jax.vmap(one))(self.keys)
        timestep = self.lanes.reset()
        carry = Carry((), timestep, z, jnp.zeros(timestep.reward.shape))
        return Loop(train, carry, self.keys, jnp.zeros(len(self.keys), jnp.int32))

    def prepare(self, loop: Loop) -> None:
        """Host loops compile as they go: their first chunk is slower."""

    def advance(self, loop: Loop) -> tuple[Loop, dict[str, np.ndarray]]:
        kept = []
        for _ in range(self.chunk):
            loop, metrics = self._update(loop)
            kept.append(metrics)
        return loop, jax.tree.map(lambda *values: np.stack(jax.device_get(values), axis=1), *kept)

    def _update(self, loop: Loop) -> tuple[Loop, Metrics]:
        key = self._key(loop.key, TRAIN, loop.update)
        carry = loop.carry
        if self.algorithm.whole_episodes:
            timestep = self.lanes.reset(stream=2 * self._count(loop) + 2)
            carry = Carry((), timestep, carry.z, jnp.zeros(timestep.reward.shape))
        timestep, z, score = carry.timestep, carry.z, np.asarray(carry.score)
        rows, afters, ended = [], [], []
        for t in range(self.algorithm.steps):
            row = self._act[True](loop.train, timestep, z, key, t)
            timestep, z = self.lanes.step(jax.device_get(row.decision.action)), row.next_z
            score = score + timestep.reward
            ended.append(np.where(timestep.first, score, np.nan))
            score = np.where(timestep.first, 0.0, score)
            rows.append(row)
            afters.append(timestep)
        train, metrics = self._learn(loop, rows, afters)
        metrics["train_return"] = _nanmean(np.stack(ended))
        carry = Carry((), timestep, z, jnp.asarray(score, jnp.float32))
        return Loop(train, carry, loop.key, loop.update + 1), metrics

    @staticmethod
    def _count(loop: Loop) -> int:
        return int(loop.update[0])

    def evaluate(self, loop: Loop) -> dict[str, np.ndarray]:
        return {
            "eval_return": self._play(loop, explore=False),
            "eval_return_stochastic": self._play(loop, explore=True),
        }

    def _play(self, loop: Loop, explore: bool) -> np.ndarray:
        """Mean return per seed over exactly `episodes` episodes, one per lane."""
        key = self._key(loop.key, EVALUATE, loop.update)
        z = jax.vmap(lambda train: initial_state(self.algorithm.actor(train), self.episodes))(loop.train)
        act = lambda timestep, z, t: self._act[explore](loop.train, timestep, z, key, t)  # noqa: E731
        return play(self.eval_lanes, act, z, stream=2 * self._count(loop) + 1).mean(axis=1)

    def pack(self, loop: Loop) -> PyTree:
        # An episodic algorithm starts its episodes anew in every update: there are no open ones to bring back.
        return {"loop": loop, "host": {} if self.algorithm.whole_episodes else self.lanes.snapshot()}

    def unpack(self, packed: PyTree) -> tuple[Loop, bool]:
        loop: Loop = packed["loop"]
        if self.algorithm.whole_episodes:
            return loop, True
        timestep, exact = self.lanes.restore(packed["host"])
        if not exact:  # go on from what the environments show now; an episode that had to begin anew has no score yet
            score = jnp.where(timestep.first, 0.0, loop.carry.score)
            loop = loop._replace(carry=loop.carry._replace(timestep=timestep, score=score))
        return loop, exact

    def close(self) -> None:
        self.lanes.close()
        self.eval_lanes.close()
