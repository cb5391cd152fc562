"""S2PG over N steps: what is unrolled, where the future comes in, and its gradient against a closed form."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s2pg.actor import Actor
from s2pg.algorithms import PPO
from s2pg.algorithms.onpolicy import Learning, Networks
from s2pg.critics import Critic
from s2pg.memory import DrawRule, PathwiseRule, Sample
from s2pg.memory.pathwise import NoisyState, ends
from s2pg.rollout import collect, start
from s2pg.types import Decision
from test_gradients import EFFORT, KEEP, PARTIALLY, PUSH, SPREAD, START, LinearKernel, Regulator, kernel_for
from test_unfold import at, kernel_of, replayed, slope
from toys import DISCRETE, TINY, assert_close, largest, resolve

STEPS, LANES, BATCHES = 3, 4000, 40


def test_the_ends_of_a_sample_are_its_last_step_and_those_of_its_episodes():
    first = jnp.array([[1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0]], bool)
    valid = jnp.array([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], bool)
    found = jax.vmap(ends)(first, valid)
    np.testing.assert_array_equal(found, [[0, 0, 0, 1], [1, 0, 1, 1], [0, 1, 0, 0], [1, 0, 0, 0]])


def sample_of(kernel, noise, first, obs):
    """A sample as it would have been collected, one step after the other."""
    z, states, means = jnp.zeros(1), [], []
    for t in range(len(noise)):
        z = jnp.zeros(1) if first[t] else z
        states.append(z)
        means.append(kernel.advance(obs[t], z))
        z = means[-1] + noise[t]
    stored = NoisyState(jnp.stack(means), noise)
    decision = Decision(jnp.ones((len(noise), 1)), stored)
    return Sample(obs, jnp.stack(states), decision, stored.mean + noise, first, jnp.ones(len(noise), bool))


def test_states_come_back_as_they_were_and_feel_the_steps_before():
    """eta = w z + u o: by w, z' of step 2 moves by z_2 + w z_1 (+ w^2 z_0, and z_0 is 0), and a new episode forgets."""
    rule = PathwiseRule(length=3)
    kernel = kernel_for(rule)
    obs, noise = jnp.array([[1.0], [2.0], [-1.0]]), jnp.array([[0.3], [-0.2], [0.1]])
    whole = sample_of(kernel, noise, [True, False, False], obs)
    found = rule.evaluate(kernel, whole._replace(first=jnp.array([True, False, False])))
    np.testing.assert_allclose(found.z, whole.z, atol=1e-6)
    np.testing.assert_allclose(found.next_z, whole.next_z, atol=1e-6)
    np.testing.assert_allclose(found.drift, 0.0, atol=1e-10)

    def by_w(sample, t):
        return float(jax.grad(lambda k: rule.evaluate(k, sample).next_z[t, 0])(kernel).w)

    z, w = np.asarray(whole.z)[:, 0], float(kernel.w)
    sample = whole._replace(first=jnp.array([True, False, False]))
    assert [by_w(sample, t) for t in (0, 1)] == [0.0, 0.0]  # the critic would count twice what follows
    np.testing.assert_allclose(by_w(sample, 2), z[2] + w * z[1], rtol=1e-5)
    parted = sample_of(kernel, noise, [True, False, True], obs)._replace(first=jnp.array([True, False, True]))
    np.testing.assert_allclose(by_w(parted, 1), np.asarray(parted.z)[1, 0], rtol=1e-5)  # an episode's last step
    np.testing.assert_allclose(by_w(parted, 2), 0.0, atol=1e-7)  # from z_0, which nothing moves
    # Later actions feel it as well: log pi(a_1) through z_1 = w z_0 + u o_0 + noise.
    score = jax.grad(lambda k: rule.evaluate(k, sample).log_prob.action[1])(kernel)
    alone = jax.grad(
        lambda k: PathwiseRule().evaluate(k, jax.tree.map(lambda leaf: leaf[1:2], sample)).log_prob.action[0]
    )(kernel)
    assert abs(float(score.u - alone.u)) > 1e-3
    assert largest(jax.grad(lambda k: jnp.sum(rule.evaluate(k, sample).z))(kernel)) == 0


@pytest.mark.parametrize("name", ["gru", "mingru"])
def test_a_kernel_that_unrolls_in_its_own_way_takes_the_noise_along(name):
    _, algorithm = resolve("ppo", DISCRETE, memory="s2pg-3", kernel=name, hyper=TINY)
    kernel = algorithm.init_policy(DISCRETE.spec, key=jax.random.key(0)).kernel
    inputs = sum(DISCRETE.spec.views[view] for view in algorithm.reads)
    obs, stored, noise = (
        jnp.asarray(np.random.default_rng(size).normal(size=(7, size)), jnp.float32) for size in (inputs, 4, 4)
    )
    noise, x, restart = -noise, jax.vmap(kernel.embed)(obs), jnp.array([0, 0, 0, 1, 0, 0, 1], bool)
    z, eta = kernel.unroll(x, stored, restart, noise)
    before = None
    for t in range(7):
        np.testing.assert_allclose(z[t], stored[t] if t == 0 or restart[t] else before, atol=1e-5)
        np.testing.assert_allclose(eta[t], kernel.advance(at(x, t), z[t]), atol=1e-5)
        before = eta[t] + noise[t]


