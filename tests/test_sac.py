"""SAC: targets, losses and gradients on numbers worked out by hand, for a drawn, a missing and an unrolled state."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from s2pg.algorithms.base import Policy, TrainState
from s2pg.algorithms.offpolicy import Batch, draw, mean, regression, unfold
from s2pg.algorithms.sac import SAC, Learner
from s2pg.critics import Critic, Recipe
from s2pg.distributions import Distribution, Normal, PointMass, TanhNormal
from s2pg.kernel import Kernel, Step
from s2pg.memory import CarryRule, DrawRule, ReplaySample, UnrollRule
from s2pg.types import Decision
from toys import assert_close

# Optimisation costs more than these tests run.
FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def quick(function):
    return jax.jit(function, compiler_options=FAST)


# Toys, for tests of TD3 as well -------------------------------------------------------------------------------------


class Known(Distribution):
    """Draws mean + shift, always; the logarithm of its density at v is level + sum(v)."""

    mean: jax.Array
    shift: float = eqx.field(static=True)
    level: float = eqx.field(static=True)

    def sample(self, key):
        return self.mean + self.shift

    def log_prob(self, value):
        return self.level + jnp.sum(value)

    def entropy(self):
        raise AssertionError("off-policy algorithms draw what they need")

    def mode(self):
        return self.mean


class Linear(Kernel):
    """eta = keep z + push o, the mean of a is gain o + eta_1; a is drawn 0.1 above it, z' 0.2 above eta."""

    keep: jax.Array
    push: jax.Array
    gain: jax.Array

    def initial(self):
        return jnp.zeros(2)

    def embed(self, obs):
        return obs

    def advance(self, x, z):
        return self.keep * z + self.push * x[0]

    def emit(self, x, eta):
        return Step(Known(self.gain * x + eta[:1], 0.1, -1.0), Known(eta, 0.2, -2.0))


class Recomputed(Linear):
    """The same with a state that is not drawn."""

    def emit(self, x, eta):
        return Step(super().emit(x, eta).action, PointMass(eta))


class Memoryless(Linear):
    """The same without a state: the mean of a is gain o."""

    def initial(self):
        return ()

    def advance(self, x, z):
        return ()

    def emit(self, x, eta):
        return Step(Known(self.gain * x, 0.1, -1.0), ())


class LinearQ(Critic):
    """level + of_s s + of_z . z + of_a a + of_next . z', s being the view `critic`."""

    level: jax.Array
    of_s: jax.Array
    of_z: jax.Array
    of_a: jax.Array
    of_next: jax.Array
    reads: tuple[str, ...] = eqx.field(static=True, default=("critic",))

    def initial(self):
        return ()

    def advance(self, obs, h):
        return ()

    def __call__(self, obs, h, features, decision):
        drawn = self.of_next @ decision.state if jax.tree.leaves(decision.state) else 0.0
        known = self.level + self.of_s * obs["critic"][0] + self.of_a * decision.action[0]
        return known + self.of_z[: features.shape[0]] @ features + drawn


def pair(level, of_s, of_z, of_a, of_next):
    return LinearQ(*(jnp.asarray(part, float) for part in (level, of_s, of_z, of_a, of_next)))


def kernel(kind=Linear, keep=0.5, push=(0.2, -0.1), gain=0.3):
    return kind(jnp.asarray(keep, float), jnp.asarray(push, float), jnp.asarray(gain, float))


# Q_1 = 0.5 + 0.5 s + z_1 + z_2 + a + z'_1 - z'_2           Q_2 = 2 + s + 2 z_1 - a + z'_2
CRITICS = ([0.5, 2.0], [0.5, 1.0], [[1.0, 1.0], [2.0, 0.0]], [1.0, -1.0], [[1.0, -1.0], [0.0, 1.0]])
# Q_1' = 1 + s + z_1 + 2 a + z'_2                           Q_2' = 2 s + z_2 + a + z'_1
SLOW = ([1.0, 0.0], [1.0, 2.0], [[1.0, 0.0], [0.0, 1.0]], [2.0, 1.0], [[0.0, 1.0], [1.0, 0.0]])


def nothing(*_):
    raise AssertionError("the tests hand in networks of their own")


def column(*numbers):
    return jnp.asarray(numbers, float)[:, None]


