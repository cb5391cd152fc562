"""Replay: what comes out is what went in, row by row, with the newest internal states and nothing else changed."""

import functools
import itertools
from collections import Counter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from s2pg import replay
from s2pg.types import Decision, Transition

VIEWS = {"policy": 2, "critic": 1}  # not in the order of the alphabet, in which JAX maps over dicts
BATCH = 16
# Unlike the zeros that an empty buffer holds; leaves of several shapes and kinds.
INITIAL = {"h": jnp.array([-1.0, -2.0]), "c": (jnp.array(-3), jnp.full((2, 1), -4.0))}


class Shape(NamedTuple):
    """What a compiled program is for; `long` is a batch that has more rows than there is room."""

    capacity: int
    lanes: int
    rows: int
    slide: int

    @property
    def long(self) -> int:
        return self.capacity + 2


SHAPES = [
    Shape(7, 2, 1, 1),  # single transitions
    Shape(8, 3, 3, 3),  # segments
    Shape(5, 1, 4, 4),
    Shape(9, 2, 6, 3),  # segments with burn-in
    Shape(9, 2, 4, 1),  # windows, and the loss on the last step
    Shape(2, 3, 3, 2),  # next to no room
    Shape(4, 2, 6, 6),  # segments that never fit
]


class Row(NamedTuple):
    """A row as it was added, in numbers that occur once."""

    number: int
    lane: int
    index: int  # in its lane
    episode: int
    first: bool
    obs: int
    next_obs: int
    terminated: bool


