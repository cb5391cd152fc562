"""Gymnax environments on the device: `gymnax:CartPole-v1`, `gymnax:MemoryChain-bsuite` and so on."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from s2pg.envs.adapter import Adapter, Hide, Horizon, Source, alike, attempt, firm, given, hidden, limit, package
from s2pg.errors import UserError, unknown
from s2pg.types import Box, Discrete, Obs

PREFIX = "gymnax:"
REMEDY = "pip install 's2pg[gymnax]'"


@runtime_checkable
class GymnaxEnv(Protocol):
    """What is asked of a Gymnax environment."""

    def reset_env(self, key: PRNGKeyArray, params: Any) -> tuple[PyTree, PyTree]:
        """(observation, state) at the start of an episode."""
        ...

    def step_env(
        self, key: PRNGKeyArray, state: PyTree, action: Array, params: Any
    ) -> tuple[PyTree, PyTree, Any, Any, dict[str, Any]]:
        """(observation, state, reward, whether it ended, information) after a step."""
        ...


class GymnaxState(NamedTuple):
    """An environment between two steps."""

    own: PyTree  # the environment's
    obs: PyTree  # kept, since some observations are drawn, or tell of the state before


class GymnaxTask(Adapter[GymnaxEnv]):
    """A Gymnax environment; its critic sees what is hidden from the policy."""

    def begin(self, key: PRNGKeyArray) -> GymnaxState:
        obs, own = self.made.env.reset_env(key, self.made.params)
        return firm(GymnaxState(own, obs))

    def move(
        self, inner: GymnaxState, elapsed: Array, action: Array, key: PRNGKeyArray
    ) -> tuple[GymnaxState, Array, Array]:
        # `step` itself would reset the environment, and keep the end to itself.
        obs, own, reward, ended, _ = self.made.env.step_env(key, inner.own, action, self.made.params)
        reward, ended = jnp.asarray(reward, float).reshape(()), jnp.asarray(ended, bool).reshape(())
        return alike(GymnaxState(own, obs), inner), reward, ended

    def views(self, inner: GymnaxState, elapsed: Array) -> Obs:
        return self.show(inner.obs, inner.obs)


def _action(space: Any, task: str) -> Box | Discrete:
    if hasattr(space, "n"):
        return Discrete(int(space.n))
    if not hasattr(space, "low"):
        raise UserError(f"actions of {task} are {type(space).__name__}; known: Box, Discrete")
    low, high = (np.broadcast_to(np.asarray(bound, float), space.shape).ravel() for bound in (space.low, space.high))
    return Box(tuple(map(float, low)), tuple(map(float, high)), tuple(space.shape))


def make(id: str, hide: Hide = (), horizon: Horizon = None, **options: Any) -> GymnaxTask:
    """Makes the task `gymnax:ID`; further options are parameters of the environment, or go to its constructor."""
    hide, name = hidden(hide), id.removeprefix(PREFIX)
    gymnax = package("gymnax", id, REMEDY)
    if name not in gymnax.registered_envs:
        raise unknown("Gymnax environment", name, gymnax.registered_envs)
    _, params = attempt(id, lambda: gymnax.make(name))
    fields = {field.name for field in dataclasses.fields(params)}
    env, params = attempt(id, lambda: gymnax.make(name, **{k: v for k, v in options.items() if k not in fields}))
    steps = limit(id, horizon, int(params.max_steps_in_episode), "max_steps_in_episode", options)
    # Gymnax before 1.0 counts its time limit as an end like others: one step behind ours it is never reached.
    behind = 0 if hasattr(env, "is_truncated") else 1
    chosen = {k: v for k, v in options.items() if k in fields} | {"max_steps_in_episode": steps + behind}
    params = attempt(id, lambda: params.replace(**chosen))
    own = given(hide=hide, horizon=horizon) | options
    made = Source(id, own, env, _action(env.action_space(params), id), params)
    return attempt(id, lambda: GymnaxTask(made=made, horizon=steps, hide=hide))