def two_transitions(terminated=(True, False), stateful=True):
    """(o, s, a, r, o', s') = (1, 3, 0.3, 1, -1, 0.7) and (2, -1, -0.6, 2, 0.5, 2); stored z' that are far off."""
    o, after = column(1.0, 2.0), column(-1.0, 0.5)
    z = jnp.array([[0.4, 0.0], [-0.2, 0.6]], float) if stateful else ()
    stored = jnp.full((2, 2), 9.0) if stateful else ()
    valid = jnp.ones((2, 1), bool)
    return Batch(
        ReplaySample(jnp.stack([o, after], axis=1), valid, z, jax.tree.map(lambda leaf: leaf[:, None], stored)), {},
        {"policy": o[:, None], "critic": column(3.0, -1.0)[:, None]},
        {"policy": after[:, None], "critic": column(0.7, 2.0)[:, None]},
        column(0.3, -0.6)[:, None], column(1.0, 2.0), 1.0 - column(*terminated), valid, jnp.array([5, 8]),
    )  # fmt: skip


def two_segments(padding=(99.0, 88.0, 77.0, 66.0)):
    """Two samples of two rows, of which the very first row is padding; the first sample ends by termination.

    o = (-, 1, -1) and (2, 0.5, 0); s = (-, 3, 0.7) and (-1, 2, 1); a = (-, 0.3) and (-0.6, 0.1); r = (-, 1) and (2, 3).
    """
    o, s, a, r = padding
    seen = jnp.array([[o, 1.0, -1.0], [2.0, 0.5, 0.0]], float)[..., None]
    known = jnp.array([[s, 3.0, 0.7], [-1.0, 2.0, 1.0]], float)[..., None]
    valid = jnp.array([[False, True], [True, True]])
    z = jnp.array([[0.4, 0.0], [-0.2, 0.6]], float)
    return Batch(
        ReplaySample(seen, valid, z, jnp.full((2, 2, 2), 9.0)), {"policy": seen, "critic": known},
        {"policy": seen[:, :-1], "critic": known[:, :-1]}, {"policy": seen[:, 1:], "critic": known[:, 1:]},
        jnp.array([[a, 0.3], [-0.6, 0.1]], float)[..., None], jnp.array([[r, 1.0], [2.0, 3.0]], float),
        jnp.array([[1.0, 0.0], [1.0, 1.0]], float), valid, jnp.array([5, 8]),
    )  # fmt: skip


def graded_last(batch):
    """What is left of segments where their last rows alone are graded."""
    parts = {name: getattr(batch, name) for name in ("obs", "next_obs", "action", "reward", "alive", "mask")}
    return batch._replace(**jax.tree.map(lambda leaf: leaf[:, -1:], parts))


KEYS = jax.random.split(jax.random.key(0), 3)


# The drawn state -----------------------------------------------------------------------------------------------------
#
#   x = (o, z)         eta            z' drawn      a drawn              log pi(a)        log pi(z')
#   1, (0.4, 0)        (0.4, -0.1)    (0.6, 0.1)    0.3 + 0.4 + 0.1 = 0.8    -1 + 0.8 = -0.2  -2 + 0.7 = -1.3
#   2, (-0.2, 0.6)     (0.3, 0.1)     (0.5, 0.3)    0.6 + 0.3 + 0.1 = 1.0    -1 + 1.0 = 0     -2 + 0.8 = -1.2
#
#   x' = (o', z')
#   -1, (0.6, 0.1)     (0.1, 0.15)    (0.3, 0.35)   -0.3 + 0.1 + 0.1 = -0.1  -1.1             -2 + 0.65 = -1.35
#   0.5, (0.5, 0.3)    (0.35, 0.1)    (0.55, 0.3)   0.15 + 0.35 + 0.1 = 0.6  -0.4             -2 + 0.85 = -1.15

ALPHA = Decision(0.5, 0.25)


def sac(memory, **hyper):
    return SAC(memory, nothing, Recipe(nothing, ("critic",)), ("policy",), lanes=3, steps=1, discount=0.9, **hyper)


def training_state(kind=Linear, alpha=ALPHA):
    temperature = jax.tree.map(lambda a: jnp.log(jnp.asarray(a, float)), alpha)
    learner = Learner(pair(*CRITICS), pair(*SLOW), temperature, optimiser=())
    return TrainState(Policy(kernel(kind), {}), learner, (), jnp.zeros((), jnp.int32))


# An algorithm is an argument without leaves: what two tests ask of the same one is compiled once.


