"""Memory rules: which steps form a sample, what is recomputed, and where a gradient may flow."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s2pg.algorithms.base import normalised, step_log_probs
from s2pg.algorithms.base import samples as rule_samples
from s2pg.algorithms.onpolicy import Learning, Networks, batch_values
from s2pg.memory import CarryRule, DrawRule, PathwiseRule, UnrollRule, restarts
from toys import assert_close, built, evaluation, largest, samples, two_batches

RULES = [
    DrawRule(),
    *(PathwiseRule(length=n) for n in (1, 3)),
    CarryRule(),
    *(UnrollRule(n) for n in (1, 3, 8)),
    *(UnrollRule(n, True) for n in (3, 5)),
]
# One label for each kind of sample: the oracle is `none` with another view, a longer segment no other kind.
KINDS = ["s2pg", "s2pg-pathwise", "s2pg-3", "bptt-3", "bptt-3-last", "window-3", "none"]
every_kind = pytest.mark.parametrize("label", KINDS)


@functools.cache
def case(label: str):
    algorithm = built(label)
    state, _, batch = two_batches(algorithm)
    return algorithm, state, batch


@functools.cache
def evaluated(label: str):
    """(rows, evaluation) of the second batch under the parameters that collected it."""
    return evaluation(*case(label))


# Segments ------------------------------------------------------------------------------------------------------------


def test_segments_that_come_out_even_have_no_padding():
    time, lane, valid = UnrollRule(2).segments(4, 2)
    np.testing.assert_array_equal(time, [[0, 1], [0, 1], [2, 3], [2, 3]])
    np.testing.assert_array_equal(lane, [[0, 0], [1, 1], [0, 0], [1, 1]])
    assert valid.all()


def test_the_last_segment_is_padded_where_it_does_not_come_out_even():
    _, _, valid = UnrollRule(3).segments(8, 1)
    np.testing.assert_array_equal(valid, [[1, 1, 1], [1, 1, 1], [1, 1, 0]])


def test_with_loss_on_the_last_step_every_step_ends_a_sample_padded_in_front():
    time, _, valid = UnrollRule(3, last=True).segments(4, 1)
    np.testing.assert_array_equal(valid, [[0, 0, 1], [0, 1, 1], [1, 1, 1], [1, 1, 1]])
    np.testing.assert_array_equal(np.where(valid, time, -1), [[-1, -1, 0], [-1, 0, 1], [0, 1, 2], [1, 2, 3]])


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_every_step_enters_the_loss_exactly_once(rule):
    time, lane, valid = rule.segments(8, 3)
    length = getattr(rule, "length", 1)
    assert time.shape[1] == length
    counted = valid & (np.arange(length) == length - 1) if getattr(rule, "last", False) else valid
    count = np.zeros((8, 3), int)
    np.add.at(count, (time[counted], lane[counted]), 1)
    assert (count == 1).all()
    assert (np.diff(time, axis=1)[valid[:, 1:] & valid[:, :-1]] == 1).all()  # consecutive, in order


@every_kind
def test_the_mask_of_an_evaluation_marks_every_step_once(label):
    algorithm, _, batch = case(label)
    _, now = evaluated(label)
    time, lane, _ = algorithm.memory.segments(*batch.reward.shape)
    count = np.zeros(batch.reward.shape, int)
    np.add.at(count, (time[now.mask], lane[now.mask]), 1)
    assert (count == 1).all()


def test_the_stored_state_replaces_the_unrolled_one_at_heads_and_at_episode_starts():
    first = jnp.array([0, 0, 0, 1, 0], bool)
    np.testing.assert_array_equal(restarts(first, jnp.array([0, 1, 1, 1, 1], bool)), [1, 1, 0, 1, 0])
    np.testing.assert_array_equal(restarts(first, jnp.array([1, 1, 1, 1, 0], bool)), [1, 0, 0, 1, 0])


# What is recomputed --------------------------------------------------------------------------------------------------


@every_kind
def test_states_under_unchanged_parameters_are_those_met_while_acting(label):
    rows, now = evaluated(label)
    seen = np.asarray(now.mask)
    assert_close(*([leaf[seen] for leaf in jax.tree.leaves(z)] for z in (now.z, rows.z)), atol=1e-5)
    assert_close(*([leaf[seen] for leaf in jax.tree.leaves(z)] for z in (now.next_z, rows.next_z)), atol=1e-5)


@pytest.mark.parametrize("label", ["s2pg", "bptt-3", "window-3"])
def test_states_follow_each_other_and_start_anew_with_each_episode(label):
    batch = case(label)[2]
    follows = np.where(np.asarray(batch.first)[1:, :, None], 0.0, np.reshape(batch.next_z, (8, 5, -1))[:-1])
    np.testing.assert_array_equal(np.reshape(batch.z, (8, 5, -1))[1:], follows)


def test_without_a_key_the_mode_is_taken_and_its_state_is_eta():
    for label in ("s2pg", "s2pg-pathwise"):
        algorithm, state, batch = case(label)
        obs, z = batch.obs["policy"][0, 0], batch.z[0, 0]
        act = algorithm.memory.act
        run = jax.jit(lambda kernel, act=act, obs=obs, z=z: (
            act(kernel, obs, z, None), act(kernel, obs, z, jax.random.key(0))[1], kernel(obs, z)
        ))  # fmt: skip
        (decision, next_z, _), drawn, step = run(state.policy.kernel)
        assert int(decision.action) == int(step.action.mode())
        np.testing.assert_allclose(next_z, step.state.mean, atol=1e-6)
        assert largest(drawn - next_z) > 0.01


# Gradients -----------------------------------------------------------------------------------------------------------


def reach(label: str, lane: int) -> tuple[np.ndarray, np.ndarray]:
    """Which observation [s] moves which log-probability [t] along a lane, and where its episodes start."""
    algorithm, state, batch = case(label)
    row = jax.tree.map(lambda leaf: leaf[:, lane], normalised(state.policy.normaliser, batch))
    view = algorithm.reads[0]

    def log_probs(obs):
        return step_log_probs(
            algorithm.memory, state.policy.kernel, row._replace(obs=row.obs | {view: obs}), algorithm.reads
        )

    return np.abs(jax.jit(jax.jacrev(log_probs))(row.obs[view])).max(-1) > 0, np.asarray(row.first)


@every_kind
def test_gradients_reach_back_through_unrolled_steps_and_nowhere_else(label):
    """Never over an episode's border, never over the head of a segment; a draw and a stored past let nothing pass."""
    found, first = reach(label, lane=0)
    assert first[1:].any()
    t, s = np.mgrid[:8, :8]
    episode = np.cumsum(first)
    same = (s <= t) & (episode[t] == episode[s])
    length = int(label.split("-")[1]) if label.startswith(("bptt", "s2pg-3")) else 1
    near = t - s < length if label.endswith("last") else t // length == s // length
    np.testing.assert_array_equal(found, same & near)


