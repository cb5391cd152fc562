"""What a memory rule is, and the pieces of experience it works on."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from s2pg.distributions import Distribution
from s2pg.heads import Drawn, StateHeadBuilder, no_noise
from s2pg.kernel import Kernel, Step
from s2pg.options import option
from s2pg.types import Decision, State


class Sample(NamedTuple):
    """One training sample of a fresh batch: n consecutive steps of one lane. `valid` tells steps from padding."""

    obs: Array  # [n, ...], what the kernel reads
    z: State
    decision: Decision
    next_z: State
    first: Array
    valid: Array


class Evaluation(NamedTuple):
    """A fresh sample under the present parameters, all with a leading axis of n steps."""

    now: Step
    z: State  # never carries a gradient out
    next_z: State  # differentiable under `PathwiseRule` alone, at the ends of what it unrolls
    log_prob: Decision  # of the stored decision
    entropy: Decision
    drift: Array  # |(eta - eta_old) / sigma|^2, 0 where the state has a ratio of its own or none
    mask: Array  # steps that enter the loss


class Segments(NamedTuple):
    """Which steps of a batch [T, N] form the samples: time and lane indices [samples, n], and validity."""

    time: np.ndarray
    lane: np.ndarray
    valid: np.ndarray


class ReplaySample(NamedTuple):
    """One training sample out of a replay buffer: n rows of one episode, padded in front where it began later."""

    obs: Array  # [n + 1, ...], what the kernel reads, up to the observation after the last row
    valid: Array  # [n]
    z: State  # stored, before the first valid row
    next_z: State  # stored, [m, ...] after each of the rows that are graded


class ReplayEvaluation(NamedTuple):
    """A replayed sample under the present parameters: the steps that enter the loss, with a leading axis of them."""

    now: Step  # at (o, z)
    ahead: Step  # at (o', z')
    z: State  # never carries a gradient out, nor does z'
    next_z: State
    fresh: State  # [k, ...] z' after the last k rows, to be stored in place of the old ones; () where these stay


class ShieldedState(NamedTuple):
    """A distribution of z' whose draws hand a gradient on where `open` is set; its log-probability always does."""

    inner: Distribution
    open: Array


class Spans(NamedTuple):
    """Rows of a sample out of a replay buffer, and how many of those enter the loss."""

    rows: int = 1
    graded: int = 1  # the last ones


class Memory(eqx.Module):
    """How z' comes about, and what one training sample is."""

    @property
    @abstractmethod
    def spans(self) -> Spans:
        """How long a replayed sample is."""

    @abstractmethod
    def halves(self, action: object, state: object) -> Decision:
        """A decision-shaped tree with a part for each half that this rule decides on."""

    @abstractmethod
    def state_head(self, drawn: Drawn) -> StateHeadBuilder:
        """The head a stateful kernel is built with, given the algorithm's for states that are drawn."""

    @abstractmethod
    def draw(self, step: Step, key: PRNGKeyArray | None) -> tuple[Decision, Decision]:
        """(u, log pi(u | o, z)); without a key, the mode."""

    @abstractmethod
    def act(self, kernel: Kernel, obs: Array, z: State, key: PRNGKeyArray | None) -> tuple[Decision, State, Decision]:
        """(u, z', log pi(u | o, z)); without a key, the mode."""

    @abstractmethod
    def segments(self, steps: int, lanes: int) -> Segments:
        """Which steps of a batch form the samples."""

    @abstractmethod
    def evaluate(self, kernel: Kernel, sample: Sample) -> Evaluation:
        """The stored decisions of a fresh sample, judged by the present parameters."""

    @abstractmethod
    def stored(self, z: State) -> State:
        """What a replay buffer keeps of z'; () where it is rebuilt from the observations instead."""

    @abstractmethod
    def unfold(self, kernel: Kernel, sample: ReplaySample, key: PRNGKeyArray | None) -> ReplayEvaluation:
        """A replayed sample under the present parameters; with a key, stored states may be refreshed."""


class ActionRule(Memory):
    """A rule under which the action is all that is decided."""

    def halves(self, action: object, state: object) -> Decision:
        return Decision(action)

    def state_head(self, drawn: Drawn) -> StateHeadBuilder:
        return no_noise

    def draw(self, step: Step, key: PRNGKeyArray | None) -> tuple[Decision, Decision]:
        action, log_prob = step.action.draw(key)
        return Decision(action), Decision(log_prob)


