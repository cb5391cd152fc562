"""Policy gradients against a closed form, on a linear-Gaussian task of three steps.

    s_0 ~ N(1, 1/2),  s' = 4/5 s + 1/2 a,  r = -(s')^2 - a^2 / 10;  o = s at first, then s (fully observed) or 0
    eta = w z + u o,  a ~ N(k o + c eta, sigma_a^2),  z' ~ N(eta, sigma_z^2) for S2PG, z' = eta for BPTT

(s, z) is Gaussian at every step, so its mean and covariance give the expected return exactly and, through autodiff,
its gradient. The two methods have different objectives: one with the noise of z', one without.
"""

import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s2pg.actor import Actor
from s2pg.algorithms import GPOMDP, REINFORCE
from s2pg.algorithms.episodic import optimal_baseline
from s2pg.distributions import Normal
from s2pg.envs.base import Env
from s2pg.heads import plain_state_head
from s2pg.kernel import Kernel, Step
from s2pg.memory import DrawRule, UnrollRule
from s2pg.rollout import collect, start
from s2pg.types import Box
from toys import assert_close

KEEP, PUSH, START, SPREAD, EFFORT, DISCOUNT = 0.8, 0.5, 1.0, 0.5**0.5, 0.1, 0.9
# A baseline estimated from the lanes it serves has a bias of order 1/lanes: few large batches keep it out of sight.
BATCHES, LANES = 50, 8000
FULLY, PARTIALLY = 1.0, 0.0


class Regulator(Env):
    seen: jax.Array  # how much of s the policy sees after the first step
    horizon: int = eqx.field(static=True, default=3)

    @property
    def action(self):
        return Box((-np.inf,), (np.inf,))

    def begin(self, key):
        return START + SPREAD * jax.random.normal(key)

    def move(self, inner, elapsed, action, key):
        after = KEEP * inner + PUSH * action[0]
        return after, -(after**2) - EFFORT * action[0] ** 2, jnp.zeros((), bool)

    def views(self, inner, elapsed):
        shown = inner * jnp.where(elapsed == 0, 1.0, self.seen)
        return {"policy": shown[None], "critic": inner[None]}


class LinearKernel(Kernel):
    w: jax.Array
    u: jax.Array
    k: jax.Array
    c: jax.Array
    log_std: jax.Array
    state_head: Callable

    def initial(self):
        return jnp.zeros(1)

    def embed(self, obs):
        return obs

    def advance(self, x, z):
        return self.w * z + self.u * x

    def emit(self, x, eta):
        return Step(Normal(self.k * x + self.c * eta, self.log_std[None]), self.state_head(eta, eta))


def kernel_for(memory) -> LinearKernel:
    w, u, k, c, log_std = (jnp.asarray(x) for x in (0.9, 0.6, -0.4, -0.7, -0.5))
    return LinearKernel(w, u, k, c, log_std, memory.state_head(plain_state_head)(1, 1, jax.random.key(0)))


def expected_return(kernel: LinearKernel, seen: float):
    """E[sum gamma^t r_t], by passing the mean and covariance of (s, z) through three linear steps."""
    noise = getattr(kernel.state_head, "log_std", None)
    state_variance = 0.0 if noise is None else jnp.exp(2 * noise[0])
    action_variance = jnp.exp(2 * kernel.log_std)
    mean, covariance = jnp.array([START, 0.0]), jnp.diag(jnp.array([SPREAD**2, 0.0]))
    total = 0.0
    for t in range(3):
        show = 1.0 if t == 0 else seen
        eta = jnp.stack([kernel.u * show, kernel.w])  # as a row: eta = row . (s, z)
        action = kernel.c * eta + jnp.stack([kernel.k * show, jnp.zeros(())])
        effort = (action @ mean) ** 2 + action @ covariance @ action + action_variance
        step = jnp.stack([PUSH * action + jnp.array([KEEP, 0.0]), eta])
        mean = step @ mean
        covariance = step @ covariance @ step.T
        covariance += jnp.diag(jnp.stack([PUSH**2 * action_variance, jnp.asarray(state_variance)]))
        total += DISCOUNT**t * (-(mean[0] ** 2 + covariance[0, 0]) - EFFORT * effort)
    return total


MEMORIES = {
    "s2pg": DrawRule(-0.7), "full": UnrollRule(3), "cut-1": UnrollRule(1), "cut-2": UnrollRule(2),
    "full-last": UnrollRule(3, last=True),
}  # fmt: skip


def made(cls, memory, steps=3, lanes=LANES, **hyper):
    nothing = lambda *_: None  # noqa: E731
    return cls(memory, nothing, nothing, ("policy",), lanes, steps, discount=DISCOUNT, **hyper)


@functools.cache
def estimates(cls, name: str, baseline: bool, seen: float):
    """(gradient estimates [batches, parameters], mean returns [batches]) of independent batches."""
    return _sampler(cls, name, baseline)(Regulator(jnp.asarray(seen)))


