"""The loop around environments of the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray, PyTree

from s2pg.actor import Actor
from s2pg.algorithms.base import Algorithm, Metrics, Policy, TrainState
from s2pg.envs.host import HostTask
from s2pg.evaluate import Played, play
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
from s2pg.rollout import Carry, EpisodeEnds, experience_seen, initial_state, outcome, transition
from s2pg.types import Timestep, Transition


class HostLoop:
    """Environments of the host are stepped in Python between compiled functions.

    An off-policy algorithm learns from a batch while the next one is stepped, by the policy from before the update:
    always that one, however long either takes. `Loop.acting` is this policy.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        task: HostTask,
        seeds: Sequence[int],
        chunk: int,
        episodes: int,
        shared: PyTree = (),
        near: Any = None,
    ):
        self.algorithm, self.task, self.keys, self.chunk, self.episodes = (
            algorithm, task, seed_keys(seeds), chunk, episodes,
        )  # fmt: skip
        self.plan, self.shared = algorithm.plan, jax.device_put(shared)
        self.lanes, self.eval_lanes = task.lanes(seeds, self.plan.lanes), task.lanes(seeds, episodes)
        self._near = near or (_beside_the_accelerator() if self.plan.may_lag else None)
        self._act = {explore: _acts(lambda policy, e=explore: algorithm.actor(policy, e)) for explore in (False, True)}
        self._act_warmup = _acts(lambda policy: warmup_actor(algorithm, policy))
        # The replay buffer is written in place. Nothing else may be donated: kernels are still acted with.
        self._learn = jax.jit(jax.vmap(self._learner, (0, 0, 0, 0, 0, 0, None)), donate_argnums=0)
        self._store = jax.jit(jax.vmap(self._storer), donate_argnums=0)
        self._key = jax.jit(jax.vmap(stream, (0, None, 0)))
        # On a CPU what one thread asks for is done in turn, whatever it is: an update needs a thread of its own for
        # the acting not to wait for it.
        self._thread = ThreadPoolExecutor(1) if self.plan.may_lag else None

    def _learner(
        self,
        replay: PyTree,
        train: TrainState,
        key: PRNGKeyArray,
        update: Array,
        rows: list[Transition],
        after: list[Timestep],
        shared: PyTree,
    ) -> tuple[TrainState, Metrics]:
        # The steps of the batch have taken the numbers below.
        key = jax.random.fold_in(stream(key, TRAIN, update), self.plan.steps)
        batch = _batch(rows, after)
        train, metrics = settled(self.algorithm.update(train._replace(replay=replay), batch, shared, key))
        return train, experience_seen(batch) | metrics

    def _storer(self, replay: PyTree, train: TrainState, rows: list[Transition], after: list[Timestep]) -> TrainState:
        return settled(self.algorithm.store(train._replace(replay=replay), _batch(rows, after)))

    def _start(self, key: PRNGKeyArray, shared: PyTree) -> tuple[TrainState, PyTree]:
        train = self.algorithm.init(self.task.spec, shared, key=stream(key, INIT))
        return settled((train, initial_state(self.algorithm.actor(train.policy), self.plan.lanes)))

    def _loop(self, train: TrainState, z: PyTree) -> Loop:
        timestep = self.lanes.reset()
        carry = Carry((), timestep, z, np.zeros(timestep.reward.shape, np.float32))
        return Loop(train, carry, self.keys, np.zeros(len(self.keys), np.int32), self._lag(train))

    def _lag(self, train: TrainState) -> PyTree:
        """What `Loop.acting` holds after this state has been learned from."""
        return train.policy if self.plan.may_lag else ()

    def _placed(self, tree: PyTree) -> PyTree:
        """The same where acting happens."""
        return tree if self._near is None else jax.device_put(tree, self._near)

    def init(self) -> Loop:
        train, z = jax.jit(jax.vmap(self._start, (0, None)))(self.keys, self.shared)
        return self._loop(train, self._placed(z))

    def shapes(self) -> Loop:
        return self._loop(*jax.eval_shape(jax.vmap(self._start, (0, None)), self.keys, self.shared))

    def prepare(self, loop: Loop, fresh: bool = False) -> None:
        """Host loops compile as they go: their first chunk is slower."""

    def warm_up(self, loop: Loop) -> Loop:
        train, carry = loop.train, loop.carry
        for number, steps in enumerate(warmup_pieces(self.plan)):
            key = self._key(self._placed(loop.key), WARMUP, np.full_like(loop.update, number))
            carry, rows, afters, _ = self._step(self._act_warmup, train.policy, carry, key, steps)
            train = self._store(train.replay, train._replace(replay=()), rows, afters)
        return loop._replace(train=train, carry=carry, acting=self._lag(train))

    def advance(self, loop: Loop) -> tuple[Loop, dict[str, np.ndarray]]:
        kept = []
        for _ in range(self.chunk):
            loop, metrics = self._update(loop)
            kept.append(metrics)
        return loop, jax.tree.map(lambda *values: np.stack(jax.device_get(values), axis=1), *kept)

    def _update(self, loop: Loop) -> tuple[Loop, Metrics]:
        train, carry = loop.train, loop.carry
        if self.plan.whole_episodes:
            timestep = self.lanes.reset(stream=2 * self._count(loop) + 2)
            carry = Carry((), timestep, carry.z, np.zeros(timestep.reward.shape, np.float32))
        key = self._key(self._placed(loop.key), TRAIN, loop.update)
        acting = loop.acting if self.plan.may_lag else train.policy
        carry, rows, afters, ended = self._step(self._act[True], acting, carry, key, self.plan.steps)
        given = (train.replay, train._replace(replay=()), loop.key, loop.update, rows, afters, self.shared)
        # Only asked for, in either case: what comes back is not there yet, and nothing here waits for it.
        new, metrics = self._thread.submit(self._learn, *given).result() if self._thread else self._learn(*given)
        metrics |= _seen(ended)
        return Loop(new, carry, loop.key, loop.update + 1, self._lag(train)), metrics

    def _step(
        self, act: Any, acting: Policy, carry: Carry, key: Key[Array, " seeds"], steps: int
    ) -> tuple[Carry, list[Transition], list[Timestep], list[EpisodeEnds]]:
        """So many steps of all lanes: where they stand then, decisions, what came of them, and what episodes ended."""
        acting, timestep, z, score = self._placed(acting), carry.timestep, carry.z, carry.score
        rows, afters, ended = [], [], []
        for t in range(steps):
            row = act(acting, timestep, z, key, t)._replace(obs=timestep.obs, next_obs=timestep.obs)
            timestep, z = self.lanes.step(np.asarray(row.decision.action)), row.next_z
            score = score + timestep.reward
            ended.append(EpisodeEnds(np.where(timestep.first, score, np.nan), timestep.faults()))
            score = np.where(timestep.first, np.float32(0.0), score)
            rows.append(row if self._near is None else jax.device_get(row))  # free to go where the learning is
            afters.append(timestep)
        return Carry((), timestep, z, score), rows, afters, ended

    @staticmethod
    def _count(loop: Loop) -> int:
        return int(loop.update[0])

    def evaluate(self, loop: Loop) -> dict[str, np.ndarray]:
        modes, draws = (self._play(loop, explore) for explore in (False, True))
        return {
            "eval_return": modes.returns,
            "eval_return_stochastic": draws.returns,
            "eval_length": modes.lengths,
        }

    def _play(self, loop: Loop, explore: bool) -> Played:
        """Means per seed over exactly `episodes` episodes, one per lane."""
        policy = loop.train.policy
        z = jax.vmap(lambda policy: initial_state(self.algorithm.actor(policy), self.episodes))(policy)
        policy, z, key = self._placed((policy, z, loop.key))
        key = self._key(key, EVALUATE, loop.update)
        act = lambda timestep, z, t: self._act[explore](policy, timestep, z, key, t)  # noqa: E731
        played = play(self.eval_lanes, act, z, stream=2 * self._count(loop) + 1)
        return Played(*(part.mean(axis=1) for part in played))

    def pack(self, loop: Loop) -> PyTree:
        # An episodic algorithm starts its episodes anew in every update: there are no open ones to bring back.
        return {"loop": loop, "host": {} if self.plan.whole_episodes else self.lanes.snapshot()}

    def unpack(self, packed: PyTree) -> tuple[Loop, bool]:
        loop: Loop = packed["loop"]
        carry = loop.carry._replace(z=self._placed(loop.carry.z))
        if self.plan.whole_episodes:
            return loop._replace(carry=carry), True
        timestep, exact = self.lanes.restore(packed["host"])
        if not exact:  # go on from what the environments show now; an episode that had to begin anew has no score yet
            score = np.where(timestep.first, np.float32(0.0), carry.score)
            carry = carry._replace(timestep=timestep, score=score)
        return loop._replace(carry=carry), exact

    def close(self) -> None:
        self.lanes.close()
        self.eval_lanes.close()
        if self._thread:
            self._thread.shutdown()


