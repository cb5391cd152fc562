"""Replayed samples under the three memory rules: what is recomputed, refreshed and held constant."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s2pg import replay
from s2pg.algorithms.offpolicy import unfold
from s2pg.envs.recall import Recall
from s2pg.memory import CarryRule, DrawRule, ReplaySample, UnrollRule
from s2pg.rollout import collect, start
from s2pg.types import read
from toys import assert_close, largest, resolve, shaken, with_kernel

ENV = Recall(k=5, cue="real")
TINY = {"lanes": 3, "width": 8, "size": 4, "batch_size": 8, "capacity": 90, "learning_starts": 30}
CAPACITY = 30  # rows of each lane
EXACT = {"rtol": 1e-12, "atol": 1e-12}


def built(label, **hyper):
    return resolve("sac", ENV, memory=label, hyper=TINY | hyper)[1]


@functools.cache
def kernel_of(label):
    with jax.enable_x64(False):  # whoever asks first
        return shaken(built(label).init_policy(ENV.spec, key=jax.random.key(0)).kernel, jax.random.key(1))


def wide(tree):
    """In 64 bits, where they are on."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float64) if leaf.dtype == jnp.float32 else leaf, tree)


def replayed(rows, padding=0, seed=2):
    """A sample of that many rows with random contents, states too."""
    obs, z, next_z = (
        np.random.default_rng(seed + i).normal(size=shape) for i, shape in enumerate(((rows + 1, 2), (4,), (rows, 4)))
    )
    valid = jnp.arange(rows) >= padding
    contents = obs.astype(np.float32), valid, *(np.tanh(each).astype(np.float32) for each in (z, next_z))
    return ReplaySample(*jax.tree.map(jnp.asarray, contents))


def at(tree, index):
    return jax.tree.map(lambda leaf: leaf[index], tree)


def slope(kernel, pick):
    """The gradient of a number made of all leaves, each entry with a weight of its own."""

    def number(kernel):
        leaves = jax.tree.leaves(pick(kernel))
        return sum(jnp.sum(jnp.cos(jnp.arange(leaf.size)).reshape(leaf.shape) * leaf) for leaf in leaves)

    return jax.jit(jax.grad(number))(kernel)


# DrawRule -------------------------------------------------------------------------------------------------------------

SETTINGS = [
    DrawRule(refresh=refresh, refresh_noise=noise, refresh_first=first)
    for refresh in (0.0, 0.25, 1.0)
    for noise in (True, False)
    for first in (True, False)
]


@pytest.mark.parametrize("rule", SETTINGS, ids=repr)
def test_a_drawn_state_is_mixed_with_the_stored_one_and_the_critic_sees_it_now_or_later(rule):
    kernel, sample, key = kernel_of("s2pg"), replayed(1), jax.random.key(3)
    found = rule.unfold(kernel, sample, key)
    stored = sample.next_z[0]
    now = kernel(sample.obs[0], sample.z)
    drawn = now.state.sample(key) if rule.refresh_noise else now.state.mode()
    assert largest(drawn - stored) > 0.1
    if rule.refresh == 0:
        assert found.fresh == ()
    else:
        np.testing.assert_allclose(found.fresh[0], (1 - rule.refresh) * stored + rule.refresh * drawn, atol=1e-6)
    at_once = rule.refresh > 0 and rule.refresh_first
    np.testing.assert_array_equal(found.next_z[0], found.fresh[0] if at_once else stored)
    np.testing.assert_array_equal(found.z[0], sample.z)
    assert_close(at(found.now, 0), now, atol=1e-6)
    assert_close(at(found.ahead, 0), kernel(sample.obs[1], found.next_z[0]), atol=1e-6)
    assert {leaf.shape[0] for leaf in jax.tree.leaves((found.now, found.ahead, found.z, found.next_z))} == {1}


