"""TD3: targets, smoothing and losses on numbers worked out by hand, and the stateful deterministic policy gradient."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s2pg.algorithms.base import Policy, TrainState
from s2pg.algorithms.offpolicy import Batch, regression, unfold
from s2pg.algorithms.td3 import TD3, Learner, Networks, saturation
from s2pg.critics import Critic, Recipe
from s2pg.distributions import ClippedNormal
from s2pg.envs.recall import Recall
from s2pg.kernel import Kernel, Step
from s2pg.memory import CarryRule, DrawRule, ReplaySample, UnrollRule
from s2pg.optimise import follow
from s2pg.types import Decision, Transition
from test_sac import (
    CRITICS,
    KEYS,
    SLOW,
    Memoryless,
    Recomputed,
    graded_last,
    kernel,
    nothing,
    pair,
    quick,
    two_segments,
    two_transitions,
)  # fmt: skip
from test_sac import Linear as Drawn
from toys import assert_close, largest, resolve

NO_SMOOTHING = {"smoothing_action": 0.0, "smoothing_state": 0.0}


def td3(memory, **hyper):
    """The actor maximises the lower value, so that both critics have a say in its loss."""
    hyper = {"actor_value": "min"} | NO_SMOOTHING | hyper
    return TD3(memory, nothing, Recipe(nothing, ("critic",)), ("policy",), lanes=3, steps=1, discount=0.9, **hyper)


def training_state(kind=Drawn):
    """The slow kernel is another: eta = z + (0, 0.2) o, a = 0.5 o + eta_1."""
    slow = Networks(kernel(kind, 1.0, (0.0, 0.2), 0.5), pair(*SLOW))
    learner = Learner(pair(*CRITICS), slow, Networks((), ()))
    return TrainState(Policy(kernel(kind), {}), learner, (), jnp.zeros((), jnp.int32))


# An algorithm is an argument without leaves: what two tests ask of the same one is compiled once.


@quick
def _targets(algorithm, batch, state, keys):
    unfolded = unfold(algorithm.memory, state.policy.kernel, batch, KEYS[0])
    return jax.vmap(lambda key: algorithm.target(state.learner.target, batch, unfolded.next_z, key))(keys)


def target(algorithm, batch, state):
    return _targets(algorithm, batch, state, KEYS[1:2])[0]


@quick
def _critic_loss(algorithm, batch, state, y):
    kernel = state.policy.kernel
    unfolded = unfold(algorithm.memory, kernel, batch, KEYS[0])
    decision = algorithm.memory.halves(batch.action, unfolded.next_z)
    return regression(state.learner.critic, kernel, batch, unfolded.z, decision, y)


def critic_loss(algorithm, batch, state, y):
    return _critic_loss(algorithm, batch, state, jnp.asarray(y, float))


@quick
def actor_loss(algorithm, batch, state):
    """(loss, gradient of the kernel)."""
    return jax.value_and_grad(algorithm.actor_loss)(state.policy.kernel, state, batch)


# The drawn state: z' is drawn anew by the kernel, (0.6, 0.1) and (0.5, 0.3), and u' is the slow kernel's mode ---------


def test_the_target_is_the_lower_slow_value_of_the_slow_mode_and_nothing_after_termination():
    got = target(td3(DrawRule()), two_transitions(), training_state())
    # At s' = 2, z' = (0.5, 0.3): eta = (0.5, 0.3 + 0.2 * 0.5), a' = 0.5 * 0.5 + 0.5.
    q_1 = 1 + 2 + 0.5 + 2 * 0.75 + 0.4  # 5.4
    q_2 = 2 * 2 + 0.3 + 0.75 + 0.5  # 5.55
    np.testing.assert_allclose(got, [[1.0], [2 + 0.9 * min(q_1, q_2)]], rtol=1e-5)


def test_a_transition_that_was_truncated_bootstraps_and_takes_the_lower_critic():
    got = target(td3(DrawRule()), two_transitions(terminated=(False, False)), training_state())
    # At s' = 0.7, z' = (0.6, 0.1): eta = (0.6, 0.1 - 0.2), a' = -0.5 + 0.6.
    q_1 = 1 + 0.7 + 0.6 + 2 * 0.1 - 0.1  # 2.4
    q_2 = 1.4 + 0.1 + 0.1 + 0.6  # 2.2
    np.testing.assert_allclose(got, [[1 + 0.9 * min(q_1, q_2)], [6.86]], rtol=1e-5)


def test_the_target_starts_from_the_stored_state_where_none_is_refreshed():
    got = target(td3(DrawRule(refresh=0.0)), two_transitions(), training_state())
    # z' = (9, 9): eta = (9, 9.1), a' = 9.25, which are clipped to 1 as smoothing would clip them.
    np.testing.assert_allclose(got[1], [2 + 0.9 * min(1 + 2 + 9 + 2 + 1, 4 + 9 + 1 + 1)], rtol=1e-5)


def test_the_critic_loss_is_half_the_squared_errors_of_both_critics():
    loss = critic_loss(td3(DrawRule()), two_transitions(), training_state(), [[1.0], [6.86]])
    # Q_1 = 3.2, 0 and Q_2 = 5.6, 1.5, as in the tests of SAC.
    np.testing.assert_allclose(loss, (2.2**2 + 4.6**2 + 6.86**2 + 5.36**2) / 4, rtol=1e-5)


@pytest.mark.parametrize("value", ["min", "mean", "first"])
def test_the_actor_maximises_the_value_of_its_mode(value):
    loss, gradient = actor_loss(td3(DrawRule(), actor_value=value), two_transitions(), training_state())
    # Modes: a = 0.3 + 0.4 = 0.7 and 0.6 + 0.3 = 0.9, z' = (0.4, -0.1) and (0.3, 0.1).
    q_1 = np.array([0.5 + 1.5 + 0.4 + 0.7 + 0.5, 0.5 - 0.5 + 0.4 + 0.9 + 0.2])  # 3.6, 1.5
    q_2 = np.array([2 + 3 + 0.8 - 0.7 - 0.1, 2 - 1 - 0.4 - 0.9 + 0.1])  # 5, -0.2
    judged = {"min": [3.6, -0.2], "mean": (q_1 + q_2) / 2, "first": q_1}[value]
    np.testing.assert_allclose(loss, -np.mean(judged), rtol=1e-5)
    # Slopes of what is maximised, by a and by z', and from there to the kernel's parameters.
    one, two = np.array([1.0, 1.0, -1.0]), np.array([-1.0, 0.0, 1.0])
    slopes = np.stack({"min": [one, two], "mean": [(one + two) / 2] * 2, "first": [one, one]}[value])
    by_a, by_eta = slopes[:, 0], slopes[:, 1:] + slopes[:, :1] * [1.0, 0.0]
    o, z = np.array([1.0, 2.0]), np.array([[0.4, 0.0], [-0.2, 0.6]])
    np.testing.assert_allclose(gradient.gain, -(by_a * o).mean(), atol=1e-6)
    np.testing.assert_allclose(gradient.push, -(by_eta * o[:, None]).mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(gradient.keep, -(by_eta * z).sum(axis=1).mean(), atol=1e-6)


def test_an_actor_pays_for_corners():
    """Modes of z' as above; arctanh(0.999 x) = log((1 + 0.999 x) / (1 - 0.999 x)) / 2, and z' is keep z + push o."""
    free, paid = (
        actor_loss(td3(DrawRule(), actor_value="first", saturation_cost=cost), two_transitions(), training_state())
        for cost in (0.0, 0.5)
    )
    x = 0.999 * np.array([[0.4, -0.1], [0.3, 0.1]])
    depth = 0.5 * np.log((1 + x) / (1 - x))
    np.testing.assert_allclose(paid[0] - free[0], 0.5 * (depth**2).sum(axis=1).mean(), rtol=1e-4)
    o, slope = np.array([[1.0], [2.0]]), 2 * depth * 0.999 / (1 - x**2)
    np.testing.assert_allclose(paid[1].push - free[1].push, 0.5 * (slope * o).mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(paid[1].gain, free[1].gain, rtol=1e-6)  # of the action alone


def test_corners_may_cost_in_units_of_the_value():
    """The mean of |Q_1|, of 3.6 and 1.5, is 2.55; nothing is learned by making that smaller."""
    made = {
        unit: td3(DrawRule(), actor_value="first", saturation_cost=0.2, saturation_unit=unit)
        for unit in ("one", "value")
    }
    made["dear"] = td3(DrawRule(), actor_value="first", saturation_cost=0.2 * 2.55)
    loss, gradient = zip(
        *(actor_loss(each, two_transitions(), training_state()) for each in made.values()), strict=True
    )
    np.testing.assert_allclose(loss[1], loss[2], rtol=1e-5)
    assert loss[1] > loss[0] + 0.01
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4), gradient[1], gradient[2])


def test_beyond_the_bounds_is_as_deep_as_at_them():
    """A kernel of one's own may leave them a little."""
    z = jnp.array([[[2.0, 0.0]], [[-1.0, 0.0]]])
    value, slope = jax.value_and_grad(lambda z: saturation(Decision(jnp.zeros((2, 1, 3)), z)).sum())(z)
    np.testing.assert_allclose(value, 2 * (0.5 * np.log(1.999 / 0.001)) ** 2, rtol=1e-3)
    assert np.isfinite(slope).all()