def _acts(actor: Callable[[Policy], Actor]) -> Any:
    """Compiled: one decision in every lane [S, N], by the actor of a policy."""

    def act(policy: Policy, timestep: Timestep, z: PyTree, key: PRNGKeyArray, t: Array) -> Transition:
        keys = jax.random.split(jax.random.fold_in(key, t), timestep.reward.shape[0])
        row = jax.vmap(transition, in_axes=(None, 0, 0, 0))(actor(policy), timestep, z, keys)
        return row._replace(obs=(), next_obs=())  # whoever asks has them: handing them back takes time

    return jax.jit(jax.vmap(act, (0, 0, 0, 0, None)))


def _batch(rows: list[Transition], after: list[Timestep]) -> Transition:
    """A batch [T, ...] from its T steps."""
    return outcome(*(jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts) for parts in (rows, after)))


def _beside_the_accelerator() -> Any:
    """The CPU where JAX computes elsewhere: an accelerator does one thing at a time, and acting there would wait."""
    if jax.default_backend() == "cpu":
        return None
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS names the accelerator alone
        return None


def _seen(ended: list[EpisodeEnds]) -> dict[str, np.ndarray]:
    """`rollout.episodes_seen` for each seed, of steps [S, N]: NaN for a seed where no episode ended."""
    scores = np.stack([step.score for step in ended])
    count = np.isfinite(scores).sum(axis=(0, 2))
    mean = np.where(count > 0, np.nansum(scores, axis=(0, 2)) / np.maximum(count, 1), np.nan)
    flags = {name: np.stack([step.faults[name] for step in ended]) for name in ended[0].faults}
    return {"train_return": mean} | {name: each.sum(axis=(0, 2)).astype(np.float32) for name, each in flags.items()}