@pytest.mark.parametrize("rule", SETTINGS, ids=repr)
def test_without_a_key_no_drawn_state_is_refreshed(rule):
    kernel, sample = kernel_of("s2pg"), replayed(1)
    found = rule.unfold(kernel, sample, None)
    assert found.fresh == ()
    np.testing.assert_array_equal(found.next_z, sample.next_z)
    assert_close(at(found.ahead, 0), kernel(sample.obs[1], sample.next_z[0]), atol=1e-6)


def test_a_refreshed_state_is_a_draw_from_the_policy():
    kernel, sample = kernel_of("s2pg"), replayed(1)
    keys = jax.random.split(jax.random.key(4), 4000)
    fresh = jax.jit(jax.vmap(lambda key: DrawRule().unfold(kernel, sample, key).fresh[0]))(keys)
    normal = kernel(sample.obs[0], sample.z).state.pre
    pre, std = np.arctanh(np.asarray(fresh, np.float64)), np.exp(normal.log_std)
    np.testing.assert_allclose((pre.mean(axis=0) - normal.mean) / std, 0.0, atol=5 / 4000**0.5)
    np.testing.assert_allclose(pre.std(axis=0) / std, 1.0, atol=5 / 8000**0.5)
    np.testing.assert_allclose(np.corrcoef(pre.T) - np.eye(4), 0.0, atol=5 / 4000**0.5)


def test_without_noise_the_refreshed_state_is_the_mode_whatever_the_key():
    kernel, sample = kernel_of("s2pg"), replayed(1)
    for seed in range(3):
        fresh = DrawRule(refresh_noise=False).unfold(kernel, sample, jax.random.key(seed)).fresh[0]
        np.testing.assert_allclose(fresh, kernel(sample.obs[0], sample.z).state.mode(), atol=1e-6)


@pytest.mark.parametrize(
    "rule", [DrawRule(), DrawRule(refresh_noise=False), DrawRule(refresh=0.25), DrawRule(refresh_first=False)], ids=repr
)
def test_no_gradient_leaves_through_drawn_states(rule):
    kernel, sample, key = kernel_of("s2pg"), replayed(1), jax.random.key(3)

    def unfold(kernel):
        return rule.unfold(kernel, sample, key)

    assert largest(slope(kernel, lambda k: (unfold(k).z, unfold(k).next_z, unfold(k).fresh))) == 0
    assert largest(slope(kernel, lambda k: unfold(k).now)) > 0
    # What is ahead learns from its own step alone, as if z' had fallen from the sky.
    next_z = unfold(kernel).next_z[0]
    one, other = slope(kernel, lambda k: at(unfold(k).ahead, 0)), slope(kernel, lambda k: k(sample.obs[1], next_z))
    assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_what_is_stored_of_a_drawn_state_is_all_of_it():
    z = jnp.arange(4.0)
    assert DrawRule().stored(z) is z


# UnrollRule ----------------------------------------------------------------------------------------------------------


def by_hand(kernel, sample, head, burn_in=0):
    """Step by step in plain Python: (steps, z before each), with one more than there are rows."""
    valid = jnp.append(sample.valid, True)
    steps, states, z = [], [], head
    for j, obs in enumerate(sample.obs):
        if j == burn_in:
            z = jax.lax.stop_gradient(z)
        step = kernel(obs, z)
        steps.append(step)
        states.append(z)
        z = jnp.where(valid[j], step.state.mode(), z)
    return steps, states


stepped = jax.jit(by_hand)


@jax.jit
def unfolded_by(rule, kernel, sample, key):
    """A rule is an argument without leaves: it is compiled once, whatever the padding."""
    return rule.unfold(kernel, sample, key)


def pile(trees):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


RULES = [
    UnrollRule(1),
    UnrollRule(4),
    UnrollRule(3, burn_in=2),
    UnrollRule(1, burn_in=3),
    UnrollRule(4, last=True),
    UnrollRule(3, last=True, burn_in=2),
    UnrollRule(4, zero_head=True),
    UnrollRule(2, burn_in=3, zero_head=True),
]


