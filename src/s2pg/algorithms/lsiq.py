"""LS-IQ around SAC: Q itself is the reward of imitation, by least squares towards what an expert's steps are worth.

    r_max, r_min = 1 / c, - 1 / c,   Q_max = r_max / (1 - gamma)
    V'    = clip(min_i Q_i'(s', z', u') - alpha^a log pi(a' | x'), - Q_max, Q_max),               u' ~ pi(. | x')
    y     = Q_max                                   on the expert's rows
          = r_min + gamma V', or - Q_max at an end  on the policy's
    L_Q   = 1/2 E_expert, policy sum_i (Q_i(s, z, u) - y)^2

`objective=sqil` bootstraps on the expert's rows too: y = r_max + gamma V', or Q_max at an end. A memory that is to be
learned from single transitions wants that: a fixed target does not tell what z' is worth. With `target_state_entropy`
V' counts the entropy of z' as well. `objective=iq` is
inverse soft Q-learning, with the implied reward r_Q = Q - gamma V' and c its regulariser:

    L_Q   = - E_expert r_Q + E_expert, policy [V(s, z) - gamma V' + c r_Q^2]

The actor learns as SAC's does, at the states of both; temperatures follow the policy's. Demonstrations are a second
replay buffer, whose rows are the shared data. Internal states at them are a seed's own: those of the first policy at
the start, and refreshed like all others. That is sound since z' is independent of a given (o, z): the expert's a goes
with a z' of ours.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from s2pg import replay
from s2pg.actor import Actor
from s2pg.algorithms.base import Algorithm, Metrics, Plan, Policy, TrainState
from s2pg.algorithms.expert import rolled
from s2pg.algorithms.offpolicy import (
    Batch,
    critic_histories,
    decision_values,
    draw,
    in_turns,
    mean,
)
from s2pg.algorithms.sac import SAC
from s2pg.critics import Critic
from s2pg.errors import UserError
from s2pg.memory import ReplayEvaluation
from s2pg.options import option
from s2pg.types import Expert, Spec, State, Transition, weighted


class Buffers(NamedTuple):
    """Experience of the policy's own, and what the policy remembers at the expert's rows, which are not kept here."""

    own: replay.Replay
    remembered: State  # [rows, 1, ...], z' after each


class LSIQ(Algorithm):
    """SAC whose critics learn from an expert what is good.

    `shared` is an `Expert` with actions.
    """

    inner: SAC
    regulariser: float = option(0.5, "c: one over the reward of an expert's step; Q_max = 1 / (c (1 - gamma))", above=0)
    objective: Literal["lsiq", "sqil", "iq"] = option(
        "lsiq", "of the critics: lsiq (a fixed target for the expert), sqil (a bootstrapped one) or iq",
        choices=("lsiq", "sqil", "iq"),
    )  # fmt: skip

    @property
    def plan(self) -> Plan:
        return self.inner.plan

    @property
    def limit(self) -> float:
        """Q_max."""
        return 1.0 / (self.regulariser * (1.0 - self.inner.discount))

    def init_policy(self, spec: Spec, *, key: PRNGKeyArray) -> Policy:
        return self.inner.init_policy(spec, key=key)

    def views_of_expert(self, spec: Spec, known: Collection[str]) -> list[str]:
        """The views that demonstrations must have: all that actor and critics read."""
        return list(self.inner.views(spec))

    def actor(self, policy: Policy, explore: bool = True) -> Actor:
        return self.inner.actor(policy, explore)

    def init(self, spec: Spec, shared: Expert, *, key: PRNGKeyArray) -> TrainState:
        inner_key, expert_key = jax.random.split(key)
        if shared.action.shape[1:] == (0,):
            raise UserError("lsiq needs demonstrations with actions, and these have none; use gail")
        if self.inner.discount >= 1.0:
            raise UserError("lsiq: an expert's step is worth 1 / (c (1 - discount)), so discount must be below 1")
        state = self.inner.init(spec, (), key=inner_key)
        _, next_z = rolled(self.inner.actor(state.policy), shared, expert_key)
        remembered = jax.tree.map(lambda leaf: leaf[:, None], self.inner.memory.stored(next_z))
        return state._replace(replay=Buffers(state.replay, remembered))

    def store(self, state: TrainState, batch: Transition) -> TrainState:
        kept = self.inner.store(state._replace(replay=state.replay.own), batch)
        return kept._replace(replay=state.replay._replace(own=kept.replay))

    def update(
        self, state: TrainState, batch: Transition, shared: Expert, key: PRNGKeyArray
    ) -> tuple[TrainState, Metrics]:
        learn = lambda state, key: self.learn(state, shared, key)  # noqa: E731
        return in_turns(learn, self.store(state, batch), self.inner.gradient_steps, key)

    def learn(self, state: TrainState, shared: Expert, key: PRNGKeyArray) -> tuple[TrainState, Metrics]:
        """One gradient step on as many samples of the policy as of the expert."""
        own_key, expert_key, *keys = jax.random.split(key, 5)
        own, remembered = state.replay
        expert = replay.ExpertReplay(_with_views(shared, [name for name, _ in own.views]), remembered)
        found, batch = self.inner.sample_batch(own, state.policy, own_key)
        shown, given = self.inner.sample_batch(expert, state.policy, expert_key)
        given = given._replace(row=given.row + self.inner.capacity)  # noise of its own, not that of the policy's row
        both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), batch, given)
        state, unfolded, metrics = self.inner.descend(state, both, keys, self.critic_gradient, ~self._is_expert(both))
        fresh, fresh_given = (
            jax.tree.map(lambda leaf, half=half: jnp.split(leaf, 2)[half], unfolded.fresh) for half in (0, 1)
        )
        buffers = Buffers(replay.write(own, found, fresh), replay.write(expert, shown, fresh_given).next_z)
        return state._replace(replay=buffers), metrics

    def critic_gradient(
        self, state: TrainState, batch: Batch, unfolded: ReplayEvaluation, key: PRNGKeyArray
    ) -> tuple[Critic, Metrics]:
        """The gradient of L_Q on policy's and expert's samples, one behind the other."""
        future_key, now_key = jax.random.split(key)
        inner, kernel, expert = self.inner, state.policy.kernel, self._is_expert(batch)
        future = jnp.clip(inner.future(state, batch, unfolded, future_key), -self.limit, self.limit)
        stored = inner.memory.halves(batch.action, unfolded.next_z)
        drawn, log_prob = draw(inner.memory, unfolded.now, now_key)
        entropy = weighted(inner.rewarded(state.learner), log_prob)
        target, ahead = self.target(future, batch.alive, expert), inner.discount * batch.alive * future

        def halved(x: Float[Array, "B m"]) -> Array:
            """The mean over expert and policy, alike however many rows of their samples are padding."""
            return 0.5 * (mean(x, batch.mask & expert) + mean(x, batch.mask & ~expert))

        def cost(values: Float[Array, "B m"], here: Float[Array, "B m"]) -> Array:
            """L_Q of one critic, from Q(s, z, u) and from Q(s, z, u~) at a decision of the policy."""
            if self.objective != "iq":
                return 0.5 * halved((values - target) ** 2)
            implied = values - ahead
            regular = halved(here - entropy - ahead + self.regulariser * implied**2)
            return regular - mean(implied, batch.mask & expert)

        def loss(critic: Critic) -> tuple[Array, Float[Array, "critics B m"]]:
            h, _ = critic_histories(critic, batch)
            values, here = (
                decision_values(critic, kernel, batch.obs, h, unfolded.z, decision) for decision in (stored, drawn)
            )
            return jnp.sum(jax.vmap(cost)(values, here)), values

        (lost, values), gradient = jax.value_and_grad(loss, has_aux=True)(state.learner.critic)
        return gradient, {
            "critic_loss": lost,
            "value": mean(values[0], batch.mask & ~expert),
            "expert_value": mean(values[0], batch.mask & expert),
        }

    def target(
        self, future: Float[Array, "B m"], alive: Float[Array, "B m"], expert: Bool[Array, "B m"]
    ) -> Float[Array, "B m"]:
        """y, from V' and 1 - terminated; an end is worth what its reward would be, received for ever."""
        reward = jnp.where(expert, 1.0, -1.0) / self.regulariser
        for_ever = reward / (1.0 - self.inner.discount)
        bootstrapped = jnp.where(alive > 0, reward + self.inner.discount * future, for_ever)
        return jnp.where(expert & (self.objective == "lsiq"), for_ever, bootstrapped)

    def _is_expert(self, batch: Batch) -> Bool[Array, "B m"]:
        samples = batch.mask.shape[0]
        return jnp.broadcast_to((jnp.arange(samples) >= samples // 2)[:, None], batch.mask.shape)


def _with_views(expert: Expert, names: Sequence[str]) -> Expert:
    """Demonstrations with these views alone, in this order."""
    obs, next_obs = ({name: each[name] for name in names} for each in (expert.obs, expert.next_obs))
    return expert._replace(obs=obs, next_obs=next_obs)
