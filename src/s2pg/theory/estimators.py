"""Four estimators of grad J for any kernel on any device task, one gradient per trajectory.

    g = G(tau) sum_t grad log pi(. | o_t, z_t),   G(tau) = sum_t gamma^t r_t

    s2pg        z' drawn; the score of a and of z'; nothing flows through z
    bptt        z' = eta, unrolled over the whole trajectory; the score of a
    bptt-n      the same, cut every n steps
    pathwise    z' = eta + noise drawn, the noise held fixed in the unroll; the score of a
    pathwise-n  the same, cut every n steps

`s2pg` and `pathwise` estimate the gradient of the same objective, that of a policy with noise in z; `bptt` that of
the policy without. A gradient is taken of all prefixes of a trajectory at once: `lengths` says which.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key, PRNGKeyArray

from s2pg.actor import Actor
from s2pg.algorithms.base import step_log_probs
from s2pg.distributions import Normal
from s2pg.errors import UserError
from s2pg.kernel import Kernel, Step
from s2pg.memory import DrawRule, Memory, UnrollRule
from s2pg.returns import discounted, first_episode
from s2pg.rollout import collect, start
from s2pg.theory.constants import Norms, norms
from s2pg.types import POLICY, State, Transition, read


class FixedNoise(Kernel):
    """A kernel whose standard deviations carry no gradient: the theorems take Sigma and Upsilon for fixed."""

    inner: Kernel

    def initial(self) -> State:
        return self.inner.initial()

    def embed(self, obs: Array) -> Any:
        return self.inner.embed(obs)

    def advance(self, x: Any, z: State) -> State:
        return self.inner.advance(x, z)

    def emit(self, x: Any, eta: State) -> Step:
        def fixed(part: Any) -> Any:
            return Normal(part.mean, jax.lax.stop_gradient(part.log_std)) if isinstance(part, Normal) else part

        action, state = self.inner.emit(x, eta)
        return Step(fixed(action), fixed(state))


class Estimator(NamedTuple):
    """How z' comes about, and after how many steps gradients through it are cut (0: never)."""

    noisy: bool  # z' is drawn
    through: bool  # gradients flow through z
    cut: int = 0

    @classmethod
    def parse(cls, label: str) -> Estimator:
        """An estimator by its label."""
        kind, _, cut = label.partition("-")
        if label == "s2pg":
            return cls(True, False)
        if kind not in ("bptt", "pathwise") or (label != kind and not (cut.isdecimal() and int(cut) > 0)):
            raise UserError(f"unknown estimator '{label}'; known: s2pg, bptt, bptt-N, pathwise, pathwise-N")
        return cls(kind == "pathwise", True, int(cut or 0))

    def memory(self, steps: int) -> Memory:
        """The library's rule for trajectories of so many steps."""
        return DrawRule() if self.noisy else UnrollRule(self.cut or steps)

    def log_probs(self, kernel: Kernel, lane: Transition, reads: tuple[str, ...]) -> Float[Array, " T"]:
        """log pi(u_t | x_t) of one lane [T], each as the differentiable function that this estimator takes it for."""
        steps = lane.reward.shape[0]
        if self.noisy and self.through:
            return _noise_held(kernel, lane, reads, self.cut or steps)
        # The library's own rules: what is measured is what trains.
        return step_log_probs(self.memory(steps), kernel, lane, reads)


def _noise_held(kernel: Kernel, lane: Transition, reads: tuple[str, ...], cut: int) -> Float[Array, " T"]:
    """log pi(a_t | o_t, z_t) with z_{t+1} = eta(o_t, z_t) + noise_t, the noise as it was drawn."""
    obs = read(lane.obs, reads)
    x = jax.vmap(kernel.embed)(obs)
    frozen = jax.lax.stop_gradient(kernel)
    mean = jax.vmap(lambda o, z: frozen.advance(frozen.embed(o), z))(obs, lane.z)
    noise = jax.tree.map(jnp.subtract, lane.next_z, mean)
    restart = lane.first | (jnp.arange(lane.reward.shape[0]) % cut == 0)

    def step(z: State, now: tuple) -> tuple[State, State]:
        x, stored, noise, restart = now
        z = jax.tree.map(lambda kept, new: jnp.where(restart, kept, new), stored, z)
        eta = kernel.advance(x, z)
        return jax.tree.map(jnp.add, eta, noise), eta

    head = jax.tree.map(lambda leaf: leaf[0], lane.z)
    _, eta = jax.lax.scan(step, head, (x, lane.z, noise, restart))
    return jax.vmap(lambda x, eta, a: kernel.emit(x, eta).action.log_prob(a))(x, eta, lane.decision.action)