# Off policy ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"refresh": 0.25}, {"refresh_noise": False}, {"refresh_first": False}])
def test_off_policy_one_step_is_plain_s2pg(settings):
    kernel, sample, key = kernel_of("s2pg"), replayed(1), jax.random.key(3)
    for given in (key, None):
        one, other = (rule.unfold(kernel, sample, given) for rule in (DrawRule(**settings), PathwiseRule(**settings)))
        jax.tree.map(np.testing.assert_array_equal, one, other)


def test_replayed_states_are_drawn_one_after_the_other_and_padding_passes_them_on():
    rule, kernel, sample, key = PathwiseRule(length=3), kernel_of("s2pg"), replayed(3, 1), jax.random.key(3)
    found = rule.unfold(kernel, sample, key)
    keys = jax.random.split(key, 3)
    z = sample.z
    for t in range(3):
        np.testing.assert_allclose(found.z[t], z, atol=1e-6)
        if t >= 1:  # the first row is padding
            z = kernel(sample.obs[t], z).state.sample(keys[t])
        np.testing.assert_allclose(found.next_z[t], z, atol=1e-6)
        if t >= 1:
            np.testing.assert_allclose(found.fresh[t], z, atol=1e-6)
    assert_close(at(found.ahead, 2), kernel(sample.obs[3], z), atol=1e-5)
    assert_close(at(found.ahead, 1), kernel(sample.obs[2], found.z[2]), atol=1e-5)
    assert largest(slope(kernel, lambda k: rule.unfold(k, sample, key)[2:])) == 0


@pytest.mark.parametrize("key", [jax.random.key(3), None], ids=["drawn anew", "held"])
def test_a_later_action_feels_earlier_states_and_the_critic_the_last_one_alone(key):
    rule, kernel, sample = PathwiseRule(length=3), kernel_of("s2pg"), replayed(3)
    draw = lambda k: jax.vmap(rule.draw)(rule.unfold(k, sample, key).now, jax.random.split(jax.random.key(5), 3))[0]  # noqa: E731
    states = [largest(slope(kernel, lambda k, t=t: draw(k).state[t])) for t in range(3)]
    assert states[0] == states[1] == 0 < states[2]
    # With the state before it held as a number, a step moves otherwise.
    z = rule.unfold(kernel, sample, key).z[2]
    for part, least in (
        (lambda step: step.action, 1e-5),
        (lambda step: getattr(step.state, "inner", step.state), 1e-2),
    ):
        alone = slope(kernel, lambda k, part=part: part(k(sample.obs[2], z)).mode())
        found = slope(kernel, lambda k, part=part: part(at(rule.unfold(k, sample, key).now, 2)).mode())
        assert largest(jax.tree.map(jnp.subtract, found, alone)) > least


def test_held_states_are_exactly_the_stored_ones():
    rule, kernel, sample = PathwiseRule(length=3), kernel_of("s2pg"), replayed(3)
    found = rule.unfold(kernel, sample, None)
    np.testing.assert_array_equal(found.next_z, sample.next_z)
    np.testing.assert_array_equal(found.z, jnp.concatenate([sample.z[None], sample.next_z[:-1]]))
    assert found.fresh == ()


# Against a closed form -----------------------------------------------------------------------------------------------


class TimedRegulator(Regulator):
    """The linear-Gaussian task, with the time for the critic to see."""

    def views(self, inner, elapsed):
        shown = inner * jnp.where(elapsed == 0, 1.0, self.seen)
        return {"policy": shown[None], "critic": jnp.stack([inner, elapsed.astype(float)])}


def moves(kernel, t):
    """(s', z') = step . (s, z) and a = action . (s, z) at time t, without noise; s is hidden after the first step."""
    show = 1.0 if t == 0 else PARTIALLY
    eta = jnp.stack([kernel.u * show, kernel.w])
    action = kernel.c * eta + jnp.stack([kernel.k * show, jnp.zeros(())])
    return jnp.stack([PUSH * action + jnp.array([KEEP, 0.0]), eta]), action


