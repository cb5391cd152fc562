"""Memory rules: how z' comes about, and what one training sample is.

| rule       | z' is                       | decision | one sample          | gradient through z        |
|------------|-----------------------------|----------|---------------------|---------------------------|
| `Sampled`  | drawn from N(eta, Upsilon)  | (a, z')  | one transition      | none: the draw shields it |
| `Unrolled` | eta(o, z), recomputed       | a        | a segment of n      | through n steps           |
| `Carried`  | a parameter-free map, or () | a        | one transition      | nothing to flow           |

Algorithms are written over decisions and never ask which of the three they run under.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from s2pg.distributions import Distribution, Normal
from s2pg.kernel import Kernel, NoNoise, StateNoise, Step
from s2pg.types import Decision, State


class Draw(NamedTuple):
    """z' = mean + noise, kept apart: what the pathwise estimator needs of the drawn state."""

    mean: Array
    noise: Array


class Sample(NamedTuple):
    """One training sample: n consecutive steps of one lane. `valid` tells steps from padding."""

    obs: Array  # [n, ...], what the kernel reads
    z: State
    decision: Decision
    next_z: State
    first: Array
    valid: Array


class Evaluation(NamedTuple):
    """A sample under the present parameters, all with a leading axis of n steps."""

    now: Step
    z: State  # never carries a gradient out
    next_z: State  # differentiable under the pathwise estimator alone
    log_prob: Decision  # of the stored decision
    entropy: Decision
    drift: Array  # |(eta - eta_old) / sigma|^2, 0 where the state has a ratio of its own or none
    mask: Array  # steps that enter the loss


class Segments(NamedTuple):
    """Which steps of a batch [T, N] form the samples: time and lane indices [samples, n], and validity."""

    time: np.ndarray
    lane: np.ndarray
    valid: np.ndarray


class Memory(eqx.Module):
    @property
    def segment(self) -> int:
        """Steps in one training sample."""
        return 1

    @abstractmethod
    def state_head(self, size: int) -> Callable[[Array], Distribution]:
        """The head a stateful kernel is built with under this rule."""

    @abstractmethod
    def act(self, kernel: Kernel, obs: Array, z: State, key: PRNGKeyArray | None) -> tuple[Decision, State, Decision]:
        """(u, z', log pi(u | o, z)); without a key, the mode."""

    @abstractmethod
    def evaluate(self, kernel: Kernel, sample: Sample) -> Evaluation: ...

    def segments(self, steps: int, lanes: int) -> Segments:
        """Consecutive pieces of `segment` steps; the last one of a lane is padded where it does not come out even."""
        starts = np.arange(0, steps, self.segment)
        return _table(starts[:, None] + np.arange(self.segment)[None], steps, lanes)