def unrolled(rule, padding):
    """(kernel, sample as a buffer hands it out, state at its head), in 64 bits."""
    kernel, sample = wide(kernel_of("bptt-3")), wide(replayed(rule.spans.rows, padding))
    if not rule.zero_head:
        return kernel, sample, sample.z
    return kernel, sample._replace(z=(), next_z=()), kernel.initial()


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_an_unrolled_sample_is_the_kernel_stepped_by_hand_from_the_head(rule):
    with jax.enable_x64():
        for padding in range(rule.spans.rows):
            kernel, sample, head = unrolled(rule, padding)
            found = unfolded_by(rule, kernel, sample, jax.random.key(0))
            steps, states = stepped(kernel, sample, head)
            graded = 1 if rule.last else rule.length
            assert_close(found.now, pile(steps[-graded - 1 : -1]), **EXACT)
            assert_close(found.ahead, pile(steps[-graded:]), **EXACT)
            assert_close(found.z, pile(states[-graded - 1 : -1]), **EXACT)
            assert_close(found.next_z, pile(states[-graded:]), **EXACT)
            assert found.z.dtype == jnp.float64


@pytest.mark.parametrize("padding", [1, 2, 3])
def test_padding_in_front_passes_the_head_on_and_its_contents_do_not_matter(padding):
    rule, kernel, sample = UnrollRule(4), kernel_of("bptt-3"), replayed(4, padding)
    found = rule.unfold(kernel, sample, None)
    for before in range(padding + 1):
        np.testing.assert_array_equal(found.z[before], sample.z)
    rubbish = sample._replace(obs=sample.obs.at[:padding].set(jnp.nan))
    spoilt = rule.unfold(kernel, rubbish, None)
    assert_close(at(spoilt[:-1], slice(padding, None)), at(found[:-1], slice(padding, None)), atol=0)
    short = UnrollRule(4 - padding).unfold(
        kernel, sample._replace(obs=sample.obs[padding:], valid=sample.valid[padding:]), None
    )
    assert_close(at(found[:-1], slice(padding, None)), short[:-1], atol=1e-5)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_what_is_ahead_of_a_step_is_the_next_step(rule):
    with jax.enable_x64():
        kernel, sample, _ = unrolled(rule, 0)
        found = unfolded_by(rule, kernel, sample, jax.random.key(0))
    assert_close(at(found.ahead, slice(-1)), at(found.now, slice(1, None)), atol=0)
    np.testing.assert_array_equal(found.next_z[:-1], found.z[1:])


def test_with_the_loss_on_the_last_step_it_is_the_last_of_all_steps():
    kernel, sample = kernel_of("bptt-3"), replayed(5, 1)
    for burn_in in (0, 2):
        every = UnrollRule(5 - burn_in, burn_in=burn_in).unfold(kernel, sample, None)
        last = UnrollRule(5 - burn_in, True, burn_in).unfold(kernel, sample, None)
        assert_close(last[:-1], at(every[:-1], slice(-1, None)), atol=1e-6)
        assert last.z.shape == (1, 4)


@pytest.mark.parametrize("padding", range(5))
def test_burn_in_gives_the_values_of_a_longer_segment(padding):
    with jax.enable_x64():
        kernel, sample = wide(kernel_of("bptt-3")), wide(replayed(5, padding))
        longer, burnt = (rule.unfold(kernel, sample, None) for rule in (UnrollRule(5), UnrollRule(3, burn_in=2)))
        assert_close(burnt[:-1], at(longer[:-1], slice(2, None)), **EXACT)


PADDED = [*((rule, min(1, rule.spans.rows - 1)) for rule in RULES), (UnrollRule(4), 0), (UnrollRule(3, burn_in=2), 3)]


@pytest.mark.parametrize(("rule", "padding"), PADDED, ids=repr)
def test_gradients_flow_through_the_segment_and_not_into_the_burn_in(rule, padding):
    with jax.enable_x64():
        kernel, sample, head = unrolled(rule, padding)
        graded = 1 if rule.last else rule.length

        def hand(kernel):
            steps, _ = by_hand(kernel, sample, head, rule.burn_in)
            return pile(steps[-graded - 1 : -1]), pile(steps[-graded:])

        found = slope(kernel, lambda k: rule.unfold(k, sample, jax.random.key(0))[:2])
        wanted = slope(kernel, hand)
        assert largest(wanted) > 0.1
        assert_close(found, wanted, rtol=1e-10, atol=1e-10)