@quick
def target(algorithm, batch, state):
    unfolded = unfold(algorithm.memory, state.policy.kernel, batch, KEYS[0])
    return algorithm.target(state, batch, unfolded, KEYS[1])


@quick
def _critic_loss(algorithm, batch, state, y):
    def loss(critic):
        kernel = state.policy.kernel
        unfolded = unfold(algorithm.memory, kernel, batch, KEYS[0])
        decision = algorithm.memory.halves(batch.action, unfolded.next_z)
        return regression(critic, kernel, batch, unfolded.z, decision, y)

    return jax.value_and_grad(loss)(state.learner.critic)


def critic_loss(algorithm, batch, state, y):
    """(loss, gradient of the critics)."""
    return _critic_loss(algorithm, batch, state, jnp.asarray(y, float))


@quick
def actor_loss(algorithm, batch, state):
    """((loss, (samples under the policy, mean of log pi)), gradient of the kernel)."""
    slope = jax.value_and_grad(algorithm.actor_loss, has_aux=True)
    (loss, (unfolded, log_prob)), gradient = slope(state.policy.kernel, state, batch, *KEYS[:2])
    return (loss, (unfolded, jax.tree.map(lambda rows: mean(rows, batch.mask), log_prob))), gradient


@pytest.mark.parametrize("state_entropy", [False, True])
def test_the_target_is_the_reward_alone_after_termination_and_else_soft_and_bootstrapped(state_entropy):
    algorithm = sac(DrawRule(), target_state_entropy=state_entropy)
    got = target(algorithm, two_transitions(), training_state())
    # At s' = 2, z' = (0.5, 0.3), a' = 0.6, z'' = (0.55, 0.3).
    q_1 = 1 + 2 + 0.5 + 2 * 0.6 + 0.3  # 5.0
    q_2 = 2 * 2 + 0.3 + 0.6 + 0.55  # 5.45
    bonus = 0.5 * 0.4 + state_entropy * 0.25 * 1.15
    np.testing.assert_allclose(got, [[1.0], [2 + 0.9 * (min(q_1, q_2) + bonus)]], rtol=1e-5)
    np.testing.assert_allclose(got[1], 6.93875 if state_entropy else 6.68, rtol=1e-5)


def test_a_transition_that_was_truncated_bootstraps_and_takes_the_lower_critic():
    got = target(sac(DrawRule()), two_transitions(terminated=(False, False)), training_state())
    # The first one at s' = 0.7, z' = (0.6, 0.1), a' = -0.1, z'' = (0.3, 0.35): this time Q_2' is lower.
    q_1 = 1 + 0.7 + 0.6 - 0.2 + 0.35  # 2.45
    q_2 = 1.4 + 0.1 - 0.1 + 0.3  # 1.7
    np.testing.assert_allclose(got, [[1 + 0.9 * (min(q_1, q_2) + 0.5 * 1.1)], [6.68]], rtol=1e-5)


@pytest.mark.parametrize(
    ("refresh", "next_z"),
    [
        ({"refresh": 0.0}, [9.0, 9.0]),  # the stored one
        ({"refresh_noise": False}, [0.3, 0.1]),  # the mode
        ({"refresh": 0.25}, [0.75 * 9 + 0.25 * 0.5, 0.75 * 9 + 0.25 * 0.3]),
        ({"refresh_first": False}, [9.0, 9.0]),  # drawn anew, but not yet for this step
    ],
    ids=str,
)
def test_the_target_starts_from_the_refreshed_state_if_it_is_to(refresh, next_z):
    got = target(sac(DrawRule(**refresh)), two_transitions(), training_state())
    z = np.array(next_z)
    drawn = 0.5 * z + [0.1, -0.05] + 0.2
    action = 0.3 * 0.5 + (0.5 * z[0] + 0.1) + 0.1
    lower = min(1 + 2 + z[0] + 2 * action + drawn[1], 2 * 2 + z[1] + action + drawn[0])
    np.testing.assert_allclose(got, [[1.0], [2 + 0.9 * (lower - 0.5 * (-1 + action))]], rtol=1e-5)


