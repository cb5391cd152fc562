"""Replay: one ring of rows per lane, with internal states that can be written anew.

z' is stored once per row, and z_i is z'_{i-1}, or the initial state where an episode begins: neighbours agree by
construction, however often states are refreshed. What the environment said is never changed.

An expert's rows are such a buffer too: they lie where all seeds read them, and only the states are a seed's own.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from s2pg.sharding import whole
from s2pg.types import Expert, Obs, State, Transition


class Rows(NamedTuple):
    """What the environment said, at any leading axes."""

    obs: Obs
    next_obs: Obs
    action: Float[Array, "*batch size"]
    reward: Float[Array, "*batch"]
    terminated: Bool[Array, "*batch"]


@runtime_checkable
class Buffer(Protocol):
    """Rows to sample from, at most C in each of N lanes, with states that can be written anew."""

    @property
    def first(self) -> Bool[Array, "C N"]:
        """Whether an episode begins at a row."""
        ...

    @property
    def next_z(self) -> State:
        """States after each row, [C, N, ...]."""
        ...

    @property
    def head(self) -> Int[Array, ""]:
        """Where the next row goes."""
        ...

    @property
    def size(self) -> Int[Array, ""]:
        """Counts the rows of each lane."""
        ...

    @property
    def overwritten(self) -> Bool[Array, ""]:
        """Tells whether the row before the oldest is gone."""
        ...

    def take(self, time: Int[Array, "B n"], lane: Int[Array, "B 1"]) -> Rows:
        """Gathers rows."""
        ...


class Replay(eqx.Module):
    """A ring, C rows of N lanes. All that never changes is one array, so that a sample is one gather."""

    rows: Float[Array, "C N columns"]  # views | views after | action | reward | terminated
    first: Bool[Array, "C N"]
    next_z: State
    head: Int[Array, ""]
    size: Int[Array, ""]
    views: tuple[tuple[str, int], ...] = eqx.field(static=True)

    @property
    def overwritten(self) -> Bool[Array, ""]:
        return self.size == self.first.shape[0]

    def take(self, time: Int[Array, "B n"], lane: Int[Array, "B 1"]) -> Rows:
        found = self.rows[time, lane]
        names, sizes = zip(*self.views, strict=True)
        width = sum(sizes)
        borders = [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)]
        obs, ahead = (
            dict(zip(names, jnp.split(found[..., start : start + width], borders, axis=-1), strict=True))
            for start in (0, width)
        )
        return Rows(obs, ahead, found[..., 2 * width : -2], found[..., -2], found[..., -1] > 0.5)


class ExpertReplay(eqx.Module):
    """Demonstrations as one lane, of which `next_z` alone is a seed's own; rewards are not known."""

    expert: Expert
    next_z: State

    @property
    def first(self) -> Bool[Array, "C 1"]:
        return self.expert.first[:, None]

    @property
    def head(self) -> Int[Array, ""]:
        return self.size

    @property
    def size(self) -> Int[Array, ""]:
        return jnp.asarray(self.expert.first.shape[0], jnp.int32)

    @property
    def overwritten(self) -> Bool[Array, ""]:
        return jnp.zeros((), bool)

    def take(self, time: Int[Array, "B n"], lane: Int[Array, "B 1"]) -> Rows:
        obs, next_obs, action, terminated, _ = jax.tree.map(lambda leaf: leaf[time], self.expert)
        return Rows(obs, next_obs, action, jnp.zeros(time.shape), terminated)


AnyBuffer = TypeVar("AnyBuffer", bound=Buffer)


class ReplayBatch(NamedTuple):
    """B samples of n rows each, of one episode; rows before it began, or before the oldest, are not valid."""

    obs: Obs  # [B, n + 1, ...]: before each row, and after the last
    action: Float[Array, "B n size"]
    reward: Float[Array, "B n"]
    terminated: Bool[Array, "B n"]
    valid: Bool[Array, "B n"]
    z: State  # before the first valid row
    next_z: State  # [B, slide, ...], after each of the last rows
    time: Int[Array, " B"]  # where the last row is
    lane: Int[Array, " B"]


def create(capacity: int, lanes: int, views: dict[str, int], action: int, z: State) -> Replay:
    """Room for `capacity` rows in each lane, for states like z."""
    columns = 2 * sum(views.values()) + action + 2
    return Replay(
        jnp.zeros((capacity, lanes, columns)),
        jnp.zeros((capacity, lanes), bool),
        jax.tree.map(lambda leaf: jnp.zeros((capacity, lanes, *leaf.shape), leaf.dtype), z),
        jnp.zeros((), jnp.int32),
        jnp.zeros((), jnp.int32),
        tuple(views.items()),
    )