@functools.cache
def slopes(label: str):
    """The kernel's gradients of the sums of z, z', log-probabilities, and of all that a loss may use of the state."""
    algorithm, state, batch = case(label)
    rows, valid = samples(algorithm, normalised(state.policy.normaliser, batch))

    def sums(kernel):
        now = jax.vmap(algorithm.memory.evaluate, (None, 0))(kernel, rule_samples(rows, algorithm.reads, valid))
        parts = (now.z, now.next_z, now.log_prob, (now.next_z, now.log_prob, now.drift, now.entropy))
        return jnp.stack([
            sum((jnp.sum(leaf) for leaf in jax.tree.leaves(part)), start=jnp.zeros(())) for part in parts
        ])  # fmt: skip

    found = jax.jit(jax.jacrev(sums))(state.policy.kernel)
    return [jax.tree.map(lambda leaf, i=i: leaf[i], found) for i in range(4)]


@every_kind
def test_z_hands_out_no_gradient_and_the_next_one_only_under_pathwise(label):
    z, next_z, log_prob, _ = map(largest, slopes(label))
    assert z == 0 and (next_z > 0) == (label in ("s2pg-pathwise", "s2pg-3")) and log_prob > 0


@pytest.mark.parametrize(("label", "learns"), [("s2pg", True), ("s2pg-pathwise", False)])
def test_the_size_of_the_state_noise_learns_under_score_and_never_under_pathwise(label, learns):
    assert (largest(slopes(label)[3].state_head.log_std) > 0) == learns


@pytest.mark.parametrize("label", ["bptt-3", "bptt-3-last"])
def test_padding_moves_neither_loss_nor_gradient(label):
    algorithm, state, batch = case(label)
    batch = normalised(state.policy.normaliser, batch)
    networks = Networks(state.policy.kernel, state.learner.critic)
    values, _ = jax.jit(batch_values)(networks, state.learner.critic_memory, batch)
    noise = jax.random.normal(jax.random.key(5), (2, *batch.reward.shape))
    rows, valid = samples(algorithm, Learning(batch, noise[0], noise[1], values.h), algorithm.memory.segments(8, 5))
    assert not valid.all()

    def spoil(leaf):
        rubbish = ~leaf if leaf.dtype == bool else 1 - leaf if leaf.dtype == jnp.int32 else 3.0 - 2 * leaf
        return jnp.where(valid.reshape(*valid.shape, *[1] * (leaf.ndim - 2)), leaf, rubbish)

    loss = jax.jit(jax.value_and_grad(algorithm.loss, has_aux=True))
    clean, spoilt = (loss(networks, each, valid, jnp.ones(())) for each in (rows, jax.tree.map(spoil, rows)))
    assert largest(clean[1]) > 0
    # The loss beside its gradient holds V(s', z') of masked steps only, too.
    assert_close(clean, spoilt, atol=1e-6)
