"""BPTT: the next internal state is recomputed along a segment, and gradients flow back through it."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.kernel import Kernel
from s2pg.memory.base import (
    ActionRule,
    Evaluation,
    ReplayEvaluation,
    ReplaySample,
    Sample,
    Segments,
    Spans,
    consecutive,
    ending_at_each,
    judge,
    mix,
    restarts,
    walk,
)
from s2pg.options import option
from s2pg.types import Decision, State


class UnrollRule(ActionRule):
    """z' = eta(o, z) is recomputed along a segment of n steps from the state at its head.

    `last` takes the loss on the last step of each sample alone; then every step of a batch ends a sample of
    its own, with the n - 1 steps before it, and a batch costs n times as much.

    Off policy, `burn_in` more steps before the segment bring z up to date without a gradient. The state at the head
    is the stored one, or the initial one with `zero_head`; `refresh_heads` keeps stored states up to date.
    """

    length: int = eqx.field(static=True)
    last: bool = eqx.field(static=True, default=False)
    burn_in: int = option(
        0, "steps before each replayed segment of bptt that bring z up to date without a gradient", low=0, replay=True
    )
    zero_head: bool = option(
        False, "begin replayed segments of bptt with the initial state, instead of the stored one", replay=True
    )
    refresh_heads: float = option(
        0.0, "how far states stored under bptt move to their recomputed values; 0: not at all", low=0, high=1,
        replay=True,
    )  # fmt: skip

    @property
    def spans(self) -> Spans:
        return Spans(self.burn_in + self.length, 1 if self.last else self.length)

    def segments(self, steps: int, lanes: int) -> Segments:
        return (ending_at_each if self.last else consecutive)(self.length, steps, lanes)

    def act(self, kernel: Kernel, obs: Array, z: State, key: PRNGKeyArray | None) -> tuple[Decision, State, Decision]:
        step = kernel(obs, z)
        decision, log_prob = self.draw(step, key)
        return decision, step.state.mode(), log_prob

    def evaluate(self, kernel: Kernel, sample: Sample) -> Evaluation:
        x = jax.vmap(kernel.embed)(sample.obs)
        z, eta = kernel.unroll(x, sample.z, restarts(sample.first, sample.valid))
        now, log_prob, entropy = jax.vmap(lambda x, eta, u: judge(kernel.emit(x, eta), u))(x, eta, sample.decision)
        mask = sample.valid & (jnp.arange(self.length) == self.length - 1) if self.last else sample.valid
        z, eta = jax.lax.stop_gradient((z, eta))
        return Evaluation(now, z, eta, log_prob, entropy, jnp.zeros(mask.shape), mask)

    def stored(self, z: State) -> State:
        return () if self.zero_head else z

    def unfold(self, kernel: Kernel, sample: ReplaySample, key: PRNGKeyArray | None) -> ReplayEvaluation:
        valid = jnp.append(sample.valid, True)
        head = kernel.initial() if self.zero_head else sample.z
        if self.burn_in:
            early = jax.vmap(jax.lax.stop_gradient(kernel).embed)(sample.obs[: self.burn_in])
            head, _, _ = walk(jax.lax.stop_gradient(kernel), early, valid[: self.burn_in], head)
        x = jax.vmap(kernel.embed)(sample.obs[self.burn_in :])
        _, z, eta = walk(kernel, x, valid[self.burn_in :], jax.lax.stop_gradient(head))
        # One pass for both: what is `ahead` of a step is `now` of the next.
        x, z, eta = jax.tree.map(lambda leaf: leaf[-self.spans.graded - 1 :], (x, z, eta))
        step, z = jax.vmap(kernel.emit)(x, eta), jax.lax.stop_gradient(z)
        before, after = ((lambda leaf: leaf[:-1]), (lambda leaf: leaf[1:]))
        latest = jax.tree.map(lambda leaf: leaf[-1], z)
        refreshed = key is not None and self.refresh_heads > 0.0 and not self.zero_head
        fresh = ()
        if refreshed:
            kept = jax.tree.map(lambda leaf: leaf[-1], sample.next_z)
            fresh = jax.tree.map(lambda leaf: leaf[None], mix(kept, latest, self.refresh_heads))
        now, ahead = (jax.tree.map(part, step) for part in (before, after))
        return ReplayEvaluation(now, ahead, jax.tree.map(before, z), jax.tree.map(after, z), fresh)