@functools.cache
def _sampler(cls, name: str, baseline: bool):
    algorithm = made(cls, MEMORIES[name], baseline=baseline, normalise_obs=False)
    kernel = kernel_for(algorithm.memory)

    def one(env, key):
        actor = Actor(kernel, {}, algorithm.memory, ("policy",))
        start_key, collect_key = jax.random.split(key)
        carry = start(env, actor, LANES, start_key)
        _, batch, _ = collect(env, actor, carry, 3, collect_key)
        returns = jnp.sum(batch.reward * DISCOUNT ** jnp.arange(3.0)[:, None], axis=0)
        flat, _ = jax.flatten_util.ravel_pytree(algorithm.gradient(kernel, batch))
        return flat, jnp.mean(returns)

    keys = jax.random.split(jax.random.key(3), BATCHES)
    return jax.jit(lambda env: jax.lax.map(lambda key: one(env, key), keys))


def deviation(cls, name: str, baseline: bool, seen: float) -> np.ndarray:
    """How many standard errors the mean of the estimates lies off the closed form, parameter by parameter."""
    found = np.asarray(estimates(cls, name, baseline, seen)[0])
    exact, _ = jax.flatten_util.ravel_pytree(jax.grad(expected_return)(kernel_for(MEMORIES[name]), seen))
    error = found.std(0, ddof=1) / np.sqrt(BATCHES)
    assert (error > 0).all()
    print(cls.__name__, name, baseline, seen, "off by", np.round((found.mean(0) - exact) / error, 2))
    return np.abs(found.mean(0) - exact) / error


@pytest.mark.parametrize(("name", "seen"), [("s2pg", FULLY), ("s2pg", PARTIALLY), ("full", PARTIALLY)])
def test_the_closed_form_is_the_mean_of_simulated_returns(name, seen):
    returns = np.asarray(estimates(REINFORCE, name, True, seen)[1])
    error = returns.std(ddof=1) / np.sqrt(BATCHES)
    assert abs(returns.mean() - float(expected_return(kernel_for(MEMORIES[name]), seen))) < 3 * error


def test_the_noise_of_the_state_changes_the_objective():
    drawn, unrolled = (kernel_for(MEMORIES[name]) for name in ("s2pg", "full"))
    assert float(expected_return(drawn, PARTIALLY)) < float(expected_return(unrolled, PARTIALLY)) - 0.01


@pytest.mark.parametrize(
    ("name", "baseline", "seen"),
    [("s2pg", True, FULLY), ("s2pg", True, PARTIALLY), ("s2pg", False, PARTIALLY), ("full", True, PARTIALLY)],
)
def test_reinforce_is_unbiased(name, baseline, seen):
    assert deviation(REINFORCE, name, baseline, seen).max() < 3


@pytest.mark.parametrize("name", ["s2pg", "full"])
def test_gpomdp_is_unbiased(name):
    assert deviation(GPOMDP, name, True, PARTIALLY).max() < 3


def test_the_full_unroll_with_loss_on_last_steps_is_unbiased_too():
    assert deviation(REINFORCE, "full-last", True, PARTIALLY).max() < 3


@pytest.mark.parametrize("name", ["cut-1", "cut-2"])
def test_a_truncated_unroll_is_biased(name):
    assert deviation(REINFORCE, name, True, PARTIALLY).max() > 5


def test_the_baseline_and_causality_each_lower_the_variance():
    plain, based, causal = (
        np.asarray(estimates(cls, "s2pg", baseline, PARTIALLY)[0]).var(0).sum()
        for cls, baseline in ((REINFORCE, False), (REINFORCE, True), (GPOMDP, True))
    )
    assert causal < based < plain


def test_the_best_baseline_on_numbers_worked_out_by_hand():
    # Scores 1, 2, 0 with outcomes 3, 6, 100: (1*3 + 4*6) / (1 + 4) = 27/5; a score that is always 0 gets 0.
    score, outcome = jnp.array([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]]), jnp.array([[3.0], [6.0], [100.0]])
    np.testing.assert_allclose(optimal_baseline(score, outcome), [5.4, 0.0], rtol=1e-6)


@pytest.mark.parametrize("cls", [REINFORCE, GPOMDP])
def test_what_comes_after_the_first_episode_does_not_count(cls):
    memory = MEMORIES["full"]
    kernel, env = kernel_for(memory), Regulator(jnp.asarray(PARTIALLY))
    algorithm = made(cls, memory, lanes=6)
    actor = Actor(kernel, {}, memory, ("policy",))
    carry = start(env, actor, 6, jax.random.key(0))
    _, batch, _ = jax.jit(lambda: collect(env, actor, carry, 5, jax.random.key(1)))()
    whole = jax.tree.map(lambda leaf: leaf[:3], batch)
    gradient = jax.jit(algorithm.gradient)
    assert_close(gradient(kernel, batch), gradient(kernel, whole), rtol=1e-5)
