"""Adversarial imitation (GAIL) around an on-policy algorithm: rewards say how much a step looks like the expert's.

    L_D = - E_expert log D(x) - E_policy log(1 - D(x)) - c_H E H(D(x)) + c_g E_expert |d logit(x) / dx|^2
    r   = - log(1 - D(x)),   D = sigmoid(logit)

or by least squares, with the logit itself as D:

    L_D = E_expert (D(x) - 1)^2 + E_policy (D(x) + 1)^2 + c_g ...,   r = max(0, 1 - (D(x) - 1)^2 / 4)

x is the state and the action, the state and the next one, or the state alone. The state is the critic's view, where the
demonstrations have it; z is never part of it, so the discriminator is the same for every memory rule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from s2pg.actor import Actor
from s2pg.algorithms.base import Algorithm, Metrics, Plan, Policy, TrainState
from s2pg.errors import UserError
from s2pg.networks import MLP
from s2pg.normalise import CLIP, Normaliser, merge, normalise
from s2pg.optimise import adam, step
from s2pg.options import option
from s2pg.types import CRITIC, POLICY, Expert, Obs, Space, Spec, Transition

Rows = Float[Array, "_ size"]  # of x
Judge = Callable[[Array], Array]  # x -> [logit]
Inputs = Literal["action", "next", "state"]


class Scale(NamedTuple):
    """The expert's mean and deviation of x."""

    mean: Array
    deviation: Array


class Past(NamedTuple):
    """A ring of rows that the policy has visited, for a discriminator that is not to forget them."""

    rows: Rows
    written: Array  # rows so far, counted on from the ring's length once it is full


class Learner(NamedTuple):
    """What imitation keeps beside what the inner algorithm keeps."""

    inner: Any
    judge: MLP
    optimiser: Any
    scale: Scale
    past: Past
    space: Space  # of actions; has no leaves