class Moments(NamedTuple):
    """What was measured, for every prefix length [L]; a leading axis of seeds."""

    mean: Float[np.ndarray, "seeds L P"]
    variance: Float[np.ndarray, "seeds L P"]  # of one trajectory's gradient, parameter by parameter
    outcome: Float[np.ndarray, "seeds L"]  # mean return
    norms: Norms | None  # [seeds, T]; None where actions are not normal
    trajectories: int  # of each seed

    @property
    def trace(self) -> np.ndarray:
        """The variance of one trajectory's gradient, seed by seed: the trace of its covariance, [seeds, L]."""
        return self.variance.sum(-1)

    @property
    def error(self) -> np.ndarray:
        """Standard errors of the mean over all seeds, [L, P]."""
        seeds = self.variance.shape[0]
        return np.sqrt(self.variance.mean(0) / (seeds * self.trajectories))

    @property
    def gradient(self) -> np.ndarray:
        """The mean over all seeds, [L, P]."""
        return self.mean.mean(0)


def gradients(
    estimator: Estimator, kernel: Kernel, batch: Transition, reads: tuple[str, ...], discount: float, lengths: Array
) -> tuple[Float[Array, "N L P"], Float[Array, "N L"]]:
    """(G grad log pi, G) of the prefixes of every lane of a batch [T, N]; only its first episode counts."""

    def one(lane: Transition) -> tuple[Array, Array]:
        alive = first_episode(lane.terminated, lane.truncated)
        # One forward pass, and a backward pass for every length.
        prefix = (jnp.arange(alive.size)[None] < lengths[:, None]) & alive[None]
        log_probs, pull = jax.vjp(lambda k: estimator.log_probs(k, lane, reads), kernel)
        score = jax.vmap(lambda mask: ravel_pytree(pull(mask)[0])[0])(prefix.astype(log_probs.dtype))
        outcome = jnp.sum(jnp.where(prefix, discounted(lane.reward, discount)[None], 0.0), axis=1)
        return score * outcome[:, None], outcome

    return jax.vmap(one, in_axes=1)(batch)


def measure(
    label: str, env: Any, kernel: Kernel, key: PRNGKeyArray, *, lengths: tuple[int, ...], trajectories: int,
    seeds: int = 1, discount: float = 0.99, reads: tuple[str, ...] = (POLICY,),
) -> Moments:  # fmt: skip
    """Mean and variance of an estimator by Monte Carlo, and the norms over the very contexts it visited."""
    estimator, steps = Estimator.parse(label), max(lengths)
    if min(lengths) < 1 or trajectories < 2 or seeds < 1:
        raise UserError("to measure a variance takes lengths of at least 1, 2 trajectories and 1 seed")
    if not kernel.stateful:
        raise UserError(f"{type(kernel).__name__} has no internal state to compare estimators on")
    fixed, keys = FixedNoise(kernel), jax.random.split(key, seeds)
    # In pieces, each compiled once for all it fits: estimators share trajectories, maps of one shape share all of it.
    batch = trajectories_of(env, fixed, keys, noisy=estimator.noisy, reads=reads, lanes=trajectories, steps=steps)
    mean, variance, outcome = _moments(estimator, fixed, batch, jnp.asarray(lengths), reads=reads, discount=discount)
    # Discrete actions have a gradient and a variance, but no mean to bound.
    action = jax.eval_shape(fixed, *jax.tree.map(lambda leaf: leaf[0, 0, 0], (read(batch.obs, reads), batch.z))).action
    largest = _norms(fixed, batch, reads=reads) if isinstance(action, Normal) else None
    found = jax.device_get((mean, variance, outcome, largest))  # as the host's, for good
    return Moments(*found, trajectories=trajectories)


# The task and the kernel are arguments, not constants: another Z or another noise compiles nothing anew.
@functools.partial(jax.jit, static_argnames=("noisy", "reads", "lanes", "steps"))
def trajectories_of(
    env: Any, kernel: Kernel, keys: Key[Array, " seeds"], *, noisy: bool, reads: tuple[str, ...], lanes: int, steps: int
) -> Transition:
    """Fresh trajectories [seeds, T, N], every lane from the start of an episode, z' drawn or not."""
    actor = Actor(kernel, {}, DrawRule() if noisy else UnrollRule(steps), reads)

    def one(key: PRNGKeyArray) -> Transition:
        start_key, collect_key = jax.random.split(key)
        carry = start(env, actor, lanes, start_key, stagger=False)
        return collect(env, actor, carry, steps, collect_key)[1]

    return jax.vmap(one)(keys)


@functools.partial(jax.jit, static_argnames=("estimator", "reads", "discount"))
def _moments(
    estimator: Estimator, kernel: Kernel, batch: Transition, lengths: Array, *, reads: tuple[str, ...], discount: float
) -> tuple[Array, Array, Array]:
    def one(batch: Transition) -> tuple[Array, Array, Array]:
        sample, outcome = gradients(estimator, kernel, batch, reads, discount, lengths)
        return jnp.mean(sample, axis=0), jnp.var(sample, axis=0, ddof=1), jnp.mean(outcome, axis=0)

    return jax.vmap(one)(batch)


@functools.partial(jax.jit, static_argnames=("reads",))
def _norms(kernel: Kernel, batch: Transition, *, reads: tuple[str, ...]) -> Norms:
    return jax.vmap(lambda batch: norms(kernel, batch, reads))(batch)


def bias(moments: Moments, reference: Array) -> tuple[np.ndarray, np.ndarray]:
    """(E g - reference, its standard error), parameter by parameter, [L, P]."""
    return moments.gradient - np.asarray(reference), moments.error