def test_the_critic_loss_is_half_the_squared_errors_of_both_critics():
    loss, gradient = critic_loss(sac(DrawRule()), two_transitions(), training_state(), [[1.0], [6.68]])
    # At s = 3, z = (0.4, 0), a = 0.3 and z' = (0.6, 0.1), and at -1, (-0.2, 0.6), -0.6, (0.5, 0.3).
    q_1 = np.array([0.5 + 1.5 + 0.4 + 0.3 + 0.5, 0.5 - 0.5 + 0.4 - 0.6 + 0.2])  # 3.2, 0
    q_2 = np.array([2 + 3 + 0.8 - 0.3 + 0.1, 2 - 1 - 0.4 + 0.6 + 0.3])  # 5.6, 1.5
    errors = np.stack([q_1, q_2]) - np.array([1.0, 6.68])
    np.testing.assert_allclose(loss, 0.5 * (errors**2).sum() / 2, rtol=1e-5)
    np.testing.assert_allclose(loss, (4.84 + 21.16 + 44.6224 + 26.8324) / 4, rtol=1e-5)
    np.testing.assert_allclose(gradient.level, errors.mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(gradient.of_a, (errors * [0.3, -0.6]).mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(gradient.of_next, errors @ np.array([[0.6, 0.1], [0.5, 0.3]]) / 2, rtol=1e-5)


@pytest.mark.parametrize("value", ["min", "mean", "first"])
def test_the_actor_weighs_entropies_of_both_halves_against_what_the_critics_say(value):
    (loss, (_, log_prob)), _ = actor_loss(sac(DrawRule(), actor_value=value), two_transitions(), training_state())
    q_1 = np.array([0.5 + 1.5 + 0.4 + 0.8 + 0.5, 0.5 - 0.5 + 0.4 + 1.0 + 0.2])  # 3.7, 1.6
    q_2 = np.array([2 + 3 + 0.8 - 0.8 + 0.1, 2 - 1 - 0.4 - 1.0 + 0.3])  # 5.1, -0.1
    judged = {"min": np.array([3.7, -0.1]), "mean": (q_1 + q_2) / 2, "first": q_1}[value]
    cost = np.array([0.5 * -0.2 + 0.25 * -1.3, 0.5 * 0 + 0.25 * -1.2])
    np.testing.assert_allclose(loss, (cost - judged).mean(), rtol=1e-5)
    np.testing.assert_allclose(loss, {"min": -2.1625, "mean": -2.9375, "first": -3.0125}[value], rtol=1e-5)
    np.testing.assert_allclose(log_prob.action, -0.1, rtol=1e-5)
    np.testing.assert_allclose(log_prob.state, -1.25, rtol=1e-5)


def test_the_actors_gradient_runs_through_both_halves_of_what_was_drawn():
    _, gradient = actor_loss(sac(DrawRule()), two_transitions(), training_state())
    # Derivatives of the loss by a and z' of each row: alpha times 1, less the slope of the lower critic.
    by_a = np.array([0.5 - 1, 0.5 + 1])
    by_next = np.array([[0.25 - 1, 0.25 + 1], [0.25 - 0, 0.25 - 1]])
    by_eta = by_next + by_a[:, None] * [1.0, 0.0]
    o, z = np.array([1.0, 2.0]), np.array([[0.4, 0.0], [-0.2, 0.6]])
    np.testing.assert_allclose(gradient.gain, (by_a * o).mean(), rtol=1e-5)  # 1.25
    np.testing.assert_allclose(gradient.push, (by_eta * o[:, None]).mean(axis=0), rtol=1e-5)  # 1.125, -0.125
    np.testing.assert_allclose(gradient.keep, (by_eta * z).sum(axis=1).mean(), rtol=1e-5)  # -0.65


# Temperatures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of_logarithm", [True, False])
def test_the_temperature_loss_pulls_entropies_to_what_is_wanted(of_logarithm):
    algorithm = sac(DrawRule(), log_alpha_loss=of_logarithm, entropy_per_action=-0.5, entropy_per_state=-1.5)
    state, batch = training_state(), two_transitions()
    wanted = algorithm.wanted(batch, unfold(algorithm.memory, state.policy.kernel, batch, KEYS[0]))
    assert_close(wanted, Decision(-0.5, -3.0), rtol=1e-6)  # of one action and two numbers of z'
    log_prob = Decision(jnp.asarray(-0.1), jnp.asarray(-1.25))
    loss, gradient = jax.value_and_grad(algorithm.temperature_loss)(state.learner.temperature, log_prob, wanted)
    # Entropies 0.1 and 1.25 are above what is wanted, so that both temperatures are to fall.
    excess = np.array([0.1 + 0.5, 1.25 + 3.0])
    alpha = np.array([0.5, 0.25])
    np.testing.assert_allclose(loss, (np.log(alpha) if of_logarithm else alpha) @ excess, rtol=1e-5)
    np.testing.assert_allclose([*gradient], excess if of_logarithm else alpha * excess, rtol=1e-5)


@pytest.mark.parametrize("of_logarithm", [True, False])
def test_too_little_entropy_raises_a_temperature(of_logarithm):
    algorithm = sac(CarryRule(), log_alpha_loss=of_logarithm)
    gradient = jax.grad(algorithm.temperature_loss)(
        Decision(jnp.asarray(-1.0)), Decision(jnp.asarray(3.0)), Decision(-1.0)
    )
    assert float(gradient.action) < 0


def test_without_a_drawn_state_there_is_one_temperature():
    algorithm = sac(CarryRule(), entropy_per_action=-0.5, log_alpha_loss=False)
    state, batch = training_state(Memoryless, Decision(0.5)), two_transitions(stateful=False)
    wanted = algorithm.wanted(batch, unfold(algorithm.memory, state.policy.kernel, batch, KEYS[0]))
    assert wanted.state == ()
    loss = algorithm.temperature_loss(state.learner.temperature, Decision(jnp.asarray(-0.45)), wanted)
    np.testing.assert_allclose(loss, 0.5 * (0.45 + 0.5), rtol=1e-5)


# A plain rule --------------------------------------------------------------------------------------------------------
#
#   o = 1: a drawn 0.3 + 0.1 = 0.4, log pi -0.6     o = 2: 0.7, -0.3     o' = 0.5: 0.25, -0.75     o' = -1: -0.2, -1.2


def plain(**hyper):
    return sac(CarryRule(), **hyper), training_state(Memoryless, Decision(0.5))


@pytest.mark.parametrize("state_entropy", [False, True])
def test_without_memory_the_target_is_that_of_plain_sac(state_entropy):
    algorithm, state = plain(target_state_entropy=state_entropy)
    later = 2 + 0.9 * (min(1 + 2 + 2 * 0.25, 4 + 0.25) + 0.5 * 0.75)  # 5.4875
    first = 1 + 0.9 * (min(1 + 0.7 - 2 * 0.2, 1.4 - 0.2) + 0.5 * 1.2)  # where it was but truncated
    for terminated, expected in (((True, False), [[1.0], [later]]), ((False, False), [[first], [later]])):
        got = target(algorithm, two_transitions(terminated, stateful=False), state)
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_without_memory_the_losses_are_those_of_plain_sac():
    algorithm, state = plain()
    batch = two_transitions(stateful=False)
    loss, _ = critic_loss(algorithm, batch, state, [[1.0], [5.4875]])
    q_1 = np.array([0.5 + 1.5 + 0.3, 0.5 - 0.5 - 0.6])
    q_2 = np.array([2 + 3 - 0.3, 2 - 1 + 0.6])
    np.testing.assert_allclose(loss, ((np.stack([q_1, q_2]) - [1.0, 5.4875]) ** 2).sum() / 4, rtol=1e-5)
    np.testing.assert_allclose(loss, 16.887578125, rtol=1e-5)
    (loss, (_, log_prob)), gradient = actor_loss(algorithm, batch, state)
    # Drawn 0.4 and 0.7: Q_1 = 2.4 and 0.7, Q_2 = 4.6 and 0.3.
    np.testing.assert_allclose(loss, ((0.5 * -0.6 - 2.4) + (0.5 * -0.3 - 0.3)) / 2, rtol=1e-5)
    np.testing.assert_allclose(log_prob.action, -0.45, rtol=1e-5)
    assert log_prob.state == ()
    np.testing.assert_allclose(gradient.gain, (1 * (0.5 - 1) + 2 * (0.5 + 1)) / 2, rtol=1e-5)


# A state that is unrolled, with padding ------------------------------------------------------------------------------
#
#   sample, row   o     z             eta          a drawn                   log pi(a)
#   1, 2          1     (0.4, 0)      (0.4, -0.1)  0.3 + 0.4 + 0.1 = 0.8     -0.2
#   2, 1          2     (-0.2, 0.6)   (0.3, 0.1)   0.6 + 0.3 + 0.1 = 1.0     0
#   2, 2          0.5   (0.3, 0.1)    (0.25, 0)    0.15 + 0.25 + 0.1 = 0.5   -0.5
#   2, after      0     (0.25, 0)     (0.125, 0)   0.125 + 0.1 = 0.225       -0.775

UNROLLED = UnrollRule(2)


def unrolled(**hyper):
    return sac(UNROLLED, **hyper), training_state(Recomputed, Decision(0.5))


# Ahead of (2, 1) lies s' = 2, z' = (0.3, 0.1), a' = 0.5; ahead of (2, 2) lies 1, (0.25, 0), 0.225; (1, 2) has ended.
FIRST_TARGET = 2 + 0.9 * (min(1 + 2 + 0.3 + 1.0, 4 + 0.1 + 0.5) + 0.5 * 0.5)  # 6.095
SECOND_TARGET = 3 + 0.9 * (min(1 + 1 + 0.25 + 0.45, 2 + 0 + 0.225) + 0.5 * 0.775)  # 5.35125


def test_an_unrolled_sample_bootstraps_from_its_own_states():
    algorithm, state = unrolled()
    got = target(algorithm, two_segments(), state)
    np.testing.assert_allclose(got[1], [FIRST_TARGET, SECOND_TARGET], rtol=1e-5)
    np.testing.assert_allclose(got[0, 1], 1.0, rtol=1e-5)


def test_padding_of_unrolled_samples_counts_in_no_loss():
    algorithm, state = unrolled()
    (loss, (_, log_prob)), gradient = actor_loss(algorithm, two_segments(), state)
    # Q_1 = 3.2, 1.4, 2.4 and Q_2 = 5.0, -0.4, 4.1.
    np.testing.assert_allclose(loss, (-0.1 - 3.2 + 0.4 - 0.25 - 2.4) / 3, rtol=1e-5)
    np.testing.assert_allclose(log_prob.action, -0.7 / 3, rtol=1e-5)
    y = [[55.0, 1.0], [FIRST_TARGET, SECOND_TARGET]]
    loss_of_critics, gradient_of_critics = critic_loss(algorithm, two_segments(), state, y)
    # Q_1 = 2.7, -0.2, 2.0 and Q_2 = 5.5, 1.2, 4.5 of the stored actions.
    errors = np.array([[2.7, -0.2, 2.0], [5.5, 1.2, 4.5]]) - [1.0, FIRST_TARGET, SECOND_TARGET]
    np.testing.assert_allclose(loss_of_critics, 0.5 * (errors**2).sum() / 3, rtol=1e-5)
    np.testing.assert_allclose(gradient_of_critics.level, errors.sum(axis=1) / 3, rtol=1e-5)
    # Whatever stands in the padding.
    other = two_segments(padding=(-5.0, 1e3, 0.5, -1e4))
    (other_loss, (_, other_log_prob)), other_gradient = actor_loss(algorithm, other, state)
    y[0][0] = -7e3
    found = other_loss, other_log_prob, other_gradient, critic_loss(algorithm, other, state, y)
    assert_close(found, (loss, log_prob, gradient, (loss_of_critics, gradient_of_critics)), rtol=1e-6)
    np.testing.assert_array_equal(target(algorithm, other, state)[1], target(algorithm, two_segments(), state)[1])


def test_an_unrolled_gradient_runs_through_the_states_of_the_segment_and_not_into_the_critics_z():
    algorithm, state = unrolled()
    _, gradient = actor_loss(algorithm, two_segments(), state)
    by_a = np.array([0.5 - 1, 0.5 + 1, 0.5 - 1])  # alpha less the slope of the lower critic
    np.testing.assert_allclose(gradient.gain, by_a @ [1.0, 2.0, 0.5] / 3, rtol=1e-5)
    # d eta_1: by push_1 it is o, by keep it is z_1, and for the last row keep times that of the row before.
    np.testing.assert_allclose(gradient.push, [by_a @ [1.0, 2.0, 0.5 + 0.5 * 2.0] / 3, 0.0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(gradient.keep, by_a @ [0.4, -0.2, 0.3 + 0.5 * -0.2] / 3, rtol=1e-5)


def test_the_loss_on_the_last_row_alone_still_unrolls_those_before():
    algorithm, state = sac(UnrollRule(2, last=True)), training_state(Recomputed, Decision(0.5))
    batch = graded_last(two_segments())
    np.testing.assert_allclose(target(algorithm, batch, state), [[1.0], [SECOND_TARGET]], rtol=1e-5)
    (loss, _), gradient = actor_loss(algorithm, batch, state)
    np.testing.assert_allclose(loss, (-0.1 - 3.2 - 0.25 - 2.4) / 2, rtol=1e-5)
    np.testing.assert_allclose(gradient.keep, -0.5 * (0.4 + 0.2) / 2, rtol=1e-5)


# Squashed normals ----------------------------------------------------------------------------------------------------


class Squashed(Linear):
    """Both halves behind a tanh, as SAC's own heads have them."""

    def emit(self, x, eta):
        mean = self.gain * x + eta[:1]
        return Step(TanhNormal(Normal(mean, jnp.full(1, -0.5))), TanhNormal(Normal(eta, jnp.full(2, -1.0))))


@functools.cache
def squashed():
    """(what temperatures see, samples under the policy, draws from it) of each transition 4000 times over."""
    algorithm = sac(DrawRule())
    batch = jax.tree.map(lambda leaf: jnp.repeat(leaf, 4000, axis=0), two_transitions())

    def run(state, batch):
        _, (unfolded, log_prob) = algorithm.actor_loss(state.policy.kernel, state, batch, *KEYS[:2])
        return log_prob, unfolded, draw(algorithm.memory, unfolded.now, KEYS[1])

    return quick(run)(training_state(Squashed), batch._replace(row=jnp.arange(8000)))


def test_the_entropies_that_temperatures_see_are_those_of_squashed_normals():
    """Against the entropies in closed form: differential entropy of the normal plus E log(1 - tanh^2)."""
    log_prob = squashed()[0]

    def entropy(mean, std):
        x = mean + std * np.linspace(-8, 8, 20_001)
        weight = scipy.stats.norm(mean, std).pdf(x) * (x[1] - x[0])
        return scipy.stats.norm(mean, std).entropy() + weight @ np.log(1 / np.cosh(x) ** 2)

    of_action = [entropy(mean, np.exp(-0.5)) for mean in (0.7, 0.9)]
    of_state = [entropy(mean, np.exp(-1.0)) for mean in (0.4, -0.1, 0.3, 0.1)]
    np.testing.assert_allclose(-np.mean(log_prob.action), np.mean(of_action), atol=0.05)
    np.testing.assert_allclose(-np.mean(log_prob.state), np.sum(of_state) / 2, atol=0.05)


def test_every_row_of_a_batch_gets_noise_of_its_own_and_its_halves_too():
    number = 4000  # rows that are alike
    _, unfolded, drawn = squashed()
    decision, log_prob = jax.tree.map(lambda leaf: leaf[:number], drawn)
    parts = [decision.action[:, 0], decision.state[:, 0], unfolded.fresh[:number, 0]]
    drawn = np.arctanh(np.concatenate(parts, axis=1).astype(np.float64))
    assert len(np.unique(drawn)) > 0.996 * drawn.size
    assert np.abs(np.corrcoef(drawn.T) - np.eye(5)).max() < 4 / np.sqrt(number)
    # ... and with the densities of what was drawn, by the change of variables in SciPy.
    means, stds = np.array([0.7, 0.4, -0.1, 0.4, -0.1]), np.exp([-0.5, -1.0, -1.0, -1.0, -1.0])
    density = scipy.stats.norm(means, stds).logpdf(drawn) - np.log(1 / np.cosh(drawn) ** 2)
    np.testing.assert_allclose(log_prob.action[:, 0], density[:, 0], atol=2e-3)
    np.testing.assert_allclose(log_prob.state[:, 0], density[:, 1:3].sum(axis=1), atol=2e-3)
    np.testing.assert_allclose(drawn.mean(axis=0), means, atol=4 * stds.max() / np.sqrt(number))


def test_a_row_drawn_twice_in_one_batch_is_refreshed_to_the_same_state():
    refreshed = quick(functools.partial(unfold, DrawRule()))
    twice = jax.tree.map(lambda leaf: jnp.repeat(leaf[:1], 2, axis=0), two_transitions())
    fresh = [
        refreshed(kernel(Squashed), twice._replace(row=jnp.array(rows)), KEYS[0]).fresh for rows in ((7, 7), (7, 6))
    ]
    np.testing.assert_array_equal(fresh[0][0], fresh[0][1])
    assert np.abs(fresh[1][0] - fresh[1][1]).min() > 0