class Adversarial(Algorithm):
    """PPO or TRPO that is paid for looking like an expert.

    `shared` is an `Expert`.
    """

    inner: Algorithm
    judge_inputs: Inputs = option(
        "next", "what the discriminator sees beside the state: action, next (state), or the state alone",
        choices=("action", "next", "state"),
    )  # fmt: skip
    judge_loss: Literal["entropy", "squares"] = option(
        "entropy", "cross-entropy or least squares", choices=("entropy", "squares")
    )
    judge_width: int = option(256, "units of the discriminator's second layer; its first has twice as many", low=1)
    judge_rate: float = option(5e-5, "learning rate of the discriminator", above=0)
    judge_steps: int = option(2, "gradient steps of the discriminator each time", low=1)
    judge_every: int = option(1, "updates from one time to the next", low=1)
    judge_batch: int = option(2048, "rows of the expert, and as many of the policy, in each of them", low=1)
    judge_penalty: float = option(1.0, "c_g: weight of the discriminator's squared slope at the expert's rows", low=0)
    judge_entropy: float = option(0.0, "c_H: weight of the discriminator's entropy, under cross-entropy", low=0)
    judge_noise: float = option(0.0, "deviation of noise on the discriminator's inputs while it learns", low=0)
    judge_scale: Literal["expert", "policy"] = option(
        "expert", "whose statistics its inputs are scaled by", choices=("expert", "policy")
    )
    judge_past: int = option(0, "earlier rows of the policy that make up half of its batches; 0: none", low=0)
    task_weight: float = option(0.0, "weight of the task's own reward beside that of the discriminator")

    def __check_init__(self) -> None:
        if self.judge_scale == "policy" and self.judge_past:
            raise UserError("judge_past keeps rows as they were scaled, and judge_scale=policy scales anew: use expert")
        if self.judge_scale == "policy" and not getattr(self.inner, "normalise_obs", True):
            raise UserError("judge_scale=policy needs statistics of the policy: set normalise_obs=true, or use expert")

    @property
    def plan(self) -> Plan:
        return self.inner.plan

    def init_policy(self, spec: Spec, *, key: PRNGKeyArray) -> Policy:
        return self.inner.init_policy(spec, key=key)

    def views_of_expert(self, spec: Spec, known: Collection[str]) -> list[str]:
        """The views that demonstrations must have, of those that they have: the full state, or what policies see."""
        return [CRITIC if CRITIC in known else POLICY]

    def actor(self, policy: Policy, explore: bool = True) -> Actor:
        return self.inner.actor(policy, explore)

    def store(self, state: TrainState, batch: Transition) -> TrainState:
        return state  # on policy nothing is stored

    def init(self, spec: Spec, shared: Expert, *, key: PRNGKeyArray) -> TrainState:
        inner_key, judge_key = jax.random.split(key)
        state = self.inner.init(spec, shared, key=inner_key)
        if self.judge_inputs == "action" and shared.action.shape[1:] == (0,):
            raise UserError("judge_inputs=action needs demonstrations with actions, and these have none; use next")
        rows = jax.vmap(lambda row: features(self.judge_inputs, _view(shared), spec.action, row))(shared)
        scale = Scale(jnp.mean(rows, axis=0), jnp.std(rows, axis=0))
        size = rows.shape[-1]
        judge: Any = MLP([size, 2 * self.judge_width, self.judge_width, 1], key=judge_key, last_gain=0.1)
        past = Past(jnp.zeros((self.judge_past, size)), jnp.zeros((), jnp.int32))
        own = Learner(state.learner, judge, self.optimiser.init(judge), scale, past, spec.action)
        return state._replace(learner=own)

    @property
    def optimiser(self) -> Any:
        """The discriminator's."""
        return adam(self.judge_rate, max_norm=0.0)

    def update(
        self, state: TrainState, batch: Transition, shared: Expert, key: PRNGKeyArray
    ) -> tuple[TrainState, Metrics]:
        judge_key, past_key, told_key, inner_key = jax.random.split(key, 4)
        own, view = state.learner, _view(shared)
        stats = begun(state.policy.normaliser, batch.obs)
        each = jax.vmap(lambda row: self._scaled(own, stats, view, row))
        fresh = Expert(batch.obs, batch.next_obs, batch.decision.action, batch.terminated, batch.first)
        seen = jax.vmap(each)(fresh)

        def expert(key: PRNGKeyArray) -> Rows:
            """Some rows of the expert; all of them, scaled for every seed, would take much room."""
            return each(_drawn(shared, self.judge_batch, key))

        visited = seen.reshape(-1, seen.shape[-1])
        judge, optimiser = jax.lax.cond(
            state.updates % self.judge_every == 0,
            lambda: self._teach(own, expert, visited, judge_key),
            lambda: (own.judge, own.optimiser),
        )
        logits = jax.vmap(jax.vmap(judge))(seen)[..., 0]
        looks = self.reward(logits)
        reward = looks + self.task_weight * batch.reward
        inside = state._replace(learner=own.inner)
        after, metrics = self.inner.update(inside, batch._replace(reward=reward), shared, inner_key)
        past = _remembered(own.past, visited, past_key)
        learner = own._replace(inner=after.learner, judge=judge, optimiser=optimiser, past=past)
        told = {
            "imitation_reward": jnp.mean(looks),
            "judge_right_policy": jnp.mean(logits < 0),
            "judge_right_expert": jnp.mean(jax.vmap(judge)(expert(told_key))[:, 0] > 0),
        }
        return after._replace(learner=learner), metrics | told

    def reward(self, logit: Array) -> Array:
        """r."""
        if self.judge_loss == "squares":
            return jnp.maximum(0.0, 1.0 - (logit - 1.0) ** 2 / 4.0)
        return jax.nn.softplus(logit)  # - log(1 - sigmoid(logit))

    def loss(self, judge: Judge, expert: Rows, policy: Rows) -> Array:
        """L_D."""
        real, fake = (jax.vmap(judge)(rows)[:, 0] for rows in (expert, policy))
        slopes = jax.vmap(jax.grad(lambda x: judge(x)[0]))(expert) if self.judge_penalty else jnp.zeros_like(expert)
        penalty = self.judge_penalty * jnp.mean(jnp.sum(slopes**2, axis=-1))
        if self.judge_loss == "squares":
            return jnp.mean((real - 1.0) ** 2) + jnp.mean((fake + 1.0) ** 2) + penalty
        logits = jnp.concatenate([real, fake])
        # H of a coin with this logit: log(1 + e^l) - l sigmoid(l).
        entropy = jnp.mean(jax.nn.softplus(logits) - logits * jax.nn.sigmoid(logits))
        told_apart = jnp.mean(jax.nn.softplus(-real)) + jnp.mean(jax.nn.softplus(fake))
        return told_apart - self.judge_entropy * entropy + penalty

    def _teach(
        self, own: Learner, expert: Callable[[PRNGKeyArray], Rows], visited: Rows, key: PRNGKeyArray
    ) -> tuple[MLP, Any]:
        """Some gradient steps of the discriminator; `expert` draws rows of the expert."""

        def once(carry: tuple[MLP, Any], key: PRNGKeyArray) -> tuple[tuple[MLP, Any], None]:
            real_key, fake_key, *noise_keys = jax.random.split(key, 4)
            real = expert(real_key)
            fake = _mixed(visited, own.past, self.judge_batch, fake_key)
            if self.judge_noise:
                real, fake = (
                    rows + self.judge_noise * jax.random.normal(key, rows.shape)
                    for rows, key in zip((real, fake), noise_keys, strict=True)
                )
            judge, optimiser = carry
            stepped = step(self.optimiser, jax.grad(self.loss)(judge, real, fake), optimiser, judge)
            return (stepped.network, stepped.state), None

        taught, _ = jax.lax.scan(once, (own.judge, own.optimiser), jax.random.split(key, self.judge_steps))
        return taught

    def _scaled(self, own: Learner, stats: Normaliser, view: str, row: Expert) -> Array:
        """x of one step, as the discriminator sees it."""
        if self.judge_scale == "policy":
            obs, ahead = (normalise(stats, each) for each in (row.obs, row.next_obs))
            return features(self.judge_inputs, view, own.space, row._replace(obs=obs, next_obs=ahead))
        # What the expert holds constant is not to be told apart by its last digit.
        deviation = jnp.maximum(own.scale.deviation, 1e-3)
        scaled = (features(self.judge_inputs, view, own.space, row) - own.scale.mean) / deviation
        return jnp.clip(scaled, -CLIP, CLIP)