def test_only_drawn_states_pay_for_corners():
    costs = [
        actor_loss(td3(UnrollRule(2), saturation_cost=cost), two_segments(), training_state(Recomputed))[0]
        for cost in (0.0, 0.5)
    ]
    assert costs[0] == costs[1]


# A plain rule --------------------------------------------------------------------------------------------------------


def test_without_memory_target_and_losses_are_those_of_plain_td3():
    algorithm, state = td3(CarryRule()), training_state(Memoryless)
    later = 2 + 0.9 * min(1 + 2 + 2 * 0.25, 4 + 0.25)  # 5.15, a' = 0.5 * 0.5
    first = 1 + 0.9 * min(1 + 0.7 - 2 * 0.5, 1.4 - 0.5)  # 1.63 where it was but truncated, a' = -0.5
    for terminated, expected in (((True, False), [[1.0], [later]]), ((False, False), [[first], [later]])):
        got = target(algorithm, two_transitions(terminated, stateful=False), state)
        np.testing.assert_allclose(got, expected, rtol=1e-5)
    batch = two_transitions(stateful=False)
    # Of the stored actions 0.3 and -0.6: Q_1 = 2.3, -0.6 and Q_2 = 4.7, 1.6.
    loss = critic_loss(algorithm, batch, state, [[1.0], [5.15]])
    np.testing.assert_allclose(loss, (1.3**2 + 3.7**2 + 5.75**2 + 3.55**2) / 4, rtol=1e-5)
    # Of the modes 0.3 and 0.6: Q_1 = 2.3, 0.6 and Q_2 = 4.7, 0.4.
    loss, gradient = actor_loss(algorithm, batch, state)
    np.testing.assert_allclose(loss, -(2.3 + 0.4) / 2, rtol=1e-5)
    np.testing.assert_allclose(gradient.gain, -(1 * 1 + 2 * -1) / 2, rtol=1e-5)