class DecisionRule(Memory):
    """A rule under which z' is drawn, and decided on with the action.

    Off policy, z' of a replayed transition is drawn anew and written back: (1 - refresh) old + refresh new. That is
    sound because reward and next observation do not depend on z' given a. `refresh_noise` draws it with its noise,
    otherwise it is the mode; `refresh_first` lets the critic learn from the new z' at once, otherwise from the old.
    """

    state_log_std: float = option(-1.5, "log standard deviation of z' under s2pg; it is learned where z' has a ratio")
    refresh: float = option(
        1.0, "tau_z: how far a replayed z' moves to a new draw; 0: stored states stay as they were", low=0, high=1,
        replay=True,
    )  # fmt: skip
    refresh_noise: bool = option(True, "draw it with its noise, instead of taking the mode", replay=True)
    refresh_first: bool = option(
        True, "the critic learns from the new z' at once, instead of from the stored one", replay=True
    )

    def halves(self, action: object, state: object) -> Decision:
        return Decision(action, state)

    def draw(self, step: Step, key: PRNGKeyArray | None) -> tuple[Decision, Decision]:
        action_key, state_key = (None, None) if key is None else jax.random.split(key)
        action, action_log_prob = step.action.draw(action_key)
        state, open = step.state if isinstance(step.state, ShieldedState) else (step.state, None)
        drawn, state_log_prob = state.draw(state_key)
        drawn = drawn if open is None else jnp.where(open, drawn, jax.lax.stop_gradient(drawn))
        return Decision(action, drawn), Decision(action_log_prob, state_log_prob)

    def stored(self, z: State) -> State:
        return z

    def unfold(self, kernel: Kernel, sample: ReplaySample, key: PRNGKeyArray | None) -> ReplayEvaluation:
        """Draws z' anew along the rows, from the state before them, or holds the stored ones.

        Either way later rows feel how parameters move the states before them, with the noise held fixed. What a draw
        does to the critic counts at the last row alone: the rows that follow another count themselves.
        """
        rows, renewed, keys = self.spans.rows, key is not None and self.refresh > 0.0, None
        if key is not None and self.refresh_noise:
            keys = key[None] if rows == 1 else jax.random.split(key, rows)

        def row(z: State, at: tuple) -> tuple[State, tuple[Step, State, State, State]]:
            obs, valid, stored, key = at
            now = kernel(obs, z)
            drawn, _ = now.state.draw(key)
            new, mode = mix(stored, drawn, self.refresh), now.state.mode()
            held = stored + (mode - jax.lax.stop_gradient(mode))
            after = jnp.where(valid, new if renewed and self.refresh_first else held, z)
            return after, (now, z, after, new)

        head = jax.lax.stop_gradient(sample.z)
        last, (now, z, next_z, new) = jax.lax.scan(
            row, head, (sample.obs[:-1], sample.valid, sample.next_z, keys), unroll=rows == 1
        )
        final = kernel(sample.obs[-1], jax.lax.stop_gradient(last))
        ahead = jax.tree.map(lambda later, end: jnp.concatenate([later[1:], end[None]]), now, final)
        if rows > 1:
            now = now._replace(state=ShieldedState(now.state, jnp.arange(rows) == rows - 1))
        z, next_z, new = jax.lax.stop_gradient((z, next_z, new))
        return ReplayEvaluation(now, ahead, z, next_z, new if renewed else ())


# What rules share ----------------------------------------------------------------------------------------------------


def consecutive(length: int, steps: int, lanes: int) -> Segments:
    """Consecutive pieces of `length` steps; the last one of a lane is padded where it does not come out even."""
    return table(np.arange(0, steps, length)[:, None] + np.arange(length)[None], steps, lanes)


def ending_at_each(length: int, steps: int, lanes: int) -> Segments:
    """One piece for every step: that step and the `length` - 1 before it."""
    return table(np.arange(steps)[:, None] - np.arange(length)[::-1][None], steps, lanes)


def table(time: np.ndarray, steps: int, lanes: int) -> Segments:
    """The same pieces of time in every lane."""
    time = np.repeat(time, lanes, axis=0)
    lane = np.broadcast_to(np.tile(np.arange(lanes), len(time) // lanes)[:, None], time.shape)
    return Segments(np.clip(time, 0, steps - 1), lane, (time >= 0) & (time < steps))


def judge(step: Step, decision: Decision) -> tuple[Step, Decision, Decision]:
    """(step, log-probability, entropy) where the action is all that was decided."""
    return step, Decision(step.action.log_prob(decision.action)), Decision(step.action.entropy())


def restarts(first: Array, valid: Array) -> Array:
    """Steps of a sample at which the stored state replaces the unrolled one: its head, and every episode's start.

    Padding may stand in front (`last`); the first valid step after it is a head too.
    """
    head = jnp.concatenate([jnp.ones(1, bool), ~valid[:-1]])
    return first | head


def walk(kernel: Kernel, x: object, valid: Array, z: State) -> tuple[State, State, State]:
    """Runs a kernel over steps [n] from z: (z after them, z before each, eta of each). Padding in front passes z on."""
    head = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*valid.shape, *leaf.shape)), z)
    before, eta = kernel.unroll(x, head, restarts(jnp.zeros_like(valid), valid))
    return jax.tree.map(lambda new, old: jnp.where(valid[-1], new[-1], old), eta, z), before, eta


def mix(old: State, new: State, rate: float) -> State:
    """(1 - rate) old + rate new, which is exactly the new one at rate 1."""
    if rate == 1.0:
        return new
    return jax.tree.map(lambda a, b: (1.0 - rate) * a + rate * b, old, new)