def test_burn_in_changes_the_gradient_but_no_value():
    """The comparison above would pass if nothing depended on where the gradient stops."""
    with jax.enable_x64():
        kernel, sample = wide(kernel_of("bptt-3")), wide(replayed(5))
        longer, burnt = (
            slope(kernel, lambda k, rule=rule: at(rule.unfold(k, sample, None).now, slice(-3, None)))
            for rule in (UnrollRule(5), UnrollRule(3, burn_in=2))
        )
        assert largest(jax.tree.map(jnp.subtract, longer, burnt)) > 1e-3


@pytest.mark.parametrize(
    "rule",
    [*(dataclasses.replace(rule, refresh_heads=0.5) for rule in RULES), UnrollRule(4, refresh_heads=1.0)],
    ids=repr,
)
def test_no_gradient_leaves_through_recomputed_states(rule):
    with jax.enable_x64():
        kernel, sample, _ = unrolled(rule, 0)
        key = jax.random.key(0)
        assert largest(slope(kernel, lambda k: (rule.unfold(k, sample, key)[2:], jnp.zeros(1)))) == 0


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("refresh", [0.0, 0.25, 1.0])
def test_a_recomputed_state_is_stored_as_far_as_it_is_refreshed(refresh, last):
    rule, kernel, sample = UnrollRule(3, last, 2, refresh_heads=refresh), kernel_of("bptt-3"), replayed(5, 1)
    found = rule.unfold(kernel, sample, jax.random.key(0))
    latest = by_hand(kernel, sample, sample.z)[1][-1]
    stored = sample.next_z[-1]
    assert largest(latest - stored) > 0.1
    if refresh == 0:
        assert found.fresh == ()
    else:
        np.testing.assert_allclose(found.fresh[0], (1 - refresh) * stored + refresh * latest, atol=1e-6)
    np.testing.assert_allclose(found.next_z[-1], latest, atol=1e-6)  # learned from at once, however it is stored
    assert rule.unfold(kernel, sample, None).fresh == ()


def test_segments_that_start_from_nothing_store_nothing():
    rule = UnrollRule(3, zero_head=True, refresh_heads=1.0)
    assert rule.stored(jnp.ones(4)) == ()
    assert UnrollRule(3).stored(z := jnp.ones(4)) is z
    kernel, sample = kernel_of("bptt-3"), replayed(3, 1)._replace(z=(), next_z=())
    found = rule.unfold(kernel, sample, jax.random.key(0))
    assert found.fresh == ()
    np.testing.assert_array_equal(found.z[:2], np.zeros((2, 4)))
    assert largest(found.z[2]) > 0


# Out of a buffer -----------------------------------------------------------------------------------------------------

FILLED = {"part filled": 21, "wrapped between episodes": 49, "wrapped within one": 56}  # the oldest row kept is T - 30
CASES = {
    "s2pg": ("s2pg", {}),
    "s2pg, refreshed": ("s2pg", {"refresh": 0.5}),
    "bptt-3": ("bptt-3", {}),
    "bptt-3-last": ("bptt-3-last", {}),
    "bptt-2 after burn-in": ("bptt-2", {"burn_in": 2}),
    "bptt-3, refreshed": ("bptt-3", {"refresh_heads": 1.0}),
    "window-3": ("window-3", {}),
    "none": ("none", {}),
}


@functools.cache
def compiled(case):
    """(algorithm, drawing a batch from a buffer, unfolding it, and collecting 7 steps)."""
    label, hyper = CASES[case]
    algorithm = built(label, **hyper, batch_size=90, learning_starts=90)

    def run(state, carry, key):
        carry, batch, _ = collect(ENV, algorithm.actor(state.policy), carry, 7, key)
        return algorithm.store(state, batch), carry, batch

    unfolds = jax.jit(functools.partial(unfold, algorithm.memory))
    return algorithm, jax.jit(algorithm.sample_batch), unfolds, jax.jit(run)