# A state that is unrolled, with padding ------------------------------------------------------------------------------
#
# Slow kernel along the second sample, from (-0.2, 0.6): z = (-0.2, 0.6 + 0.4) at o = 0.5 and (-0.2, 1 + 0.1) at o = 0;
# its actions there are 0.25 - 0.2 = 0.05 and 0 - 0.2.

FIRST_TARGET = 2 + 0.9 * min(1 + 2 - 0.2 + 2 * 0.05, 2 * 2 + 1.0 + 0.05)  # 4.61
SECOND_TARGET = 3 + 0.9 * min(1 + 1 - 0.2 - 2 * 0.2, 2 * 1 + 1.1 - 0.2)  # 4.26


def test_padding_of_unrolled_samples_counts_in_no_loss():
    algorithm, state = td3(UnrollRule(2)), training_state(Recomputed)
    y = target(algorithm, two_segments(), state)
    np.testing.assert_allclose(y[1], [FIRST_TARGET, SECOND_TARGET], rtol=1e-5)
    np.testing.assert_allclose(y[0, 1], 1.0)
    loss, gradient = actor_loss(algorithm, two_segments(), state)
    # Modes 0.7, 0.9, 0.4 at z = (0.4, 0), (-0.2, 0.6), (0.3, 0.1): Q_1 = 3.1, 1.3, 2.3 and Q_2 = 5.1, -0.3, 4.2.
    np.testing.assert_allclose(loss, -(3.1 - 0.3 + 2.3) / 3, rtol=1e-5)
    by_a = np.array([1.0, -1.0, 1.0])
    np.testing.assert_allclose(gradient.keep, -by_a @ [0.4, -0.2, 0.3 + 0.5 * -0.2] / 3, rtol=1e-5)
    np.testing.assert_allclose(gradient.push, [-by_a @ [1.0, 2.0, 0.5 + 0.5 * 2.0] / 3, 0.0], rtol=1e-5, atol=1e-7)
    other = two_segments(padding=(-5.0, 1e3, 0.5, -1e4))
    assert_close(actor_loss(algorithm, other, state), (loss, gradient), rtol=1e-6)
    losses = [critic_loss(algorithm, batch, state, y.at[0, 0].set(pad)) for batch, pad in
              ((two_segments(), 55.0), (other, -7e3))]  # fmt: skip
    errors = np.array([[2.7, -0.2, 2.0], [5.5, 1.2, 4.5]]) - [1.0, FIRST_TARGET, SECOND_TARGET]
    np.testing.assert_allclose(losses, 0.5 * (errors**2).sum() / 3, rtol=1e-5)
    np.testing.assert_array_equal(target(algorithm, other, state)[1], y[1])