def state(number: float, like=INITIAL):
    """The internal state that goes by a number: it tells every entry of every leaf."""
    leaves, tree = jax.tree.flatten(like)
    parts = [
        (number + 0.125 * i + 0.25 * np.arange(leaf.size).reshape(leaf.shape)).astype(leaf.dtype)
        for i, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(tree, parts)


def stack(trees, *shape):
    return jax.tree.map(lambda *leaves: np.stack(leaves).reshape(*shape, *leaves[0].shape), *trees)


class Model:
    """All that was ever added, in plain lists, and the newest z' of every row."""

    def __init__(self, shape: Shape, lengths=(3,), ends=(True,), initial=INITIAL):
        self.shape, self.initial = shape, initial
        self.numbers = itertools.count(1)
        self.lanes: list[list[Row]] = [[] for _ in range(shape.lanes)]
        self.by_number: dict[int, Row] = {}
        self.episodes: dict[tuple[int, int], tuple[int, int]] = {}  # (lane, episode): its indices, so far
        self.z: dict[tuple[int, int], int] = {}  # (lane, index): the number of its newest z'
        self.lengths, self.ends = itertools.cycle(lengths), itertools.cycle(ends)
        self.left = [next(self.lengths) for _ in range(shape.lanes)]
        self.obs = [next(self.numbers) for _ in range(shape.lanes)]
        self.fresh = [True] * shape.lanes
        self.replay = replay.create(shape.capacity, shape.lanes, VIEWS, 2, initial)

    # Adding ----------------------------------------------------------------------------------------------------------

    def _step(self, lane: int) -> Row:
        rows = self.lanes[lane]
        first, self.left[lane] = self.fresh[lane], self.left[lane] - 1
        over = self.left[lane] == 0
        episode = (rows[-1].episode if rows else -1) + first
        after = next(self.numbers)
        terminated = over and next(self.ends)
        row = Row(next(self.numbers), lane, len(rows), episode, first, self.obs[lane], after, terminated)
        rows.append(row)
        self.by_number[row.number] = row
        self.episodes[lane, episode] = (self.episodes.get((lane, episode), (row.index,))[0], row.index + 1)
        self.z[lane, row.index] = next(self.numbers)
        self.fresh[lane] = over
        self.obs[lane] = next(self.numbers) if over else after  # what is seen after a reset is not next_obs
        if over:
            self.left[lane] = next(self.lengths)
        return row

    def add(self, steps: int) -> None:
        table = [[self._step(lane) for lane in range(self.shape.lanes)] for _ in range(steps)]
        self.replay = add(self.replay, *self.batch(table))

    def batch(self, table: list[list[Row]]) -> tuple[Transition, object]:
        """Rows [T][N] as they come from collecting, with a view and states that are not stored."""
        shape = len(table), self.shape.lanes
        rows = list(itertools.chain(*table))

        def views(name):
            seen = np.array([getattr(row, name) for row in rows], np.float32).reshape(shape)
            return {"critic": seen[..., None] + 0.5, "unread": seen[..., None] * 0, "policy": policy(seen)}

        numbers = np.array([row.number for row in rows], np.float32).reshape(shape)
        terminated, first = (np.array([getattr(r, n) for r in rows]).reshape(shape) for n in ("terminated", "first"))
        over = np.zeros(shape, bool)
        next_z = stack([state(self.z[row.lane, row.index], self.initial) for row in rows], *shape)
        decision, log_prob = Decision(action_of(numbers), next_z), Decision(numbers, numbers)
        seen, after = views("obs"), views("next_obs")
        return Transition(seen, next_z, decision, log_prob, numbers, terminated, over, after, next_z, first), next_z

    # What may be sampled ---------------------------------------------------------------------------------------------

    @property
    def usable(self) -> range:
        """Indices that may be sampled, alike in all lanes: those kept, the oldest aside if the ring is full."""
        number = len(self.lanes[0])
        full = number >= self.shape.capacity
        return range(number - self.shape.capacity + 1 if full else 0, number)

    def stretch(self, row: Row) -> range:
        """Indices of the episode of a row, as far as they may be sampled."""
        begin, end = self.episodes[row.lane, row.episode]
        return range(max(begin, self.usable.start), end)

    def drawn(self, row: Row, offset: int) -> list[int]:
        """Indices of the sample that choosing this row leads to, by the words of the docstring."""
        stretch, (_, _, rows, slide) = self.stretch(row), self.shape
        full = stretch.start + slide - 1  # where the first sample ends that lies in the episode as a whole
        end = min(max(row.index + offset, full), stretch[-1])
        return list(range(max(end - rows + 1, stretch.start), end + 1))

    # Sampling and writing --------------------------------------------------------------------------------------------

    def sample(self, seed: int, batch: int = BATCH) -> replay.ReplayBatch:
        _, _, rows, slide = self.shape
        return jax.tree.map(np.asarray, sample(self.replay, jax.random.key(seed), batch, rows, slide, self.initial))

    def check(self, found: replay.ReplayBatch) -> None:
        assert found.valid.shape == (found.time.shape[0], self.shape.rows)
        expected_z, expected_next_z = [], []
        for b in range(found.time.shape[0]):
            valid = found.valid[b]
            assert valid[-1], "the last row is always there"
            assert (np.diff(valid.astype(int)) >= 0).all(), "padding stands in front only"
            chain = [self.by_number[int(number)] for number in found.reward[b][valid]]
            head, last = chain[0], chain[-1]
            assert all(row.lane == found.lane[b] for row in chain)
            assert all(row.index in self.usable for row in chain), "overwritten, or the oldest of a full ring"
            assert [row.index for row in chain] == list(range(head.index, last.index + 1)), "not consecutive"
            assert len({row.episode for row in chain}) == 1
            self._check_reach(chain)
            self._check_entries(found, b, chain)
            expected_z.append(self.initial if head.first else self.newest(head.lane, head.index - 1))
            expected_next_z.append(self.newest(last.lane, last.index))
            for back, row in enumerate(chain[::-1][: self.shape.slide]):
                equal(jax.tree.map(lambda leaf: leaf[b, -1 - back], found.next_z), self.newest(row.lane, row.index))  # noqa: B023
        equal(found.z, stack(expected_z, len(expected_z)))
        equal(jax.tree.map(lambda leaf: leaf[:, -1], found.next_z), stack(expected_next_z, len(expected_z)))

    def _check_reach(self, chain: list[Row]) -> None:
        """As long as the episode lets it be, and moved forward where it would be padded."""
        stretch, (_, _, rows, slide) = self.stretch(chain[-1]), self.shape
        assert len(chain) == min(rows, chain[-1].index - stretch.start + 1)
        if slide > 1 and len(chain) < slide:
            assert [row.index for row in chain] == list(stretch), "padded though its episode goes on"

    def _check_entries(self, found: replay.ReplayBatch, b: int, chain: list[Row]) -> None:
        """Bit for bit what was added; what is seen after a row is seen before the next."""
        at = np.flatnonzero(found.valid[b])
        for name in ("obs", "next_obs"):
            numbers = np.array([getattr(row, name) for row in chain], np.float32)
            there = at + (name == "next_obs")
            np.testing.assert_array_equal(found.obs["policy"][b, there], policy(numbers))
            np.testing.assert_array_equal(found.obs["critic"][b, there], numbers[:, None] + 0.5)
        numbers = np.array([row.number for row in chain], np.float32)
        np.testing.assert_array_equal(found.action[b, at], action_of(numbers))
        np.testing.assert_array_equal(found.terminated[b, at], [row.terminated for row in chain])
        assert set(found.obs) == set(VIEWS)

    def newest(self, lane: int, index: int):
        return state(self.z[lane, index], self.initial)

    def write(self, found: replay.ReplayBatch) -> None:
        """New states for the last rows, the same wherever a row was drawn twice."""
        rows = [self.by_number[int(number)] for number in found.reward[:, -1]]
        for row in {row.number: row for row in rows}.values():
            self.z[row.lane, row.index] = next(self.numbers)
        before = self.replay
        new = stack([self.newest(row.lane, row.index) for row in rows], len(rows))
        self.replay = write(before, found, jax.tree.map(lambda leaf: leaf[:, None], new))
        for name in ("rows", "first", "head", "size"):
            np.testing.assert_array_equal(getattr(self.replay, name), getattr(before, name))


add, write = jax.jit(replay.add), jax.jit(replay.write)
sample = functools.partial(jax.jit, static_argnums=(2, 3, 4))(replay.sample)


def policy(numbers):
    return np.stack([numbers, -numbers], axis=-1)


def action_of(numbers):
    return np.stack([numbers + 0.25, 0.5 - numbers], axis=-1)


def equal(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


# Everything at once --------------------------------------------------------------------------------------------------

STEPS = st.tuples(st.just("add"), st.sampled_from([1, 3, "long"]))
DRAWS = st.tuples(st.sampled_from(["sample", "write"]), st.integers(0, 2**31 - 1))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@settings(deadline=None, max_examples=25)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    ends=st.lists(st.booleans(), min_size=1, max_size=4),
    actions=st.lists(STEPS | DRAWS, max_size=20),
    seed=st.integers(0, 2**31 - 1),
)
def test_what_is_sampled_was_added_within_one_episode_with_the_newest_states(shape, lengths, ends, actions, seed):
    model = Model(shape, lengths, ends)
    for what, number in [("add", 1), *actions, ("write", seed), ("sample", seed)]:
        if what == "add":
            model.add(shape.long if number == "long" else number)
            continue
        found = model.sample(number)
        model.check(found)
        if what == "write":
            model.write(found)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_row_of_a_buffer_that_is_filled_wrapped_and_rewritten_is_right(shape):
    """The same after every single step."""
    model = Model(shape, [2, 5, 1, 9], [True, False])
    for step in range(3 * shape.capacity):
        model.add(1)
        found = model.sample(step)
        model.check(found)
        model.write(found)
        model.check(model.sample(step + 1000))


# Which rows are drawn ------------------------------------------------------------------------------------------------


def draws(model: Model, number: int) -> Counter:
    found = model.sample(1, number)
    return Counter(tuple(map(int, rewards[valid])) for rewards, valid in zip(found.reward, found.valid, strict=True))


def expected(model: Model) -> Counter:
    """How many of the rows that may be chosen lead to each sample."""
    chosen = [lane[index] for lane in model.lanes for index in model.usable]
    offsets = range(model.shape.slide)
    return Counter(tuple(model.lanes[r.lane][i].number for i in model.drawn(r, o)) for r in chosen for o in offsets)


def assert_as_likely(found: Counter, wanted: Counter) -> None:
    """Chi-square against 99.99%; the key is fixed, so it passes always or never."""
    assert set(found) == set(wanted), "a sample that is never drawn, or one that may not be"
    scale = sum(found.values()) / sum(wanted.values())
    statistic = sum((found[s] - scale * wanted[s]) ** 2 / (scale * wanted[s]) for s in wanted)
    assert statistic < chi2.ppf(0.9999, max(len(wanted) - 1, 1))


@pytest.mark.parametrize("steps", [1, 5, 8, 9, 21])
def test_every_row_that_may_be_drawn_is_drawn_equally_often(steps):
    """Part filled, just filled (the oldest row is out at once) and wrapped."""
    model = Model(Shape(8, 2, 1, 1), [3, 4])
    for _ in range(steps):
        model.add(1)
    found = draws(model, 4000)
    assert len(found) == 2 * (min(steps, 8) - (steps >= 8))
    assert_as_likely(found, Counter(dict.fromkeys(found, 1)))


@pytest.mark.parametrize("shape", [Shape(12, 2, 4, 1), Shape(12, 2, 3, 3), Shape(12, 1, 6, 3)], ids=str)
@pytest.mark.parametrize("steps", [7, 29])
def test_a_row_chosen_uniformly_lies_anywhere_in_its_sample_as_far_as_its_episode_goes(shape, steps):
    model = Model(shape, [2, 7, 1, 4])
    for _ in range(steps):
        model.add(1)
    assert_as_likely(draws(model, 4000), expected(model))


def test_without_sliding_early_rows_are_padded_and_with_it_none_but_short_episodes_are():
    for slide, share in ((1, 0.4), (5, 0.0)):
        model = Model(Shape(11, 1, 5, slide), [10])
        for _ in range(10):
            model.add(1)
        padded = ~model.sample(0, 4000).valid.all(axis=1)
        np.testing.assert_allclose(padded.mean(), share, atol=0.03)


def test_with_sliding_the_ends_of_an_episode_count_more_than_half_as_much_as_its_middle():
    model = Model(Shape(41, 1, 5, 5), [20])
    for _ in range(40):
        model.add(1)
    rows = Counter(number for sample, count in draws(model, 4000).items() for number in sample for _ in range(count))
    number = [row.number for row in model.lanes[0]]
    middle = np.mean([rows[each] for each in number[8:12]])
    assert all(rows[each] > 0.5 * middle for each in number[:20])


def test_different_keys_draw_different_rows():
    model = Model(SHAPES[1])
    model.add(7)
    ends = {tuple(model.sample(seed).time.tolist()) for seed in range(20)}
    assert len(ends) == 20


# The border of a full ring -------------------------------------------------------------------------------------------


def test_the_oldest_row_of_a_full_ring_lends_its_state_and_is_never_drawn():
    model = Model(Shape(5, 1, 3, 3), [50])
    for _ in range(13):
        model.add(1)
    oldest = model.lanes[0][-5]
    found = model.sample(0, 500)
    assert oldest.number not in found.reward[found.valid]
    heads = found.reward[np.arange(500), 3 - found.valid.sum(axis=1)] == oldest.number + 3
    assert heads.any(), "the row after it is sampled ..."
    equal(jax.tree.map(lambda leaf: leaf[heads][0], found.z), model.newest(0, oldest.index))


def test_rows_before_the_write_head_and_after_it_are_never_in_one_sample():
    """One endless episode: nothing but the write head lies between the newest and the oldest row."""
    for extra in range(5):
        model = Model(Shape(5, 2, 5, 1), [100])
        for _ in range(10 + extra):
            model.add(1)
        found = model.sample(extra, 64)
        numbers = np.where(found.valid, found.time[:, None] - np.arange(5)[::-1], 99) % 5
        newest = (10 + extra - 1) % 5
        assert not ((numbers[:, :-1] == newest) & found.valid[:, :-1]).any()
        model.check(found)


@pytest.mark.parametrize("steps", [8, 9, 15, 24])
def test_a_batch_with_more_rows_than_there_is_room_leaves_its_last_ones(steps):
    for before in (0, 3, 8, 13):
        model = Model(Shape(8, 2, 3, 1), [4])
        for _ in range(before):
            model.add(1)
        model.add(steps)
        assert int(model.replay.size) == 8
        found = model.sample(0, 128)
        model.check(found)
        last = {row.number for lane in model.lanes for row in lane[-7:]}
        assert set(found.reward[:, -1].astype(int)) == last
        model.add(3)
        model.check(model.sample(1, 128))


def test_one_batch_and_the_same_rows_one_by_one_make_the_same_buffer():
    once, many = (Model(Shape(8, 2, 3, 3), [4, 2, 6]) for _ in range(2))
    for steps in (5, 4, 3):
        once.add(steps)
    for index in range(12):
        table = [[lane[index] for lane in once.lanes]]
        many.z |= {(row.lane, row.index): once.z[row.lane, row.index] for row in table[0]}
        many.replay = add(many.replay, *many.batch(table))
    equal(once.replay, many.replay)


# Writing -------------------------------------------------------------------------------------------------------------


def test_a_written_state_is_next_z_of_its_row_and_z_of_the_row_after_alone():
    model = Model(Shape(6, 2, 1, 1), [3])
    for _ in range(9):
        model.add(1)
    before = model.replay
    found = jax.tree.map(lambda leaf: leaf[:1], model.sample(4))
    model.write(found)
    changed = jax.tree.map(
        lambda old, new: np.argwhere((old != new).reshape(6, 2, -1).any(-1)), before.next_z, model.replay.next_z
    )
    for leaf in jax.tree.leaves(changed):
        np.testing.assert_array_equal(leaf, [[found.time[0], found.lane[0]]])
    model.check(model.sample(5, 200))


def test_a_row_drawn_many_times_is_written_once():
    model = Model(Shape(2, 1, 1, 1), [9])
    for _ in range(5):
        model.add(1)
    found = model.sample(0)
    assert len(set(found.reward[:, -1])) == 1  # a single row may be drawn
    model.write(found)
    model.check(model.sample(1))
    model.add(1)  # what was the last row now lends its new state
    model.check(model.sample(2))


def test_states_written_just_before_and_after_the_end_of_the_array_go_where_they_belong():
    model = Model(Shape(5, 1, 2, 2), [100])
    for _ in range(7):  # rows 2 to 6, of which 5 and 6 lie at places 0 and 1
        model.add(1)
    assert int(model.replay.head) == 2
    for seed in range(4):
        found = model.sample(seed, 32)
        assert {0, 4} <= set(found.time.tolist())
        model.write(found)
        model.check(model.sample(seed + 10, 32))


def test_buffers_without_states_sample_and_write_nothing_of_them():
    model = Model(Shape(6, 2, 3, 1), [4, 2], initial=())
    for _ in range(15):
        model.add(1)
        found = model.sample(0)
        assert found.z == found.next_z == ()
        model.check(found)
        model.write(found)
    assert model.replay.next_z == ()


def test_writing_nothing_leaves_the_states_as_they_are():
    model = Model(SHAPES[0])
    model.add(5)
    equal(write(model.replay, model.sample(0), ()), model.replay)


def test_states_of_one_array_are_kept_with_their_kind():
    for initial in (jnp.full(3, -1.0), jnp.array([[7]], jnp.int32), jnp.array(2.0, jnp.float16)):
        model = Model(Shape(6, 2, 2, 2), [4, 2], initial=initial)
        for _ in range(9):
            model.add(1)
        found = model.sample(0)
        assert found.z.dtype == found.next_z.dtype == initial.dtype
        model.check(found)
        model.write(found)
        model.check(model.sample(1))


def test_seeds_side_by_side_sample_as_each_does_alone():
    models = [Model(Shape(6, 2, 3, 3), lengths) for lengths in ([4, 2], [1, 5, 3])]
    for model in models:
        for _ in range(8):
            model.add(1)
    keys = jax.random.split(jax.random.key(0), 2)
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(model.replay for model in models))
    draw = lambda buffer, key: replay.sample(buffer, key, BATCH, 3, 3, INITIAL)  # noqa: E731
    found = jax.jit(jax.vmap(draw))(both, keys)
    for i, model in enumerate(models):
        alone = sample(model.replay, keys[i], BATCH, 3, 3, INITIAL)
        equal(alone, jax.tree.map(lambda leaf, i=i: leaf[i], found))
        model.check(jax.tree.map(np.asarray, alone))