def quadratics(kernel: LinearKernel):
    """(P_t, c_t) of V_t(s, z) = x P_t x + c_t, undiscounted, from the end backwards."""
    variance = jnp.diag(jnp.stack([PUSH**2 * jnp.exp(2 * kernel.log_std), jnp.exp(2 * kernel.state_head.log_std[0])]))
    effort = EFFORT * jnp.exp(2 * kernel.log_std)
    cost, constant = jnp.zeros((2, 2)), jnp.zeros(())
    found = [(cost, constant)]
    for t in reversed(range(STEPS)):
        step, action = moves(kernel, t)
        inner = cost - jnp.diag(jnp.array([1.0, 0.0]))  # the reward of arriving, and what follows
        constant = constant + jnp.trace(inner @ variance) - effort
        cost = step.T @ inner @ step - EFFORT * jnp.outer(action, action)
        found.insert(0, (cost, constant))
    return jnp.stack([each for each, _ in found]), jnp.stack([each for _, each in found])


def expected(kernel):
    """The expected return: V_0 over the start."""
    costs, constants = quadratics(kernel)
    return costs[0, 0, 0] * (START**2 + SPREAD**2) + constants[0]


class Exact(Critic):
    """V_t(s, z) of fixed parameters; `wrong` mistakes what z is worth."""

    costs: jax.Array
    constants: jax.Array
    wrong: float = eqx.field(static=True, default=1.0)
    reads: tuple[str, ...] = eqx.field(static=True, default=("critic",))

    def initial(self):
        return ()

    def advance(self, obs, h):
        return ()

    def __call__(self, obs, h, features, decision):
        s, t = obs["critic"]
        x, t = jnp.stack([s, features[0]]), t.astype(int)
        scale = jnp.array([1.0, self.wrong])
        return x @ (self.costs[t] * jnp.outer(scale, scale)) @ x + self.constants[t]


@functools.cache
def gradients(length: int, wrong: float = 1.0):
    """Independent estimates [batches, parameters] by PPO's loss at the parameters that collected."""
    rule = PathwiseRule(-0.7, length=length)
    kernel, env = kernel_for(rule), TimedRegulator(jnp.asarray(PARTIALLY))
    costs, constants = quadratics(kernel)
    true, critic = Exact(costs, constants), Exact(costs, constants, wrong)
    nothing = lambda *_: None  # noqa: E731
    algorithm = PPO(
        rule, nothing, nothing, ("policy",), LANES, STEPS, discount=1.0, pathwise_weight=1.0, drift_cost=0.0
    )
    value = lambda critic, obs, z: jax.vmap(jax.vmap(lambda obs, z: critic(obs, (), z, ())))(obs, z)  # noqa: E731
    time, lane, valid = map(jnp.asarray, rule.segments(STEPS, LANES))

    def one(key):
        actor = Actor(kernel, {}, rule, ("policy",))
        start_key, collect_key = jax.random.split(key)
        _, batch, _ = collect(env, actor, start(env, actor, LANES, start_key), STEPS, collect_key)
        # Advantages are right in either case; only what lies beyond a sample is asked of the critic.
        ahead, now = value(true, batch.next_obs, batch.next_z), value(true, batch.obs, batch.z)
        learning = Learning(batch, batch.reward + ahead - now, now, ())
        piece = jax.tree.map(lambda leaf: leaf[time, lane], learning)
        loss = lambda kernel: algorithm.loss(Networks(kernel, critic), piece, valid, jnp.ones(()))[0]  # noqa: E731
        found = jax.grad(loss)(kernel)
        return -STEPS * jnp.stack([found.w, found.u, found.k, found.c, found.log_std])

    return np.asarray(jax.jit(lambda keys: jax.lax.map(one, keys))(jax.random.split(jax.random.key(length), BATCHES)))


def closed_form():
    found = jax.grad(expected)(kernel_for(PathwiseRule(-0.7)))
    return np.array([found.w, found.u, found.k, found.c, found.log_std])


def test_the_quadratic_value_is_the_mean_of_returns():
    rule = PathwiseRule(-0.7)
    kernel, env = kernel_for(rule), TimedRegulator(jnp.asarray(PARTIALLY))
    actor = Actor(kernel, {}, rule, ("policy",))
    _, batch, _ = collect(env, actor, start(env, actor, 100_000, jax.random.key(1)), STEPS, jax.random.key(2))
    returns = np.asarray(batch.reward).sum(0)
    assert abs(returns.mean() - float(expected(kernel))) < 3 * returns.std() / np.sqrt(returns.size)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_with_the_exact_value_the_gradient_is_unbiased_for_every_length(length):
    found = gradients(length)
    error = found.std(0, ddof=1) / np.sqrt(BATCHES)
    off = (found.mean(0) - closed_form()) / error
    print(f"s2pg-{length}: off by {np.round(off, 2)} standard errors, deviation of an estimate {found.std(0, ddof=1)}")
    assert (error > 0).all() and np.abs(off).max() < 3


def test_the_bias_of_a_wrong_critic_shrinks_with_the_length():
    bias = [np.linalg.norm(gradients(length, wrong=0.3).mean(0) - closed_form()) for length in (1, 2, 3)]
    print("bias with a critic that underrates z:", np.round(bias, 4))
    assert bias[0] > 1.3 * bias[1] and bias[2] < 0.1 * bias[0]
