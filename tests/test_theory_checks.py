"""The performance difference lemma and the two gradient theorems, on random tasks; and that the checks can fail."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s2pg.errors import UserError
from s2pg.theory import checks


def drawn(seed):
    rng = np.random.default_rng(100 + seed)
    shape = (3, 2, 3, 2)  # o, z, a, z'
    return checks.random_task(seed), *(jnp.asarray(2 * rng.normal(size=shape)) for _ in range(2))


@pytest.mark.parametrize("seed", range(3))
def test_the_performance_difference_lemma(seed):
    with jax.enable_x64():
        task, pi, q = drawn(seed)
        sides = checks.performance_difference(task, checks.table(pi), checks.table(q))
        assert sides.gap < 1e-10
        assert abs(sides.left) > 0.01


def test_the_value_is_the_mean_of_simulated_returns():
    """The linear equations against a sum over time, so that both sides of the lemma do not share a mistake."""
    with jax.enable_x64():
        task, logits, _ = drawn(0)
        policy = checks.table(logits)
        reward = np.einsum("szan,sa->sz", task.decide(policy), task.reward)
        at, total = np.asarray(task.begin), 0.0
        for t in range(400):
            total += task.discount**t * np.sum(at * reward)
            at = np.einsum("sz,sztn->tn", at, task.step(policy))
        assert total == pytest.approx(float(task.objective(policy)), rel=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_the_stateful_policy_gradient_theorem(seed):
    with jax.enable_x64():
        task, logits, _ = drawn(seed)
        sides = checks.policy_gradient(task, logits)
        assert sides.left.shape == logits.shape
        assert sides.gap < 1e-7
        automatic = jax.grad(lambda logits: task.objective(checks.table(logits)))(logits)
        assert checks.Sides(np.asarray(automatic), sides.right).gap < 1e-10


@pytest.mark.parametrize("seed", range(3))
def test_the_stateful_deterministic_policy_gradient_theorem(seed):
    with jax.enable_x64():
        task, policy = checks.random_quadratic(seed)
        matrix, _ = task.closed(policy)
        assert task.discount * np.abs(np.linalg.eigvals(matrix)).max() ** 2 < 1  # or J would not be finite
        assert checks.deterministic_policy_gradient(task, policy).gap < 1e-7


def test_a_value_that_ignores_the_memory_fails_both_theorems():
    """V(s) in place of V(s, z): what a critic without z would put into them."""
    with jax.enable_x64():

        class Forgetful(checks.Finite):
            def action_value(self, policy):
                blind = jnp.broadcast_to(self.value(policy).mean(1, keepdims=True), self.begin.shape)
                return self.reward[..., None] + self.discount * jnp.einsum("sat,tn->san", self.move, blind)

        task, pi, q = drawn(0)
        blind = Forgetful(task.move, task.reward, task.show, task.begin, task.discount)
        assert checks.policy_gradient(blind, pi).gap > 0.01
        assert checks.performance_difference(blind, checks.table(pi), checks.table(q)).gap > 1e-3


def test_endless_sums_need_a_discount():
    task = checks.random_task(0)
    with pytest.raises(UserError, match="discount"):
        checks.Finite(task.move, task.reward, task.show, task.begin, 1.0)
