"""The loop around environments that run on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from s2pg.algorithms.base import Algorithm, Metrics
from s2pg.evaluate import compare
from s2pg.loops.base import (
    EVALUATE,
    INIT,
    TRAIN,
    WARMUP,
    Loop,
    parameter_norm,
    seed_keys,
    settled,
    stream,
    warmup_pieces,
)
from s2pg.rollout import collect, episodes_seen, start


class DeviceLoop:
    """Whole chunks of collecting and learning inside one compiled function, seeds under vmap."""

    def __init__(self, algorithm: Algorithm, env: Any, seeds: Sequence[int], chunk: int, episodes: int):
        self.algorithm, self.env, self.keys, self.episodes = algorithm, env, seed_keys(seeds), episodes
        self._init: Any = jax.jit(jax.vmap(self._start))
        self._evaluate: Any = jax.jit(jax.vmap(self._returns))
        self._warm_up: Any = jax.jit(jax.vmap(self._fill), donate_argnums=0)
        scan = lambda loop: jax.lax.scan(self._update, loop, None, length=chunk)  # noqa: E731
        self._advance: Any = jax.jit(jax.vmap(scan), donate_argnums=0)

    def _start(self, key: PRNGKeyArray) -> Loop:
        init_key, start_key = jax.random.split(stream(key, INIT))
        train = self.algorithm.init(self.env.spec, key=init_key)
        carry = start(self.env, self.algorithm.actor(train), self.algorithm.lanes, start_key)
        return settled(Loop(train, carry, key, jnp.zeros((), jnp.int32)))

    def _fill(self, loop: Loop) -> Loop:
        """The warm-up, in pieces: it may be longer than any batch that fits."""

        def store(loop: Loop, steps: int, number: Array | int) -> Loop:
            actor, key = self.algorithm.warmup_actor(loop.train), stream(loop.key, WARMUP, number)
            carry, batch, _ = collect(self.env, actor, loop.carry, steps, key)
            return settled(loop._replace(train=self.algorithm.remember(loop.train, batch), carry=carry))

        sizes, steps = warmup_pieces(self.algorithm), self.algorithm.steps
        whole = sizes.count(steps)
        loop, _ = jax.lax.scan(lambda loop, number: (store(loop, steps, number), None), loop, jnp.arange(whole))
        for number, rest in enumerate(sizes[whole:], whole):
            loop = store(loop, rest, number)
        return loop

    def _update(self, loop: Loop, _: None) -> tuple[Loop, Metrics]:
        start_key, collect_key, update_key = jax.random.split(stream(loop.key, TRAIN, loop.update), 3)
        actor, carry = self.algorithm.actor(loop.train), loop.carry
        if self.algorithm.whole_episodes:
            carry = start(self.env, actor, self.algorithm.lanes, start_key, stagger=False)
        carry, batch, ended = collect(self.env, actor, carry, self.algorithm.steps, collect_key)
        train, metrics = self.algorithm.update(loop.train, batch, update_key)
        metrics |= {"parameter_norm": parameter_norm(train)} | episodes_seen(ended)
        return settled(Loop(train, carry, loop.key, loop.update + 1)), metrics

    def _returns(self, loop: Loop) -> dict[str, Array]:
        key = stream(loop.key, EVALUATE, loop.update)
        actors = [self.algorithm.actor(loop.train, explore) for explore in (False, True)]
        modes, draws = jnp.mean(compare(self.env, actors, self.episodes, key), axis=1)
        return {"eval_return": modes, "eval_return_stochastic": draws}

    def init(self) -> Loop:
        return self._init(self.keys)

    def shapes(self) -> Loop:
        return jax.eval_shape(self._init, self.keys)

    def prepare(self, loop: Loop, fresh: bool = False) -> None:
        if fresh and self.algorithm.warmup:
            self._warm_up = self._warm_up.lower(loop).compile()
        self._advance = self._advance.lower(loop).compile()
        self._evaluate = self._evaluate.lower(loop).compile()

    def warm_up(self, loop: Loop) -> Loop:
        return self._warm_up(loop) if self.algorithm.warmup else loop

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