def test_the_loss_on_the_last_row_alone_still_unrolls_those_before():
    algorithm, state = td3(UnrollRule(2, last=True)), training_state(Recomputed)
    batch = graded_last(two_segments())
    np.testing.assert_allclose(target(algorithm, batch, state), [[1.0], [SECOND_TARGET]], rtol=1e-5)
    loss, gradient = actor_loss(algorithm, batch, state)
    np.testing.assert_allclose(loss, -(3.1 + 2.3) / 2, rtol=1e-5)
    np.testing.assert_allclose(gradient.keep, -(0.4 + 0.2) / 2, rtol=1e-5)


# Smoothing -----------------------------------------------------------------------------------------------------------


@quick
def smoothed(algorithm, decision, key):
    return algorithm.smooth(decision, key)


MODES = Decision(jnp.array([[[0.9]], [[-0.2]]]), jnp.array([[[0.95, 0.0]], [[-0.99, 0.5]]]))


def test_noise_is_clipped_and_then_the_decision_each_half_by_its_own_limits():
    hyper = {"smoothing_action": 1e9, "smoothing_action_clip": 0.3, "smoothing_state": 1e9, "smoothing_state_clip": 0.1}
    algorithm = td3(DrawRule(), **hyper)
    smooth = quick(jax.vmap(algorithm.smooth, (None, 0)))
    found = smooth(MODES, jax.random.split(jax.random.key(0), 64))
    # So large a noise is always cut: one of two values each.
    ends = {(0, 0): (0.6, 1.0), (1, 0): (-0.5, 0.1)}
    state_ends = {(0, 0): (0.85, 1.0), (0, 1): (-0.1, 0.1), (1, 0): (-1.0, -0.89), (1, 1): (0.4, 0.6)}
    for half, expected in ((found.action, ends), (found.state, state_ends)):
        for (row, entry), two in expected.items():
            np.testing.assert_allclose(sorted(set(np.asarray(half[:, row, 0, entry]).tolist())), two, rtol=1e-5)


def test_without_noise_the_decision_is_exactly_the_mode():
    assert_close(smoothed(td3(DrawRule()), MODES, KEYS[0]), MODES, rtol=0)
    # One half may be smoothed alone.
    for name, kept, moved in (("smoothing_action", "state", "action"), ("smoothing_state", "action", "state")):
        found = smoothed(td3(DrawRule(), **{name: 0.1}), MODES, KEYS[0])
        np.testing.assert_array_equal(getattr(found, kept), getattr(MODES, kept))
        assert np.abs(getattr(found, moved) - getattr(MODES, moved)).min() > 0