def begun(stats: Normaliser, obs: Obs) -> Normaliser:
    """The policy's statistics; before there are any, those of its first batch."""
    fresh = merge(stats, obs)
    return {
        name: jax.tree.map(lambda kept, new, known=kept.number > 0: jnp.where(known, kept, new), kept, fresh[name])
        for name, kept in stats.items()
    }


def features(inputs: Inputs, view: str, space: Space, row: Expert) -> Array:
    """x of one step; its action as it was executed."""
    if inputs == "state":
        return row.obs[view]
    beside = row.next_obs[view] if inputs == "next" else space.encode(row.action)
    return jnp.concatenate([row.obs[view], beside])


def _view(expert: Expert) -> str:
    return CRITIC if CRITIC in expert.obs else POLICY


def _drawn(rows: Any, count: int, key: PRNGKeyArray) -> Any:
    chosen = jax.random.randint(key, (count,), 0, jax.tree.leaves(rows)[0].shape[0])
    return jax.tree.map(lambda leaf: leaf[chosen], rows)


def _mixed(fresh: Rows, past: Past, count: int, key: PRNGKeyArray) -> Rows:
    """Rows of the policy: fresh ones, and for every second one a row of the past, once there is one."""
    fresh_key, past_key = jax.random.split(key)
    drawn, room = _drawn(fresh, count, fresh_key), past.rows.shape[0]
    if not room:
        return drawn
    filled = jnp.minimum(past.written, room)
    earlier = past.rows[jax.random.randint(past_key, (count,), 0, jnp.maximum(filled, 1))]
    old = (jnp.arange(count) % 2 == 1) & (filled > 0)
    return jnp.where(old[:, None], earlier, drawn)


def _remembered(past: Past, visited: Rows, key: PRNGKeyArray) -> Past:
    """The ring with an eighth of itself replaced by rows of the present."""
    room = past.rows.shape[0]
    if not room:
        return past
    count = max(1, room // 8)
    where = (past.written + jnp.arange(count)) % room
    written = past.written + count
    written = jnp.where(written >= 2 * room, written - room, written)  # it must not grow for ever
    return Past(past.rows.at[where].set(_drawn(visited, count, key)), written)
