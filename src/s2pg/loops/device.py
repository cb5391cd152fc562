"""The loop around environments that run on the device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from s2pg.algorithms.base import Algorithm, Metrics
from s2pg.envs.base import Env, Preparable
from s2pg.evaluate import compare
from s2pg.loops.base import (
    EVALUATE,
    INIT,
    TRAIN,
    WARMUP,
    Loop,
    seed_keys,
    settled,
    stream,
    warmup_actor,
    warmup_pieces,
)
from s2pg.loops.layout import Layout, laid
from s2pg.rollout import collect, episodes_seen, experience_seen, start
from s2pg.sharding import spread


class DeviceLoop:
    """Whole chunks of collecting and learning inside one compiled function, seeds under vmap."""

    def __init__(
        self,
        algorithm: Algorithm,
        env: Env,
        seeds: Sequence[int],
        chunk: int,
        episodes: int,
        shared: PyTree = (),
        devices: int = 1,
    ):
        self.algorithm, self.env, self.episodes, self.layout = algorithm, env, episodes, Layout(devices)
        # One copy for all seeds, and an argument of what is compiled, not a constant in it.
        self.plan, self.shared, self.keys = algorithm.plan, self.layout.put(shared), self.layout.put(seed_keys(seeds))
        jit, loop, whole = self.layout.jit, self.layout.loop, self.layout.whole
        self._init = jit(jax.vmap(self._start, (0, None)), (whole, whole), loop)
        self._evaluate = jit(jax.vmap(self._returns), (loop,), whole)
        self._warm_up = jit(jax.vmap(self._fill), (loop,), loop, donate_argnums=0)
        updates = jax.vmap(partial(self._updates, chunk), (0, None))
        self._advance = jit(updates, (loop, whole), (loop, whole), donate_argnums=0)

    def _start(self, key: PRNGKeyArray, shared: PyTree) -> Loop:
        init_key, start_key = jax.random.split(stream(key, INIT))
        train = self.algorithm.init(self.env.spec, shared, key=init_key)
        carry = start(self.env, self.algorithm.actor(train.policy), self.plan.lanes, start_key)
        return laid(settled(Loop(train, carry, key, jnp.zeros((), jnp.int32))))

    def _fill(self, loop: Loop) -> Loop:
        """The warm-up, in pieces: it may be longer than any batch that fits."""

        def store(loop: Loop, steps: int, number: Array | int) -> Loop:
            actor, key = warmup_actor(self.algorithm, loop.train.policy), stream(loop.key, WARMUP, number)
            carry, batch, _ = collect(self.env, actor, loop.carry, steps, key)
            return laid(settled(loop._replace(train=self.algorithm.store(loop.train, batch), carry=carry)))

        sizes, steps = warmup_pieces(self.plan), self.plan.steps
        whole = sizes.count(steps)
        loop, _ = jax.lax.scan(lambda loop, number: (store(loop, steps, number), None), loop, jnp.arange(whole))
        for number, rest in enumerate(sizes[whole:], whole):
            loop = store(loop, rest, number)
        return loop

    def _updates(self, chunk: int, loop: Loop, shared: PyTree) -> tuple[Loop, Metrics]:
        return jax.lax.scan(lambda loop, _: self._update(loop, shared), loop, None, length=chunk)

    def _update(self, loop: Loop, shared: PyTree) -> tuple[Loop, Metrics]:
        start_key, collect_key, update_key = jax.random.split(stream(loop.key, TRAIN, loop.update), 3)
        actor, carry = self.algorithm.actor(loop.train.policy), loop.carry
        if self.plan.whole_episodes:
            carry = spread(start(self.env, actor, self.plan.lanes, start_key, stagger=False))
        carry, batch, ended = collect(self.env, actor, carry, self.plan.steps, collect_key)
        train, metrics = self.algorithm.update(loop.train, batch, shared, update_key)
        seen = experience_seen(batch) | metrics | episodes_seen(ended)
        return laid(settled(Loop(train, carry, loop.key, loop.update + 1))), seen

    def _returns(self, loop: Loop) -> dict[str, Array]:
        key = stream(loop.key, EVALUATE, loop.update)
        actors = [self.algorithm.actor(loop.train.policy, explore) for explore in (False, True)]
        played = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=1), compare(self.env, actors, self.episodes, key))
        (modes, draws), (length, _) = played
        return {"eval_return": modes, "eval_return_stochastic": draws, "eval_length": length}

    def init(self) -> Loop:
        return self._init(self.keys, self.shared)

    def shapes(self) -> Loop:
        return self.layout.placed(jax.eval_shape(self._init, self.keys, self.shared))

    def prepare(self, loop: Loop, fresh: bool = False) -> None:
        if isinstance(self.env, Preparable):
            self.env.prepare()
        if fresh and self.plan.warmup:
            self._warm_up = self._warm_up.lower(loop).compile()
        self._advance = self._advance.lower(loop, self.shared).compile()
        self._evaluate = self._evaluate.lower(loop).compile()

    def warm_up(self, loop: Loop) -> Loop:
        return self._warm_up(loop) if self.plan.warmup else loop

    def advance(self, loop: Loop) -> tuple[Loop, dict[str, np.ndarray]]:
        loop, metrics = self._advance(loop, self.shared)
        return loop, jax.device_get(metrics)

    def evaluate(self, loop: Loop) -> dict[str, np.ndarray]:
        return jax.device_get(self._evaluate(loop))

    def pack(self, loop: Loop) -> PyTree:
        return loop

    def unpack(self, packed: PyTree) -> tuple[Loop, bool]:
        return packed, True

    def close(self) -> None:
        """The device holds nothing open."""