def test_noise_has_its_size_and_is_drawn_for_every_number_alone():
    algorithm = td3(DrawRule(), smoothing_action=0.2, smoothing_state=0.05)
    number = 20_000
    zeros = Decision(jnp.zeros((number // 2, 2, 1)), jnp.zeros((number // 2, 2, 2)))
    found = smoothed(algorithm, zeros, KEYS[0])
    noise = np.concatenate([np.reshape(found.action, (number, 1)), np.reshape(found.state, (number, 2))], axis=1)
    # Both are cut at 2.5 standard deviations, which happens to 1.24% of all.
    for values, std, limit in ((noise[:, 0], 0.2, 0.5), (noise[:, 1], 0.05, 0.125), (noise[:, 2], 0.05, 0.125)):
        assert abs(values.mean()) < 4 * std / np.sqrt(number)
        inside = np.abs(values) < limit
        np.testing.assert_allclose(1 - inside.mean(), 0.0124, atol=0.0035)
        np.testing.assert_allclose(np.abs(values[~inside]), limit, rtol=1e-6)
        np.testing.assert_allclose(np.median(np.abs(values)), 0.6745 * std, rtol=0.04)
    assert np.abs(np.corrcoef(noise.T) - np.eye(3)).max() < 4 / np.sqrt(number)
    by_row = np.reshape(found.action, (number // 2, 2))
    assert abs(np.corrcoef(by_row.T)[0, 1]) < 4 / np.sqrt(number / 2)
    # Of halves that are alike in shape too.
    alike = smoothed(algorithm, Decision(zeros.action, zeros.action), KEYS[0])
    assert abs(np.corrcoef(np.ravel(alike.action), np.ravel(alike.state))[0, 1]) < 4 / np.sqrt(number)


def test_without_a_drawn_state_the_action_alone_is_smoothed():
    algorithm = td3(CarryRule(), smoothing_action=1e9, smoothing_action_clip=0.3)
    found = smoothed(algorithm, Decision(MODES.action), KEYS[0])
    np.testing.assert_allclose(np.abs(found.action - MODES.action)[1], 0.3, rtol=1e-5)
    assert found.state == ()


def test_the_target_takes_the_smoothed_decision_in_its_bounds():
    hyper = {"smoothing_action": 1e9, "smoothing_action_clip": 0.1, "smoothing_state": 1e9, "smoothing_state_clip": 0.7}
    algorithm, state = td3(DrawRule(), **hyper), training_state()
    got = _targets(algorithm, two_transitions(), state, jax.random.split(jax.random.key(3), 60))
    # The mode is a' = 0.75, z'' = (0.5, 0.4); +-0.1 and +-0.7 of each, kept within 1.
    ways = itertools.product((0.65, 0.85), (-0.2, 1.0), (-0.3, 1.0))
    possible = {2 + 0.9 * min(1 + 2 + 0.5 + 2 * a + y, 2 * 2 + 0.3 + a + x) for a, x, y in ways}
    found = {round(float(y[1, 0]), 3) for y in got}
    assert found == {round(y, 3) for y in possible}
    assert {float(y[0, 0]) for y in got} == {1.0}


# The stateful deterministic policy gradient --------------------------------------------------------------------------


def mu(theta, o, z):
    """(mu^a, mu^z): two actions and three numbers of state, both not linear, the action through eta as well."""
    eta = jnp.tanh(z @ theta["A"] + o @ theta["B"])
    return jnp.tanh(eta @ theta["C"] + o @ theta["D"] + theta["e"]), eta


class Curved(Kernel):
    theta: dict

    def initial(self):
        return jnp.zeros(3)

    def embed(self, obs):
        return obs

    def advance(self, x, z):
        return mu(self.theta, x, z)[1]

    def emit(self, x, eta):
        theta = self.theta
        action = jnp.tanh(eta @ theta["C"] + x @ theta["D"] + theta["e"])
        return Step(ClippedNormal(action, 0.1), ClippedNormal(eta, 0.1))


class Quadratic(Critic):
    """Q = level - |a - F s|^2 - |z' - G z|^2 + a . H z' + s . K z'."""

    level: jax.Array
    F: jax.Array
    G: jax.Array
    H: jax.Array
    K: jax.Array
    reads: tuple[str, ...] = eqx.field(static=True, default=("critic",))

    def initial(self):
        return ()

    def advance(self, obs, h):
        return ()

    def __call__(self, obs, h, features, decision):
        (a, new), s = decision, obs["critic"]
        errors = jnp.sum((a - self.F @ s) ** 2) + jnp.sum((new - self.G @ features) ** 2)
        return self.level - errors + a @ self.H @ new + s @ self.K @ new


def by_hand(q, s, z, a, new):
    """(Q, dQ/da, dQ/dz') in NumPy."""
    value = q.level - ((a - q.F @ s) ** 2).sum() - ((new - q.G @ z) ** 2).sum() + a @ q.H @ new + s @ q.K @ new
    return value, -2 * (a - q.F @ s) + q.H @ new, -2 * (new - q.G @ z) + a @ q.H + s @ q.K


def test_the_actors_gradient_is_the_stateful_deterministic_policy_gradient():
    number, rng = 5, np.random.default_rng(0)
    with jax.enable_x64():
        shapes = {"A": (3, 3), "B": (2, 3), "C": (3, 2), "D": (2, 2), "e": (2,)}
        theta = {name: jnp.asarray(rng.normal(size=shape)) for name, shape in shapes.items()}
        parts = [rng.normal(size=shape) for shape in ((2,), (2, 2, 2), (2, 3, 3), (2, 2, 3), (2, 2, 3))]
        critics = Quadratic(*map(jnp.asarray, parts))
        o, s, z, after = (rng.normal(size=(number, size)) for size in (2, 2, 3, 2))
        seen = {"policy": jnp.asarray(o)[:, None], "critic": jnp.asarray(s)[:, None]}
        valid = jnp.ones((number, 1), bool)
        wide_z = jnp.asarray(z)
        batch = Batch(
            ReplaySample(jnp.stack([jnp.asarray(o), jnp.asarray(after)], axis=1), valid, wide_z, wide_z[:, None]),
            {}, seen, seen, jnp.zeros((number, 1, 2)), jnp.zeros((number, 1)), jnp.ones((number, 1)), valid,
            jnp.arange(number),
        )  # fmt: skip
        algorithm = td3(DrawRule(), actor_value="min")
        learner = Learner(critics, Networks((), ()), Networks((), ()))
        state = TrainState(Policy(Curved(theta), {}), learner, (), jnp.zeros((), jnp.int32))
        loss, gradient = actor_loss(algorithm, batch, state)

        jacobian = quick(jax.vmap(jax.jacrev(mu), (None, 0, 0)))(theta, o, z)
        actions, news = jax.vmap(mu, (None, 0, 0))(theta, o, z)
        each = [jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), critics) for i in range(2)]
        rows = [[by_hand(q, s[i], z[i], np.asarray(actions[i]), np.asarray(news[i])) for q in each]
                for i in range(number)]  # fmt: skip
        lower = [int(row[1][0] < row[0][0]) for row in rows]
        assert {*lower} == {0, 1}, "both critics should be the lower one somewhere"
        judged, by_a, by_new = (
            np.array([row[which][k] for which, row in zip(lower, rows, strict=True)]) for k in range(3)
        )
        np.testing.assert_allclose(loss, -judged.mean(), rtol=1e-12)
        for name in theta:
            of_action = np.einsum("ba...,ba->...", jacobian[0][name], by_a)
            of_state = np.einsum("bz...,bz->...", jacobian[1][name], by_new)
            theorem = of_action + of_state
            assert np.abs(of_action).max() > 0.1 and (np.abs(of_state).max() > 0.1) == (name in "AB")
            np.testing.assert_allclose(gradient.theta[name], -theorem / number, rtol=1e-9, atol=1e-14)


def test_the_deterministic_gradient_needs_no_future_of_z():
    """What was stored after the transition, and what comes then, is nothing to the actor."""
    algorithm, state, batch = td3(DrawRule()), training_state(), two_transitions()
    obs = batch.samples.obs.at[:, 1].set(123.0)
    other = batch._replace(
        samples=batch.samples._replace(obs=obs, next_z=-batch.samples.next_z), reward=batch.reward + 7,
        alive=1 - batch.alive, action=batch.action + 1, next_obs=jax.tree.map(lambda leaf: leaf - 5, batch.next_obs),
    )  # fmt: skip
    assert_close(actor_loss(algorithm, other, state), actor_loss(algorithm, batch, state), rtol=0)


# Learning ------------------------------------------------------------------------------------------------------------

ENV = Recall(k=8, cue="real")
HYPER = {
    "lanes": 4, "steps": 2, "width": 16, "size": 8, "batch_size": 16, "capacity": 1000, "learning_starts": 40,
    "learning_rate": 1e-2, "target_rate": 0.25,
}  # fmt: skip


def built(**hyper):
    return resolve("td3", ENV, memory="s2pg", hyper=HYPER | hyper)[1]


@functools.cache
def filled():
    """(training state with ten rows of random experience in each lane, a batch of it), for every algorithm here."""
    algorithm, rng = built(), np.random.default_rng(0)

    def numbers(*shape):
        return rng.uniform(-0.9, 0.9, (10, algorithm.lanes, *shape)).astype(np.float32)

    seen, after = ({name: numbers(size) for name, size in ENV.spec.views.items()} for _ in range(2))
    z, no, first = numbers(8), np.zeros((10, algorithm.lanes), bool), np.zeros((10, algorithm.lanes), bool)
    first[[0, 8]] = True
    decision, log_prob = Decision(numbers(1), z), Decision(numbers(), numbers())
    batch = Transition(seen, z, decision, log_prob, numbers(), no, no, after, z, first)
    batch = jax.tree.map(jnp.asarray, batch)
    state = quick(lambda key, batch: algorithm.store(algorithm.init(ENV.spec, (), key=key), batch))
    return state(jax.random.key(0), batch), jax.tree.map(lambda leaf: leaf[: algorithm.steps], batch)


def moved(new, old):
    return largest(jax.tree.map(jnp.subtract, new, old))


def counts(state):
    """Steps that Adam made: (actor's, critic's)."""
    return tuple(int(part[1][0].count) for part in state.learner.optimiser)


def two_steps(old, new):
    """Where a slow copy is that followed twice, a quarter of the way each time."""
    return old + (1 - 0.75**2) * (new - old)


def test_the_critic_learns_at_every_step_and_the_actor_at_every_other():
    algorithm, (state, _) = built(), filled()
    after, metrics = quick(algorithm.learn)(state, jax.random.key(1))
    assert counts(after) == (1, 2)
    assert int(after.updates) == 2
    # Adam's steps are of the size of the rate: the critic made two, the actor one.
    assert 0.8e-2 < moved(after.policy.kernel, state.policy.kernel) < 1.01e-2
    assert 1.2e-2 < moved(after.learner.critic, state.learner.critic) < 2.01e-2
    # The slow actor goes as far as in two steps, to where the actor is now.
    expected = jax.tree.map(two_steps, state.policy.kernel, after.policy.kernel)
    assert_close(after.learner.target.kernel, expected, atol=1e-6)
    # The slow critic is at c_0 + 0.25 (c_1 - c_0) and then a quarter of the way on to c_2; |c_1 - c_0| <= 0.01.
    first = jax.tree.map(
        lambda slow, old, new: (slow - 0.75 * old - 0.25 * new) / (0.75 * 0.25),
        after.learner.target.critic, state.learner.critic, after.learner.critic,
    )  # fmt: skip
    assert 0.8e-2 < largest(first) < 1.01e-2
    assert all(np.isfinite(value) for value in metrics.values())


def test_an_update_makes_the_gradient_steps_asked_for():
    algorithm, (state, batch) = built(gradient_steps=4, critic_first=2), filled()
    state = state._replace(learner=algorithm.init_learner(state.policy.kernel, state.learner.critic))
    after, metrics = quick(algorithm.update)(state, batch, (), jax.random.key(1))
    assert counts(after) == (2, 4)
    assert int(after.updates) == 4
    # `critic_first` lets the critic learn for the first two steps alone, so that the actor makes one step of two.
    assert 0.8e-2 < moved(after.policy.kernel, state.policy.kernel) < 1.01e-2
    assert moved(after.learner.critic, state.learner.critic) > 2.5e-2
    expected = jax.tree.map(two_steps, state.policy.kernel, after.policy.kernel)
    assert_close(after.learner.target.kernel, expected, atol=1e-6)
    assert all(np.shape(value) == () and np.isfinite(value) for value in metrics.values())


def test_slow_copies_follow_by_their_rate():
    slow, fast = {"w": jnp.array([1.0, -2.0])}, {"w": jnp.array([3.0, 2.0])}
    np.testing.assert_allclose(follow(slow, fast, 0.25)["w"], [1.5, -1.0], rtol=1e-6)
    np.testing.assert_array_equal(follow(slow, fast, 0.0)["w"], slow["w"])
    np.testing.assert_array_equal(follow(slow, fast, 1.0)["w"], fast["w"])