def add(replay: Replay, batch: Transition, next_z: State) -> Replay:
    """Appends a batch [T, N], over the oldest rows where there is no more room."""
    capacity = replay.first.shape[0]
    steps = min(batch.reward.shape[0], capacity)
    # Whole on every device, as the buffer is: XLA would else cut that along the lanes, and put it together again.
    batch, next_z = whole(jax.tree.map(lambda leaf: leaf[-steps:], (batch, next_z)))
    scalars = [batch.reward[..., None], batch.terminated[..., None].astype(batch.reward.dtype)]
    seen = [obs[name] for obs in (batch.obs, batch.next_obs) for name, _ in replay.views]
    rows = jnp.concatenate([*seen, batch.decision.action, *scalars], axis=-1)
    where = (replay.head + jnp.arange(steps)) % capacity
    if steps == 1:
        # A second row, which is dropped. A single one XLA puts in again wherever the buffer is read: the old buffer has
        # to live on for that, and all of it is copied, up to three times in each update (tests/test_offpolicy.py).
        where = jnp.append(where, capacity)

    def put(leaf: Shaped[Array, "C N ..."], new: Shaped[Array, "T N ..."]) -> Shaped[Array, "C N ..."]:
        return leaf.at[where].set(jnp.concatenate([new, new]) if steps == 1 else new, mode="drop")

    return Replay(
        put(replay.rows, rows),
        put(replay.first, batch.first.astype(bool)),
        jax.tree.map(put, replay.next_z, next_z),
        (replay.head + steps) % capacity,
        jnp.minimum(replay.size + steps, capacity),
        replay.views,
    )


def sample(replay: Buffer, key: PRNGKeyArray, batch: int, rows: int, slide: int, initial: State) -> ReplayBatch:
    """Draws `batch` samples, each ending at a row chosen uniformly, with the `rows` - 1 before it in its episode.

    With `slide` above 1 the chosen row lies anywhere among the last `slide` of its sample, as far as its episode goes,
    and a sample that would begin before the episode does is moved forward: few are then padded, and the first and last
    rows of an episode still count more than half as much as those between.

    Once the ring is full its oldest row is not sampled, for z is gone; and where states are not stored at all, nor are
    rows whose samples would be cut short there.
    """
    capacity, lanes = replay.first.shape
    full = replay.overwritten
    oldest = jnp.where(full, 1, 0)
    lowest = oldest if jax.tree.leaves(replay.next_z) else jnp.where(full, rows, 0)
    row_key, offset_key = jax.random.split(key)
    chosen = jax.random.randint(row_key, (batch,), lowest * lanes, replay.size * lanes)
    end, lane = chosen // lanes, chosen % lanes

    def place(order: Array) -> Array:
        """Where the row that is the `order`-th since the oldest lies."""
        return (replay.head - replay.size + order) % capacity

    def is_first(order: Array) -> Bool[Array, "B n"]:
        return replay.first[place(order), lane[:, None]]

    if slide > 1:
        reach = jnp.arange(1, slide)[None]
        before = end[:, None] + 1 - reach  # its own row, and those before
        behind = jnp.sum(_unbroken(~is_first(before) & (before > oldest)), axis=1)
        after = end[:, None] + reach
        left = jnp.sum(_unbroken(~is_first(after) & (after < replay.size)), axis=1)
        offset = jax.random.randint(offset_key, (batch,), 0, slide)
        # At least so far that the sample is full, at most to the end of the episode.
        end = end + jnp.clip(offset, jnp.minimum(slide - 1 - behind, left), left)

    order = end[:, None] - jnp.arange(rows)[::-1][None]
    inside = ~is_first(order)[:, 1:] & (order[:, 1:] > oldest)  # whether the row before belongs to the sample as well
    valid = jnp.concatenate([_unbroken(inside[:, ::-1])[:, ::-1], jnp.ones((batch, 1), bool)], axis=1)
    time = place(order)
    obs, ahead, action, reward, terminated = replay.take(time, lane[:, None])
    obs = {name: jnp.concatenate([obs[name], ahead[name][:, -1:]], axis=1) for name in obs}

    head = order[:, -1] + 1 - jnp.sum(valid, axis=1)
    begins, earlier = replay.first[place(head), lane], place(head - 1)

    def before_head(leaf: Shaped[Array, "C N ..."], start: Array) -> Array:
        fresh = begins.reshape(batch, *[1] * start.ndim)
        return jnp.where(fresh, start[None], leaf[earlier, lane])

    z = jax.tree.map(before_head, replay.next_z, initial)
    next_z = jax.tree.map(lambda leaf: leaf[time[:, -slide:], lane[:, None]], replay.next_z)
    return ReplayBatch(obs, action, reward, terminated, valid, z, next_z, time[:, -1], lane)


def write(replay: AnyBuffer, where: ReplayBatch, next_z: State) -> AnyBuffer:
    """Puts new states [B, k, ...], if there are any, after the last k valid rows of the samples.

    Of a row that was sampled more than once, one of its states is taken whole.
    """
    if not jax.tree.leaves(next_z):
        return replay
    (capacity, lanes), count = replay.first.shape, jax.tree.leaves(next_z)[0].shape[1]
    time = (where.time[:, None] - jnp.arange(count)[::-1][None]) % capacity
    nowhere = capacity * lanes
    row = jnp.where(where.valid[:, -count:], time * lanes + where.lane[:, None], nowhere).reshape(-1)
    order = jnp.argsort(row)
    again = jnp.concatenate([jnp.zeros(1, bool), row[order][1:] == row[order][:-1]])
    row = row.at[order].set(jnp.where(again, nowhere, row[order]))

    def put(leaf: Array, new: Array) -> Array:
        return leaf.at[row // lanes, row % lanes].set(new.reshape(-1, *new.shape[2:]), mode="drop")

    return eqx.tree_at(lambda r: r.next_z, replay, jax.tree.map(put, replay.next_z, next_z))


def _unbroken(flags: Bool[Array, "B n"]) -> Bool[Array, "B n"]:
    """True up to the first False."""
    return jnp.cumprod(flags.astype(jnp.int32), axis=1).astype(bool)
