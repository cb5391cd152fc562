"""The paper's lemma and its two gradient theorems as checks: both sides, each worked out in its own way.

    performance difference   J(pi) - J(q) = E_pi[ sum_t gamma^t A^q(s_t, z_t, a_t, z_{t+1}) ]
    stateful PGT             grad J = sum_{s,z} rho(s, z) sum_o O(o | s) sum_{a,z'} grad pi(a, z' | o, z) Q(s, z, a, z')
    stateful deterministic   grad J = E_rho[ grad mu^a grad_a Q + grad mu^z grad_z' Q ]

The first two on finite tasks with a finite memory, where rho, V and Q solve linear equations; the third on linear
dynamics with quadratic cost, where V is a quadratic form. All numbers are exact but for rounding. `gap` is the
largest difference of the two sides, relative to the larger of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from s2pg.errors import UserError


class Sides(NamedTuple):
    """The two sides of an equation."""

    left: np.ndarray
    right: np.ndarray

    @property
    def gap(self) -> float:
        scale = max(np.abs(self.left).max(), np.abs(self.right).max(), np.finfo(float).tiny)
        return float(np.abs(self.left - self.right).max() / scale)


def numerical(function: Callable[[Array], Array], at: Array, step: float = 1e-5) -> np.ndarray:
    """A gradient by central differences: owes nothing to any theorem, nor to automatic differentiation."""
    if jnp.asarray(at).dtype != jnp.float64:
        raise UserError("finite differences need 64 bits: make the task and call this under jax.enable_x64()")
    flat = np.asarray(at, float).ravel()
    shifted = flat[None] + step * np.concatenate([np.eye(flat.size), -np.eye(flat.size)])
    up, down = np.split(np.asarray(jax.vmap(lambda x: function(x.reshape(at.shape)))(jnp.asarray(shifted))), 2)
    return ((up - down) / (2 * step)).reshape(at.shape)


def _discount(discount: float) -> None:
    if not 0 <= discount < 1:
        raise UserError(f"discount must lie in [0, 1), not {discount:g}: these sums have no end")


# Finite tasks ---------------------------------------------------------------------------------------------------------


class Finite(eqx.Module):
    """A partially observed task with finitely many states, and a policy memory with finitely many z.

    A policy is a table pi[o, z, a, z'] of probabilities.
    """

    move: Float[Array, "s a s"]  # P(s' | s, a)
    reward: Float[Array, "s a"]
    show: Float[Array, "s o"]  # O(o | s)
    begin: Float[Array, "s z"]  # iota(s, z)
    discount: float = eqx.field(static=True)

    def __check_init__(self) -> None:
        _discount(self.discount)

    def decide(self, policy: Float[Array, "o z a z"]) -> Float[Array, "s z a z"]:
        """pi(a, z' | s, z), the observation summed out."""
        return jnp.einsum("so,ozan->szan", self.show, policy)

    def step(self, policy: Float[Array, "o z a z"]) -> Float[Array, "s z s z"]:
        """P(s', z' | s, z)."""
        return jnp.einsum("szan,sat->sztn", self.decide(policy), self.move)

    def value(self, policy: Float[Array, "o z a z"]) -> Float[Array, "s z"]:
        """V = (I - gamma P)^-1 r."""
        reward = jnp.einsum("szan,sa->sz", self.decide(policy), self.reward)
        matrix = self.step(policy).reshape(reward.size, reward.size)
        return jnp.linalg.solve(jnp.eye(reward.size) - self.discount * matrix, reward.ravel()).reshape(reward.shape)

    def action_value(self, policy: Float[Array, "o z a z"]) -> Float[Array, "s a z"]:
        """Q(s, z, a, z') = r(s, a) + gamma E V(s', z'), which does not depend on z."""
        return self.reward[..., None] + self.discount * jnp.einsum("sat,tn->san", self.move, self.value(policy))

    def objective(self, policy: Float[Array, "o z a z"]) -> Float[Array, ""]:
        """J = sum iota V."""
        return jnp.sum(self.begin * self.value(policy))

    def occupancy(self, policy: Float[Array, "o z a z"]) -> Float[Array, "s z"]:
        """rho(s, z) = sum_t gamma^t P(s_t = s, z_t = z): the other end of the same equation."""
        matrix = self.step(policy).reshape(self.begin.size, self.begin.size)
        flow = jnp.linalg.solve(jnp.eye(self.begin.size) - self.discount * matrix.T, self.begin.ravel())
        return flow.reshape(self.begin.shape)


def random_task(seed: int, states: int = 5, actions: int = 3, shown: int = 3, memories: int = 2) -> Finite:
    """All tables random; NumPy draws them, as nothing is compiled for it."""
    rng = np.random.default_rng(seed)
    move, show = rng.dirichlet(np.ones(states), (states, actions)), rng.dirichlet(np.ones(shown), states)
    begin = rng.dirichlet(np.ones(states * memories)).reshape(states, memories)
    reward = rng.normal(size=(states, actions))
    return Finite(*(jnp.asarray(each) for each in (move, reward, show, begin)), discount=0.9)


def table(logits: Float[Array, "o z a z"]) -> Float[Array, "o z a z"]:
    """pi(a, z' | o, z) as a joint softmax: a and z' need not be independent for the theorems."""
    shape = logits.shape
    return jax.nn.softmax(logits.reshape(*shape[:2], -1), axis=-1).reshape(shape)


def performance_difference(task: Finite, pi: Float[Array, "o z a z"], q: Float[Array, "o z a z"]) -> Sides:
    """J(pi) - J(q) against the advantages of q along pi."""
    advantage = task.action_value(q)[:, None] - task.value(q)[:, :, None, None]
    along = jnp.einsum("sz,szan,szan->", task.occupancy(pi), task.decide(pi), advantage)
    return Sides(np.asarray(task.objective(pi) - task.objective(q)), np.asarray(along))


def policy_gradient(task: Finite, logits: Float[Array, "o z a z"]) -> Sides:
    """Finite differences of J against the stateful policy gradient theorem under partial observation."""
    slopes = jax.jacrev(table)(logits)  # [o, z, a, z', parameters]
    rho, value = task.occupancy(table(logits)), task.action_value(table(logits))
    right = jnp.einsum("sz,so,ozan...,san->...", rho, task.show, slopes, value)
    return Sides(numerical(lambda logits: task.objective(table(logits)), logits), np.asarray(right))


# Linear dynamics, quadratic cost --------------------------------------------------------------------------------------


class Quadratic(eqx.Module):
    """s' = A s + B a, r = -s.Q s - a.R a, x_0 = (s_0, z_0) with second moment C; mu^a = K x, mu^z = L x."""

    a: Float[Array, "s s"]
    b: Float[Array, "s a"]
    cost: Float[Array, "s s"]
    effort: Float[Array, "a a"]
    begin: Float[Array, "x x"]
    discount: float = eqx.field(static=True)

    def __check_init__(self) -> None:
        _discount(self.discount)

    @property
    def split(self) -> int:
        return self.a.shape[0]

    def closed(self, policy: Float[Array, "u x"]) -> tuple[Float[Array, "x x"], Float[Array, "x x"]]:
        """(M, W) with x' = M x and r = x.W x under u = policy x, u = (a, z')."""
        act, remember = jnp.split(policy, [self.b.shape[1]])
        state = jnp.eye(self.split, self.begin.shape[0])  # s out of x = (s, z)
        matrix = jnp.concatenate([self.a @ state + self.b @ act, remember])
        weight = -(state.T @ self.cost @ state + act.T @ self.effort @ act)
        return matrix, weight

    def series(self, matrix: Float[Array, "x x"], first: Float[Array, "x x"]) -> Float[Array, "x x"]:
        """sum_t gamma^t M^t first M^t', as the solution of X = first + gamma M X M'."""
        size = first.size
        inverse = jnp.eye(size) - self.discount * jnp.kron(matrix, matrix)
        return jnp.linalg.solve(inverse, first.ravel()).reshape(first.shape)

    def objective(self, policy: Float[Array, "u x"]) -> Float[Array, ""]:
        """J = tr(P C), V(x) = x.P x."""
        matrix, weight = self.closed(policy)
        return jnp.sum(self.series(matrix.T, weight) * self.begin)


def deterministic_policy_gradient(task: Quadratic, policy: Float[Array, "u x"]) -> Sides:
    """Finite differences of J against the stateful deterministic policy gradient theorem.

    Q(s, z, a, z') = r(s, a) + gamma V(A s + B a, z') is quadratic, so its gradients at the policy's own decision are
    matrices times x, and an expectation over rho needs the second moment of rho alone.
    """
    matrix, weight = task.closed(policy)
    value, moment = task.series(matrix.T, weight), task.series(matrix, task.begin)
    ahead = 2 * task.discount * value @ matrix  # gamma grad V at x', as a matrix times x
    act = policy[: task.b.shape[1]]
    by_action = -2 * task.effort @ act + task.b.T @ ahead[: task.split]
    by_state = ahead[task.split :]
    right = jnp.concatenate([by_action, by_state]) @ moment
    return Sides(numerical(task.objective, policy), np.asarray(right))


def random_quadratic(seed: int, states: int = 3, actions: int = 2, memories: int = 2) -> tuple[Quadratic, Array]:
    """A task and a policy, both of small entries: what they do together stays bounded."""
    rng, size = np.random.default_rng(seed), states + memories

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(scale=0.3, size=shape)

    def positive(size: int) -> np.ndarray:
        root = normal(size, size)
        return root @ root.T + 0.1 * np.eye(size)

    parts = normal(states, states), normal(states, actions), positive(states), positive(actions), positive(size)
    return Quadratic(*(jnp.asarray(part) for part in parts), discount=0.9), jnp.asarray(
        normal(actions + memories, size)
    )
