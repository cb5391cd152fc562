"""TRPO: natural steps with a closed form, the line search on numbers worked out by hand, and the radius it keeps."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from s2pg.algorithms.base import normalised
from s2pg.algorithms.onpolicy import Learning, Networks, batch_values, evaluations, future
from s2pg.algorithms.trpo import TRPO, Batch, Measurement, divergence, line_search, natural_step
from s2pg.critics import Critic
from s2pg.distributions import Categorical, Normal
from s2pg.envs.recall import Recall
from s2pg.errors import UserError
from s2pg.heads import plain_state_head
from s2pg.kernel import Kernel, Step
from s2pg.memory import CarryRule, DrawRule, NoisyState, PathwiseRule
from s2pg.rollout import collect, start
from s2pg.types import Decision, Transition
from test_learning import SEEDS, SOLVED, scores
from toys import CONTINUOUS, DISCRETE, TINY, assert_close, built, largest, resolve, shaken, two_batches, with_kernel

# A policy that ignores what it sees: a ~ N(mean, exp(log_std)), z' ~ N(eta, sigma) --------------------------------


class Blind(Kernel):
    mean: jax.Array
    log_std: jax.Array
    eta: jax.Array

    def initial(self):
        return jnp.zeros(2)

    def embed(self, obs):
        return obs

    def advance(self, x, z):
        return self.eta

    def emit(self, x, eta):
        head = plain_state_head(np.log(0.5), False)(2, 1, jax.random.key(0))
        return Step(Normal(self.mean, jax.lax.stop_gradient(self.log_std)), head(eta, eta))


class Memoryless(Blind):
    def initial(self):
        return ()

    def emit(self, x, eta):
        return Step(Normal(self.mean, jax.lax.stop_gradient(self.log_std)), ())


class LinearCritic(Critic):
    """V = slope . z."""

    slope: jax.Array
    reads: tuple[str, ...] = ()

    def initial(self):
        return ()

    def advance(self, obs, h):
        return ()

    def __call__(self, obs, h, features, decision):
        return self.slope @ features if features.shape[0] else jnp.zeros(())


SIGMA, MEAN, ETA, SLOPE = jnp.array([0.5, 2.0]), jnp.array([0.3, -0.1]), jnp.array([0.4, -0.2]), jnp.array([2.0, -3.0])
ACTIONS = jnp.array([[0.8, 1.9], [-0.2, -0.1], [9.0, 9.0]])  # the last one is padding
ADVANTAGES = jnp.array([1.0, -1.0, 50.0])
VALID = jnp.array([[True], [True], [False]])


def trpo(memory, **hyper):
    def nothing(*_):
        raise AssertionError("the tests hand in networks of their own")

    return TRPO(memory, nothing, nothing, ("policy",), lanes=3, steps=1, **hyper)


def blind_batch(algorithm, kind, state=(), z=(), next_z=(), terminated=(False, True, False)):
    """(networks, batch) of three samples of one step, the third of them padding."""
    networks = Networks(kind(MEAN, jnp.log(SIGMA), ETA), LinearCritic(SLOPE))
    obs, never = {"policy": jnp.zeros((3, 1, 1))}, jnp.zeros((3, 1), bool)
    row = Transition(
        obs, z, Decision(ACTIONS[:, None], state), Decision(jnp.zeros((3, 1))), jnp.zeros((3, 1)),
        jnp.asarray(terminated)[:, None], never, obs, next_z, never,
    )  # fmt: skip
    piece = Learning(row, ADVANTAGES[:, None], jnp.zeros((3, 1)), ())
    old = evaluations(algorithm.memory, networks.kernel, row, algorithm.reads, VALID)
    ahead = future(networks, old.next_z, (), row, algorithm.discount)
    return networks, Batch(piece, VALID, old, (), ahead, jnp.asarray(algorithm.pathwise_weight / 4.0))


def gradient_of(algorithm, networks, batch):
    return jax.grad(lambda kernel: algorithm.measure(networks._replace(kernel=kernel), batch).objective)(
        networks.kernel
    )


# grad of E[ratio A] in the mean: the mean over valid rows of A (a - m) / s^2.
GRADIENT = np.asarray((ACTIONS[0] - MEAN) - (ACTIONS[1] - MEAN)) / 2 / np.asarray(SIGMA) ** 2


def test_the_objective_is_the_one_worked_out_by_hand_and_leaves_padding_out():
    algorithm = trpo(CarryRule(), entropy_action=0.1)
    networks, batch = blind_batch(algorithm, Memoryless)
    moved = networks._replace(kernel=Memoryless(MEAN + jnp.array([0.5, 0.0]), jnp.log(SIGMA), ETA))
    found = algorithm.measure(moved, batch)
    # log ratio of an action when the first mean moves by s: (a - m) / s - 1/2, and (a - m) / s is 1 and -1.
    surrogate = (np.exp(0.5) - np.exp(-1.5)) / 2
    entropy = np.log(np.asarray(SIGMA)).sum() + 1 + np.log(2 * np.pi)
    np.testing.assert_allclose(found.metrics["policy_loss"], -surrogate, rtol=1e-5)
    np.testing.assert_allclose(found.objective, surrogate + 0.1 * entropy, rtol=1e-5)
    np.testing.assert_allclose(found.kl, 0.5, rtol=1e-5)  # one standard deviation


def test_the_natural_step_of_a_normal_has_its_closed_form():
    algorithm, delta = trpo(CarryRule()), 0.02
    networks, batch = blind_batch(algorithm, Memoryless)
    gradient = gradient_of(algorithm, networks, batch)
    np.testing.assert_allclose(gradient.mean, GRADIENT, rtol=1e-5)
    fisher = algorithm.fisher(networks.kernel, batch)
    # F = diag(1 / s^2): the natural direction is s^2 g, of which sqrt(2 delta) standard deviations are taken.
    step, residual = natural_step(fisher, gradient, delta, 1e-6, 10, 1e-6)
    whitened = np.asarray(SIGMA) * GRADIENT
    expected = np.sqrt(2 * delta) * np.asarray(SIGMA) * whitened / np.linalg.norm(whitened)
    np.testing.assert_allclose(step.mean, expected, rtol=1e-3)
    assert largest((step.eta, step.log_std)) == 0 and float(residual) < 1e-3
    # The KL of such a step is delta exactly, since it is quadratic in the mean.
    moved = jax.tree.map(jnp.add, networks.kernel, step)
    np.testing.assert_allclose(algorithm.measure(networks._replace(kernel=moved), batch).kl, delta, rtol=1e-3)


def test_the_radius_is_shared_by_both_halves_of_a_drawn_decision():
    algorithm, z = trpo(DrawRule()), jnp.zeros((3, 1, 2))
    drawn = jnp.array([[0.9, -0.2], [0.4, 0.3], [7.0, 7.0]])[:, None]
    networks, batch = blind_batch(algorithm, Blind, drawn, z, drawn)
    gradient = gradient_of(algorithm, networks, batch)
    slope = np.asarray((drawn[0, 0] - ETA) - (drawn[1, 0] - ETA)) / 2 / 0.25
    np.testing.assert_allclose(gradient.eta, slope, rtol=1e-5)
    step, _ = natural_step(algorithm.fisher(networks.kernel, batch), gradient, 0.02, 1e-6, 10, 1e-6)
    whitened = np.concatenate([np.asarray(SIGMA) * GRADIENT, 0.5 * slope])
    expected = np.sqrt(2 * 0.02) * np.concatenate([SIGMA, [0.5, 0.5]]) * whitened / np.linalg.norm(whitened)
    np.testing.assert_allclose(np.concatenate([step.mean, step.eta]), expected, rtol=1e-3)
    moved = networks._replace(kernel=jax.tree.map(jnp.add, networks.kernel, step))
    np.testing.assert_allclose(algorithm.measure(moved, batch).kl, 0.02, rtol=1e-3)


def test_under_pathwise_the_state_follows_the_critic_and_half_its_drift_counts_as_divergence():
    algorithm, z = trpo(PathwiseRule(), discount=0.5, pathwise_weight=0.6), jnp.zeros((3, 1, 2))
    drawn = NoisyState(jnp.broadcast_to(ETA, (3, 1, 2)), jnp.full((3, 1, 2), 0.3))
    networks, batch = blind_batch(algorithm, Blind, drawn, z, drawn.mean + 0.3)
    # One of the two valid rows has ended: half of w gamma dV/dz' / std(A).
    np.testing.assert_allclose(
        gradient_of(algorithm, networks, batch).eta, 0.5 * 0.6 * 0.5 * np.asarray(SLOPE) / 4.0, rtol=1e-5
    )
    moved = networks._replace(kernel=Blind(MEAN, jnp.log(SIGMA), ETA + jnp.array([0.1, 0.0])))
    found = algorithm.measure(moved, batch)
    np.testing.assert_allclose(found.metrics["drift"], (0.1 / 0.5) ** 2, rtol=1e-4)
    np.testing.assert_allclose(found.kl, 0.5 * (0.1 / 0.5) ** 2, rtol=1e-4)


def test_a_half_that_is_not_decided_on_has_no_divergence():
    parts = [Categorical(jnp.log(jnp.array([a, 1.0]))) for a in (1.0, 3.0)]
    parts += [Normal(jnp.array([m]), jnp.zeros(1)) for m in (0.0, 1.0)]
    one, two, state, shifted = jax.tree.map(lambda leaf: leaf[None, None], parts)
    action = 0.5 * np.log(0.5 / 0.75) + 0.5 * np.log(0.5 / 0.25)
    np.testing.assert_allclose(divergence(Decision(one), Decision(two)), [[action]], rtol=1e-5)
    np.testing.assert_allclose(divergence(Decision(one, state), Decision(two, shifted)), [[action + 0.5]], rtol=1e-5)


# Conjugate gradients -------------------------------------------------------------------------------------------------


@functools.cache
def batches(label, env):
    algorithm = built(label, env, algorithm="trpo")
    return two_batches(algorithm, env)


def networks_of(state):
    return Networks(state.policy.kernel, state.learner.critic)


def gathered(algorithm, state, batch, seed=0):
    batch = normalised(state.policy.normaliser, batch)
    networks = networks_of(state)
    values, _ = batch_values(networks, state.learner.critic_memory, batch)
    advantage = jax.random.normal(jax.random.key(seed), batch.reward.shape)
    return algorithm.gather(networks, Learning(batch, advantage, values.value, values.h))


@pytest.mark.parametrize("label", ["s2pg", pytest.param("bptt-3", marks=pytest.mark.slow)])
def test_conjugate_gradients_agree_with_a_dense_solve_of_the_explicit_fisher_matrix(label):
    algorithm = built(label, CONTINUOUS, algorithm="trpo")
    state, _, batch = batches(label, CONTINUOUS)

    def explicit(state, batch):
        batch = gathered(algorithm, state, batch)
        flat, back = ravel_pytree(state.policy.kernel)
        gradient = gradient_of(algorithm, networks_of(state), batch)
        step, residual = natural_step(algorithm.fisher(state.policy.kernel, batch), gradient, 0.01, 0.1, 300, 1e-6)

        def whitened(theta):
            """Of a normal, the Fisher matrix of (m, log s) is diag(1 / s^2, 2)."""
            now = algorithm.halves(
                evaluations(algorithm.memory, back(theta), batch.piece.transition, algorithm.reads, batch.valid)
            )
            parts = [
                part
                for half in now
                if half != ()
                for part in (half.mean * jnp.exp(-jax.lax.stop_gradient(half.log_std)), 2**0.5 * half.log_std)
            ]
            return jnp.concatenate(parts, axis=-1) * batch.old.mask[..., None]

        return jax.jacfwd(whitened)(flat), ravel_pytree(gradient)[0], ravel_pytree(step)[0], residual

    jacobian, gradient, step, residual = (np.asarray(part, np.float64) for part in jax.jit(explicit)(state, batch))
    fisher = np.einsum("snip,sniq->pq", jacobian, jacobian) / batch.reward.size
    damped = fisher + 0.1 * np.eye(len(gradient))
    x = np.linalg.solve(damped, gradient)
    expected = np.sqrt(2 * 0.01 / (x @ damped @ x)) * x
    np.testing.assert_allclose(step, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
    assert float(residual) < 1e-3


def test_small_eigenvalues_and_many_parameters_are_no_reason_to_give_up():
    # Of 60,000 parameters only the first have any curvature; lineax alone would call that singular.
    weights = jnp.where(jnp.arange(60_000) < 3, jnp.array(1e-3), 0.0)
    gradient = 1e-6 * jnp.where(jnp.arange(60_000) < 6, 1.0, 0.0)
    step, residual = jax.jit(lambda: natural_step(lambda v: weights * v, gradient, 0.01, 1e-3, 10, 1e-5))()
    x = np.r_[[1 / 2e-3] * 3, [1 / 1e-3] * 3]
    expected = np.sqrt(0.02 / (3 * 2e-3 * x[0] ** 2 + 3 * 1e-3 * x[3] ** 2)) * x
    np.testing.assert_allclose(step[:6], expected, rtol=1e-3)
    assert float(residual) < 1e-3


def test_without_a_gradient_there_is_no_step():
    step, _ = natural_step(lambda v: v, jnp.zeros(3), 0.01, 0.1, 10, 1e-4)
    np.testing.assert_array_equal(step, [0.0, 0.0, 0.0])


# The line search, on L = b x - x^2 and D = x^2 / 2 around x = 0 ------------------------------------------------------


def searched(best, step, radius, attempts=10):
    def measure(x):
        return Measurement(best * x - x**2, x**2 / 2, {"here": x})

    start, step = jnp.zeros(()), jnp.asarray(step)
    return jax.jit(lambda: line_search(measure, start, measure(start), step, radius, attempts))()


@pytest.mark.parametrize(
    ("best", "step", "radius", "fraction"),
    [
        (4.0, 1.0, 0.5, 1.0),  # D = 1/2, just within
        (4.0, 1.0, 0.499, 0.5),  # without slack
        (1.0, 1.0, 10.0, 0.5),  # L(1) = 0 does not improve
        (1.0, 3.0, 10.0, 0.25),  # L(3) < 0, L(1.5) < 0, L(0.75) > 0
        (4.0, 8.0, 0.02, 1 / 64),  # D(1/4) > 0.02 >= D(1/8)
    ],
)
def test_the_line_search_halves_until_the_objective_improves_within_the_radius(best, step, radius, fraction):
    x, found, seen = searched(best, step, radius)
    assert float(found) == fraction and float(x) == fraction * step == float(seen.metrics["here"])
    np.testing.assert_allclose(seen.metrics["improvement"], best * x - x**2, rtol=1e-6)
    np.testing.assert_allclose(seen.kl, x**2 / 2, rtol=1e-6)


@pytest.mark.parametrize(("best", "step"), [(-1.0, 1.0), (1.0, 0.0), (1.0, np.nan), (np.nan, 1.0)])
def test_where_no_step_is_good_nothing_moves(best, step):
    x, fraction, seen = searched(best, step, 1.0)
    assert float(x) == 0 and float(fraction) == 0 and float(seen.kl) == 0


def test_only_so_many_halvings_are_tried():
    assert [float(searched(1.0, 3.0, 10.0, attempts)[1]) for attempts in (1, 2, 3)] == [0, 0, 0.25]


# The update ----------------------------------------------------------------------------------------------------------

METRICS = {
    "policy_loss", "value_loss", "entropy", "kl", "accepted", "step_fraction", "improvement", "cg_residual",
    "actor_gradient", "explained_variance", "value", "drift",
}  # fmt: skip


# A ratio over z', a slope through it, segments, and a decision that is the action alone.
SLOW = pytest.mark.slow  # each compiles for a quarter of a minute
CASES = [
    ("s2pg", DISCRETE),
    pytest.param("s2pg-pathwise", DISCRETE, marks=SLOW),
    pytest.param("bptt-3", DISCRETE, marks=SLOW),
    ("window-3", CONTINUOUS),
]


@pytest.mark.parametrize(("label", "env"), CASES, ids=lambda part: part if isinstance(part, str) else part.cue)
def test_updates_keep_within_the_radius_and_move_both_networks(label, env):
    algorithm = built(label, env, algorithm="trpo", epochs=1, minibatches=2, radius=0.01)

    def run(keys):
        state = algorithm.init(env.spec, (), key=keys[-1])
        state = with_kernel(state, shaken(state.policy.kernel, keys[-2]))
        carry = start(env, algorithm.actor(state.policy), algorithm.lanes, keys[0])

        def body(loop, key):
            state, carry = loop
            one, two, three = jax.random.split(key, 3)
            # Shaken again before each: far from where the last update left it.
            state = with_kernel(state, shaken(state.policy.kernel, one, 0.1))
            carry, batch, _ = collect(env, algorithm.actor(state.policy), carry, algorithm.steps, two)
            after, metrics = algorithm.update(state, batch, (), three)
            # Measurement anew, and apart from the line search.
            samples = gathered(algorithm, state, batch)
            kl = algorithm.measure(Networks(after.policy.kernel, state.learner.critic), samples).kl
            moved = jax.tree.map(lambda a, b: jnp.abs(a - b).max() if a.size else jnp.zeros(()), after, state)
            return (after, carry), (metrics, kl, moved.policy.kernel, moved.learner.critic)

        return jax.lax.scan(body, (state, carry), keys[1:5])[1]

    metrics, kl, *moved = jax.jit(run)(jax.random.split(jax.random.key(3), 7))
    assert metrics.keys() >= METRICS
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((metrics, moved)))
    assert all(largest(part) > 0 for part in moved)
    accepted = np.asarray(metrics["accepted"])
    assert accepted.any()
    assert (np.asarray(kl) <= 0.01 * (1 + 1e-3)).all() and (np.asarray(metrics["kl"]) <= 0.01).all()
    np.testing.assert_allclose(kl, metrics["kl"], rtol=2e-3, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(metrics["step_fraction"]) > 0, accepted)
    np.testing.assert_array_equal(np.asarray(metrics["improvement"]) > 0, accepted)


def test_a_kernel_that_integrates_can_be_differentiated_forwards():
    _, algorithm = resolve("trpo", CONTINUOUS, kernel="ode", hyper=TINY | {"epochs": 1, "minibatches": 1})
    # What cannot be differentiated forwards is refused when it is traced.
    state, _, batch = jax.eval_shape(lambda: two_batches(algorithm, CONTINUOUS))
    _, metrics = jax.eval_shape(algorithm.update, state, batch, (), jax.random.key(0))
    assert metrics.keys() >= METRICS


def test_each_seed_searches_on_its_own():
    algorithm = built("none", algorithm="trpo", epochs=1)
    state, _, batch = batches("none", DISCRETE)
    # The first seed sees no reward and has a critic that expects none: it has nothing to follow.
    rewards = jnp.stack([jnp.zeros_like(batch.reward), batch.reward])
    blank = jax.tree.map(jnp.zeros_like, state.learner.critic)
    state = state._replace(learner=state.learner._replace(critic=blank))
    run = jax.jit(jax.vmap(lambda reward, key: algorithm.update(state, batch._replace(reward=reward), (), key)))
    after, metrics = run(rewards, jax.random.split(jax.random.key(0)))
    np.testing.assert_array_equal(metrics["accepted"], [0, 1])
    assert largest(jax.tree.map(lambda new, old: new[0] - old, after.policy.kernel, state.policy.kernel)) == 0
    assert largest(jax.tree.map(lambda new, old: new[1] - old, after.policy.kernel, state.policy.kernel)) > 0


def test_a_share_of_the_samples_gives_about_the_same_fisher_matrix():
    algorithm = built("s2pg", CONTINUOUS, algorithm="trpo", fisher_share=0.5)
    state, _, batch = batches("s2pg", CONTINUOUS)

    def products(state, batch):
        every = gathered(algorithm, state, batch)
        half = algorithm.thinned(every, jax.random.key(0))
        assert half.valid.shape[0] == every.valid.shape[0] // 2
        v = shaken(jax.tree.map(jnp.zeros_like, state.policy.kernel), jax.random.key(1), 1.0)
        return [ravel_pytree(algorithm.fisher(state.policy.kernel, each)(v))[0] for each in (every, half)]

    every, half = jax.jit(products)(state, batch)
    assert 0 < np.linalg.norm(half - every) < 0.6 * np.linalg.norm(every)


def test_the_radius_falls_to_nothing_and_then_no_parameter_of_the_policy_moves():
    algorithm = built("none", algorithm="trpo", epochs=1, anneal_updates=2, radius=0.01)
    state, _, batch = batches("none", DISCRETE)
    optimiser = algorithm.optimiser.init(state.learner.critic)
    state = state._replace(learner=state.learner._replace(optimiser=optimiser))
    at = lambda number: state._replace(updates=jnp.asarray(number, jnp.int32))  # noqa: E731
    update = jax.jit(algorithm.update)
    (_, first), (_, second), (after, third) = (update(at(number), batch, (), jax.random.key(0)) for number in (0, 1, 2))
    assert [float(metrics["accepted"]) for metrics in (first, second, third)] == [1, 1, 0]
    assert float(second["kl"]) <= 0.005
    # A rejected step leaves the policy exactly as it was; the critic learns all the same.
    assert float(third["step_fraction"]) == float(third["kl"]) == 0
    assert_close(after.policy.kernel, state.policy.kernel, rtol=0)
    assert largest(jax.tree.map(jnp.subtract, after.learner.critic, state.learner.critic)) > 0


@pytest.mark.parametrize("name", ["radius", "damping", "cg_steps", "backtracks"])
def test_a_trust_region_without_a_size_is_refused(name):
    with pytest.raises(UserError, match=name):
        resolve("trpo", DISCRETE, hyper={name: 0})


@pytest.mark.slow
@pytest.mark.parametrize("label", ["s2pg", "bptt-8"])
def test_trpo_solves_recall(label, tmp_path):
    assert scores("trpo", Recall(k=8), label, tmp_path / "run", SEEDS).min() >= SOLVED
