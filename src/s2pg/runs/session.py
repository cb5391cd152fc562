"""Trained policies for use: a session keeps z and the previous action for the caller, `predict` hands them out."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from s2pg.actor import Actor
from s2pg.errors import UserError
from s2pg.flat import FlatPolicy
from s2pg.types import POLICY, Spec


@dataclasses.dataclass(frozen=True)
class LoadedPolicy:
    """A policy of a run, for use."""

    actor: Actor
    spec: Spec
    hide: tuple[int, ...] = ()  # entries of a Gymnasium observation that it was trained without

    @functools.cached_property
    def flat(self) -> FlatPolicy:
        """The policy between flat vectors."""
        return FlatPolicy(self.actor, self.spec, self.hide)

    def session(self, explore: bool = False, seed: int = 0, lanes: int | None = None) -> Session:
        """An object that keeps z for the caller: `a = session(obs)`, `session.reset()`; of `lanes` side by side."""
        return Session(self, explore, seed, lanes)

    def as_function(self) -> Callable[[Array, Array, Any], tuple[Array, Array]]:
        """`step(obs, state, first) -> (action, state)`: pure, for one example, deterministic.

        For loops of one's own in JAX: under jit, vmap and scan like any other function. `obs` is a vector of the views
        that the policy reads, `state` a vector (`policy.flat.initial` to begin with), `first` says that an episode
        begins. Actions are in the environment's own units.
        """
        return self.flat.step

    def predict(
        self,
        observation: Any,
        state: np.ndarray | None = None,
        episode_start: np.ndarray | bool | None = None,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, np.ndarray]:
        """(actions, states) of observations [n, N], or of a single one [N]; to be called like Stable-Baselines3's.

        The states go into the next call, with `episode_start` set where an episode has begun since. Without a state
        all of them begin. Each call without `deterministic` draws other numbers, the same ones in every process.
        """
        seen, many = self.read(observation)
        lanes, initial = len(seen), self.flat.initial
        if state is None:
            before, first = np.broadcast_to(initial, (lanes, initial.size)), np.ones(lanes, bool)
        else:
            before = _shaped("state", np.asarray(state, initial.dtype), (lanes, initial.size), many)
            given = False if episode_start is None else episode_start
            first = np.asarray(given, bool)
            first = np.full(lanes, first) if first.ndim == 0 else _shaped("episode_start", first, (lanes,), True)
        if deterministic:
            action, after = self.decide(seen, before, first)
        else:
            action, after, _ = self.draw(seen, before, first, jax.random.key(next(self._calls)))
        own, after = np.array(action), np.array(after)  # copies: those of JAX cannot be written to
        return (own, after) if many else (own[0, ...], after[0])

    def read(self, obs: Any) -> tuple[np.ndarray, bool]:
        """(the views that the policy reads side by side [n, N], whether there were several observations)."""
        given = obs if isinstance(obs, dict) else {POLICY: obs}
        parts = []
        for name, size in self.flat.views.items():
            if name not in given:
                raise UserError(f"this policy reads the view '{name}': call it with a dict that has it")
            part = np.asarray(given[name], np.float32)
            if part.ndim > 1 and math.prod(part.shape[1:]) == size:
                parts.append((part.reshape(-1, size), True))
            elif part.size == size:
                parts.append((part.reshape(1, size), False))
            else:
                raise UserError(f"view '{name}' has shape {part.shape}, this policy reads ({size},) or (n, {size})")
        if len({(len(part), many) for part, many in parts}) != 1:
            told = ", ".join(f"'{name}' {len(part)}" for name, (part, _) in zip(self.flat.views, parts, strict=True))
            raise UserError(f"views must be of as many observations, not {told}")
        return (parts[0][0] if len(parts) == 1 else np.concatenate([part for part, _ in parts], 1)), parts[0][1]

    @functools.cached_property
    def decide(self) -> Callable[..., Any]:
        """(obs [n, N], state [n, M], first [n]) -> (action, state), compiled once for all sessions.

        The weights are constants of the program: handing them over at every step would take longer than the arithmetic.
        """
        return jax.jit(jax.vmap(self.flat.step))

    @functools.cached_property
    def draw(self) -> Callable[..., Any]:
        """The same with a key at the end of arguments and results, which actions and z' are drawn with."""

        def drawn(obs: Array, state: Array, first: Array, key: Array) -> tuple:
            key, own = jax.random.split(key)
            keys = jax.random.split(own, obs.shape[0])
            return *jax.vmap(self.flat.step)(obs, state, first, keys), key

        return jax.jit(drawn)

    @functools.cached_property
    def _calls(self) -> Any:
        return itertools.count()


def _shaped(what: str, array: np.ndarray, shape: tuple[int, ...], many: bool) -> np.ndarray:
    expected = shape if many else shape[1:]
    if array.shape != expected:
        raise UserError(f"{what} has shape {array.shape}, these observations need {expected}")
    return array.reshape(shape)


class Session:
    """`a = session(obs)` with the raw observation, `session.reset()` at the start of an episode.

    `obs` is the policy view as one vector, or a dict of the views the policy reads; hidden entries of the policy
    view are not looked at. For a Gymnasium environment whose observations are no vectors, that dict is
    `task.read(obs)`. Actions come back in the environment's own units, clipped to its bounds. Deterministic
    unless made with `explore`. With `lanes`, observations and actions have an axis of as many in front.
    """

    def __init__(self, policy: LoadedPolicy, explore: bool = False, seed: int = 0, lanes: int | None = None):
        if lanes is not None and lanes < 1:
            raise UserError(f"a session has 1 lane or more, not {lanes}")
        self.spec, self._policy, self._lanes = policy.spec, policy, lanes
        self._key = jax.random.key(seed) if explore else None
        self._none = np.zeros(lanes or 1, bool)
        self.reset()

    def reset(self, lanes: np.ndarray | None = None) -> None:
        """Forgets: the next observation is the first of an episode, in those lanes that a mask names."""
        if lanes is None:
            initial = self._policy.flat.initial
            self._state: Any = np.tile(initial, (self._none.size, 1))
            self._first = ~self._none
        else:
            self._first = self._first | _shaped("lanes", np.asarray(lanes, bool), self._none.shape, True)

    def __call__(self, obs: Any) -> np.ndarray:
        seen, many = self._policy.read(obs)
        if len(seen) != self._none.size or (many and self._lanes is None):
            raise UserError(f"this session has {self._none.size} lanes, and was called with {len(seen)} observations")
        if self._key is None:
            action, self._state = self._policy.decide(seen, self._state, self._first)
        else:
            action, self._state, self._key = self._policy.draw(seen, self._state, self._first, self._key)
        self._first = self._none
        own = np.array(action)  # a copy: those of JAX cannot be written to
        return own[0, ...] if self._lanes is None else own

    @property
    def z(self) -> PyTree:
        """The internal state, with an axis of lanes if the session has one."""
        z, _ = jax.vmap(self._policy.flat.split)(jnp.asarray(self._state))
        return jax.tree.map(lambda leaf: np.asarray(leaf[0] if self._lanes is None else leaf), z)

    @z.setter
    def z(self, z: PyTree) -> None:
        flat, lead = self._policy.flat, (lambda leaf: np.asarray(leaf)[None]) if self._lanes is None else np.asarray
        _, previous = jax.vmap(flat.split)(jnp.asarray(self._state))
        self._state = np.asarray(jax.vmap(flat.join)(jax.tree.map(lead, z), previous))