@functools.cache
def collected(case):
    """After each of `FILLED`: (training state with a buffer, all rows [T, N] as they were collected)."""
    algorithm, _, _, run = compiled(case)
    state = with_kernel(algorithm.init(ENV.spec, (), key=jax.random.key(0)), kernel_of(CASES[case][0]))
    carry, batches, found = start(ENV, algorithm.actor(state.policy), algorithm.lanes, jax.random.key(5)), [], {}
    for i in range(max(FILLED.values()) // 7):
        state, carry, batch = run(state, carry, jax.random.key(i))
        batches.append(batch)
        found[7 * (i + 1)] = state, jax.tree.map(lambda *leaves: np.concatenate(leaves), *batches)
    return found


def recalled(case, steps, key=None):
    """(training state, samples, batch, unfolded, the rows graded as they were collected [B, m])."""
    algorithm, sample, unfolds, _ = compiled(case)
    state, rows = collected(case)[steps]
    found, batch = sample(state.replay, state.policy, jax.random.key(0))
    unfolded = unfolds(state.policy.kernel, batch, key)
    # The latest row that went to a place of the ring is the one that is there.
    end = (steps - 1) - (steps - 1 - np.asarray(found.time)) % CAPACITY
    time = end[:, None] - np.arange(algorithm.memory.spans.graded)[::-1]
    return state, found, batch, unfolded, at(rows, (np.maximum(time, 0), np.asarray(found.lane)[:, None]))


def seen(kernel, z):
    """What is ever read of z: a window's oldest slot leaves it before anything looks."""
    return z[..., 1:, :] if hasattr(kernel, "slot") else z


def whole(algorithm, found, rows):
    """[B, 1]: whether all that the episode held is in the sample, as far as a window reaches."""
    age = np.rint(5 * rows.obs["critic"][:, -1:, 1])
    return np.asarray(found.valid).sum(axis=1, keepdims=True) == np.minimum(algorithm.memory.spans.rows, age + 1)


def assert_met_while_acting(case, steps, everywhere=False):
    algorithm = compiled(case)[0]
    state, found, batch, unfolded, rows = recalled(case, steps)
    mask, kernel, carried = np.asarray(batch.mask), state.policy.kernel, isinstance(algorithm.memory, CarryRule)
    if carried and not everywhere:
        mask = mask & whole(algorithm, found, rows)
    assert mask.mean() > 0.6
    close = functools.partial(assert_close, rtol=0, atol=0 if carried or case.startswith("s2pg") else 1e-6)
    close(seen(kernel, at(unfolded.z, mask)), seen(kernel, at(rows.z, mask)))
    close(at(unfolded.next_z, mask), at(rows.next_z, mask))
    np.testing.assert_array_equal(batch.action[mask], rows.decision.action[mask])
    np.testing.assert_array_equal(batch.alive[mask], 1.0 - rows.terminated[mask])
    every = jax.jit(jax.vmap(jax.vmap(lambda obs, z: kernel(read(obs, algorithm.reads), z).action)))
    for part, replayed_obs, obs, z in (
        (unfolded.now, batch.obs, rows.obs, rows.z),
        (unfolded.ahead, batch.next_obs, rows.next_obs, rows.next_z),
    ):
        close(
            {name: view[mask] for name, view in replayed_obs.items()}, {name: obs[name][mask] for name in replayed_obs}
        )
        assert_close(at(part.action, mask), at(every(obs, z), mask), atol=1e-5)
    begins = mask & rows.first
    assert 0 < begins.sum() < mask.sum()
    for leaf, initial in zip(jax.tree.leaves(unfolded.z), jax.tree.leaves(kernel.initial()), strict=True):
        np.testing.assert_array_equal(leaf[begins], np.broadcast_to(initial, leaf[begins].shape))


@pytest.mark.parametrize("filled", FILLED)
@pytest.mark.parametrize("case", [case for case in CASES if "refreshed" not in case])
def test_states_out_of_a_buffer_are_those_the_policy_had_when_it_acted(case, filled):
    assert_met_while_acting(case, FILLED[filled])


def test_windows_out_of_a_buffer_are_whole_next_to_its_oldest_row_too():
    assert_met_while_acting("window-3", FILLED["wrapped within one"], everywhere=True)


def test_the_oldest_slot_of_a_window_is_read_by_nobody():
    """A rebuilt z lacks it: no critic sees it, and it has left the window before the policy looks."""
    kernel = kernel_of("window-3")
    z = jax.random.normal(jax.random.key(0), (3, 3))
    other, obs = z.at[0].set(jnp.nan), jnp.ones(2)
    assert_close(kernel(obs, z), kernel(obs, other), atol=0)
    np.testing.assert_array_equal(kernel.features(z), kernel.features(other))


@pytest.mark.parametrize("case", ["s2pg", "s2pg, refreshed", "bptt-3, refreshed"])
def test_a_row_that_is_drawn_twice_is_refreshed_alike_and_others_are_not(case):
    _, found, batch, unfolded, _ = recalled(case, 21, jax.random.key(7))
    places = list(zip(np.asarray(found.time).tolist(), np.asarray(found.lane).tolist(), strict=True))
    assert len(set(map(int, batch.row))) == len(set(places)) < len(places)
    fresh = np.asarray(unfolded.fresh)[:, -1]
    by_place = {}
    for place, state_after in zip(places, fresh, strict=True):
        np.testing.assert_array_equal(by_place.setdefault(place, state_after), state_after)
    different = {tuple(each.tolist()) for each in by_place.values()}
    assert len(different) == len(by_place)


def test_rows_alike_in_everything_are_refreshed_with_noise_of_their_own():
    state, _, batch, _, _ = recalled("s2pg", 21)
    sample = replayed(1)
    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (2000, *leaf.shape)), sample)
    batch = batch._replace(samples=same, row=jnp.arange(2000))
    fresh = compiled("s2pg")[2](state.policy.kernel, batch, jax.random.key(7)).fresh
    normal = state.policy.kernel(sample.obs[0], sample.z).state.pre
    noise = (np.arctanh(np.asarray(fresh[:, 0], np.float64)) - np.asarray(normal.mean)) / np.exp(normal.log_std)
    np.testing.assert_allclose(noise.mean(axis=0), 0.0, atol=5 / 2000**0.5)
    np.testing.assert_allclose(noise.std(axis=0), 1.0, atol=5 / 4000**0.5)
    np.testing.assert_allclose(np.mean(noise[1:] * noise[:-1], axis=0), 0.0, atol=5 / 2000**0.5)  # of neighbours


def test_states_recomputed_under_unchanged_parameters_are_written_back_as_they_were():
    state, found, _, unfolded, _ = recalled("bptt-3, refreshed", 56, jax.random.key(7))
    written = replay.write(state.replay, found, unfolded.fresh)
    np.testing.assert_allclose(written.next_z, state.replay.next_z, atol=1e-6)


def test_a_state_that_is_refreshed_and_written_is_the_next_row_s_state():
    state, found, _, unfolded, _ = recalled("s2pg", 56, jax.random.key(7))
    after = replay.write(state.replay, found, unfolded.fresh)
    fresh = dict(zip(map(int, found.time * 3 + found.lane), np.asarray(unfolded.fresh)[:, -1], strict=True))
    again, batch = compiled("s2pg")[1](after, state.policy, jax.random.key(8))
    met = 0
    for i, (time, lane) in enumerate(zip(map(int, again.time), map(int, again.lane), strict=True)):
        before = (time - 1) % CAPACITY * 3 + lane
        if before in fresh and not state.replay.first[time, lane]:
            np.testing.assert_array_equal(batch.samples.z[i], fresh[before])
            met += 1
    assert met > 10