def _table(time: np.ndarray, steps: int, lanes: int) -> Segments:
    time = np.repeat(time, lanes, axis=0)
    lane = np.broadcast_to(np.tile(np.arange(lanes), len(time) // lanes)[:, None], time.shape)
    return Segments(np.clip(time, 0, steps - 1), lane, (time >= 0) & (time < steps))


def _draw(distribution: Distribution, key: PRNGKeyArray | None):
    return distribution.mode() if key is None else distribution.sample(key)


def _judge(step: Step, decision: Decision) -> tuple[Step, Decision, Decision]:
    """(step, log-probability, entropy) where the action is all that was decided."""
    return step, Decision(step.action.log_prob(decision.action)), Decision(step.action.entropy())


class Sampled(Memory):
    """S2PG: (a, z') is drawn, so a gradient needs single transitions only.

    `score` takes the likelihood ratio over z'. `pathwise` lets z' = eta + noise reach the future through
    V(s', z'): no ratio over z', a differentiable `next_z` instead, noise of fixed size.
    """

    estimator: Literal["score", "pathwise"] = eqx.field(static=True, default="score")
    log_std: float = eqx.field(static=True, default=-1.5)

    @property
    def pathwise(self) -> bool:
        return self.estimator == "pathwise"

    def state_head(self, size: int) -> StateNoise:
        return StateNoise(jnp.full(size, self.log_std), learned=not self.pathwise)

    def act(self, kernel: Kernel, obs: Array, z: State, key: PRNGKeyArray | None) -> tuple[Decision, State, Decision]:
        step = kernel(obs, z)
        action_key, state_key = (None, None) if key is None else jax.random.split(key)
        action, next_z = _draw(step.action, action_key), _draw(step.state, state_key)
        log_prob = step.action.log_prob(action)
        if self.pathwise:
            mean = step.state.mode()
            return Decision(action, Draw(mean, next_z - mean)), next_z, Decision(log_prob)
        return Decision(action, next_z), next_z, Decision(log_prob, step.state.log_prob(next_z))

    def evaluate(self, kernel: Kernel, sample: Sample) -> Evaluation:
        # One example at a time, log-probabilities too: what all examples share (sigma) is then computed once.
        def one(obs: Array, z: State, decision: Decision, next_z: State, valid: Array) -> Evaluation:
            now = kernel(obs, z)
            state = now.state
            assert isinstance(state, Normal), "a drawn state is a normal one"
            log_prob, entropy = now.action.log_prob(decision.action), Decision(now.action.entropy(), state.entropy())
            if self.pathwise:
                drawn: Draw = decision.state
                drift = jnp.sum(((state.mean - drawn.mean) * jnp.exp(-state.log_std)) ** 2)
                return Evaluation(now, z, state.mean + drawn.noise, Decision(log_prob), entropy, drift, valid)
            log_probs = Decision(log_prob, state.log_prob(decision.state))
            return Evaluation(now, z, next_z, log_probs, entropy, jnp.zeros(()), valid)

        return jax.vmap(one)(sample.obs, sample.z, sample.decision, sample.next_z, sample.valid)


class Unrolled(Memory):
    """BPTT: z' = eta(o, z) is recomputed along a segment of n steps from the state stored at its head.

    `last` takes the loss on the last step of each sample alone; then every step of a batch ends a sample of
    its own, with the n - 1 steps before it, and a batch costs n times as much.
    """

    length: int = eqx.field(static=True)
    last: bool = eqx.field(static=True, default=False)

    @property
    def segment(self) -> int:
        return self.length

    def state_head(self, size: int) -> NoNoise:
        return NoNoise()

    def act(self, kernel: Kernel, obs: Array, z: State, key: PRNGKeyArray | None) -> tuple[Decision, State, Decision]:
        step = kernel(obs, z)
        action = _draw(step.action, key)
        return Decision(action), step.state.mode(), Decision(step.action.log_prob(action))

    def evaluate(self, kernel: Kernel, sample: Sample) -> Evaluation:
        x = jax.vmap(kernel.embed)(sample.obs)
        restart = restarts(sample.first, sample.valid)

        def advance(z: State, step: tuple) -> tuple[State, tuple[State, State]]:
            x, stored, restart = step
            z = jax.tree.map(lambda kept, new: jnp.where(restart, kept, new), stored, z)
            eta = kernel.advance(x, z)
            return eta, (z, eta)

        head = jax.tree.map(lambda leaf: leaf[0], sample.z)
        _, (z, eta) = jax.lax.scan(advance, head, (x, sample.z, restart))
        now, log_prob, entropy = jax.vmap(lambda x, eta, u: _judge(kernel.emit(x, eta), u))(x, eta, sample.decision)
        mask = sample.valid & (jnp.arange(self.segment) == self.segment - 1) if self.last else sample.valid
        z, eta = jax.lax.stop_gradient((z, eta))
        return Evaluation(now, z, eta, log_prob, entropy, jnp.zeros(mask.shape), mask)

    def segments(self, steps: int, lanes: int) -> Segments:
        if not self.last:
            return super().segments(steps, lanes)
        ends = np.arange(steps)
        return _table(ends[:, None] - np.arange(self.segment)[::-1][None], steps, lanes)


def restarts(first: Array, valid: Array) -> Array:
    """Steps of a sample at which the stored state replaces the unrolled one: its head, and every episode's start.

    Padding may stand in front (`last`); the first valid step after it is a head too.
    """
    head = jnp.concatenate([jnp.ones(1, bool), ~valid[:-1]])
    return first | head


class Carried(Memory):
    """Window, memoryless, oracle: z' is a parameter-free function of the past, no part of the decision."""

    def state_head(self, size: int) -> NoNoise:
        return NoNoise()

    def act(self, kernel: Kernel, obs: Array, z: State, key: PRNGKeyArray | None) -> tuple[Decision, State, Decision]:
        step = kernel(obs, z)
        action = _draw(step.action, key)
        return Decision(action), step.state, Decision(step.action.log_prob(action))

    def evaluate(self, kernel: Kernel, sample: Sample) -> Evaluation:
        judge = jax.vmap(lambda obs, z, u: _judge(kernel(obs, z), u))
        now, log_prob, entropy = judge(sample.obs, sample.z, sample.decision)
        return Evaluation(now, sample.z, sample.next_z, log_prob, entropy, jnp.zeros(sample.valid.shape), sample.valid)
