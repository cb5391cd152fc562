"""Gymnasium environments on the host: `GymTask` says which, `GymLanes` steps S x N of them in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from s2pg.envs.base import seconds
from s2pg.envs.host import Action, Actions, Lanes, Outcome
from s2pg.errors import UserError
from s2pg.types import CRITIC, POLICY, PREVIOUS_ACTION, Spec

PREFIX = "gym:"
UNLIMITED = 10_000  # where episodes of an environment without a time limit are cut


class _Vector(NamedTuple):
    """A space as a flat vector: its size, and what turns one of its elements into float32 [size]."""

    size: int
    of: Callable[[Any], np.ndarray]


def _vector(space: spaces.Space, where: str) -> _Vector:
    match space:
        case spaces.Box():
            return _Vector(int(np.prod(space.shape)), lambda x: np.asarray(x, np.float32).reshape(-1))
        case spaces.Discrete():
            n, start = int(space.n), int(space.start)
            return _Vector(n, lambda x: np.eye(n, dtype=np.float32)[int(x) - start])
        case spaces.Dict() | spaces.Tuple():
            inner: dict[Any, spaces.Space] = dict(space.items() if isinstance(space, spaces.Dict) else enumerate(space))
            parts = {key: _vector(inner[key], where) for key in sorted(inner)}
            size = sum(part.size for part in parts.values())
            return _Vector(size, lambda x: np.concatenate([part.of(x[key]) for key, part in parts.items()]))
    raise UserError(f"observations of {where} are {type(space).__name__}; known: Box, Discrete, Dict, Tuple")


class _Views:
    """The named views of an environment's observation; hidden entries are zero in `policy`."""

    def __init__(self, space: spaces.Space, hide: tuple[int, ...], where: str):
        named = dict(space.items()) if isinstance(space, spaces.Dict) else {}
        self._named = POLICY in named
        if self._named:
            self._parts = {name: _vector(part, where) for name, part in named.items()}
        else:
            self._parts = {POLICY: _vector(space, where)}
        if PREVIOUS_ACTION in self._parts:
            raise UserError(f"observations of {where} have a key '{PREVIOUS_ACTION}', which is the library's own")
        self.sizes = {name: part.size for name, part in self._parts.items()}
        self.sizes.setdefault(CRITIC, self.sizes[POLICY])
        outside = [index for index in hide if not 0 <= index < self.sizes[POLICY]]
        if outside:
            raise UserError(f"cannot hide entry {outside[0]} of {where}: it has entries 0 to {self.sizes[POLICY] - 1}")
        self._hide = list(hide)

    def of(self, observation: Any) -> dict[str, np.ndarray]:
        views = {name: part.of(observation[name] if self._named else observation) for name, part in self._parts.items()}
        views.setdefault(CRITIC, views[POLICY])
        views[POLICY] = views[POLICY].copy()
        views[POLICY][self._hide] = 0.0
        return views


class GymTask:
    """A Gymnasium environment by its id, `gym:Pendulum-v1` or `gym:module:Id-v0`, with entries `hide` unseen.

    `horizon` replaces the environment's own time limit; other keywords go to `gymnasium.make`. The critic
    view shows what is hidden from the policy, and a Dict observation with a `policy` key names views itself.
    """

    def __init__(self, id: str, hide: Any = (), horizon: int | None = None, **kwargs: Any):
        self.id = id if id.startswith(PREFIX) else PREFIX + id
        hide = (hide,) if isinstance(hide, int) else hide
        if not isinstance(hide, tuple | list) or not all(type(index) is int for index in hide):
            raise UserError(f"hide must be indices such as 2 or 2,3, not {hide!r}")
        if horizon is not None and (not isinstance(horizon, int) or horizon < 1):
            raise UserError(f"horizon of {id} must be a whole number of at least 1, not {horizon!r}")
        for name in ("max_episode_steps", "render_mode"):
            if name in kwargs:
                other = "the option horizon" if name == "max_episode_steps" else "films"
                raise UserError(f"{name} of {id} is set by {other}")
        self._kwargs, self._hide, self._limit = kwargs, tuple(hide), horizon
        env = self._make()
        try:
            limit = env.spec.max_episode_steps if env.spec else None
            self._views = _Views(env.observation_space, self._hide, self.id)
            self._actions = Actions(env.action_space, self.id)
            dt = seconds(getattr(env.unwrapped, "dt", None))
        finally:
            env.close()
        sizes = self._views.sizes | {PREVIOUS_ACTION: self._actions.space.size}
        self.spec = Spec(views=sizes, action=self._actions.space, horizon=horizon or limit or UNLIMITED, dt=dt)

    @property
    def options(self) -> dict[str, Any]:
        """What it was made with, beside the id."""
        given = {"hide": self._hide or None, "horizon": self._limit}
        return {name: value for name, value in given.items() if value is not None} | self._kwargs

    def __repr__(self) -> str:
        return f"GymTask({', '.join([repr(self.id), *(f'{name}={value!r}' for name, value in self.options.items())])})"

    def _make(self, **more: Any) -> gymnasium.Env:
        try:
            return gymnasium.make(self.id.removeprefix(PREFIX), **self._kwargs, **more)
        except Exception as error:  # whatever an environment's constructor may raise
            raise UserError(f"cannot make {self.id}: {' '.join(str(error).split())}") from error

    def read(self, observation: Any) -> dict[str, np.ndarray]:
        """The views of an observation as the environment gives it: what a session wants where that is no vector."""
        return self._views.of(observation)

    def lanes(self, seeds: Sequence[int], lanes: int, stream: int = 0, render: bool = False) -> GymLanes:
        """`lanes` environments for each seed; another `stream` gives other episodes, as for evaluation."""
        more = {"render_mode": "rgb_array"} if render else {}
        envs = [self._make(max_episode_steps=self.spec.horizon, **more) for _ in range(len(seeds) * lanes)]
        shared = (self.spec.views, self._actions, seeds, lanes, stream, self.spec.horizon)
        return GymLanes(envs, self._views, *shared)


class GymLanes(Lanes):
    """Gymnasium environments stepped one after the other."""

    def __init__(self, envs: list[gymnasium.Env], views: _Views, *shared: Any):
        super().__init__(*shared)
        self._envs, self._views = envs, views

    def _show(self, i: int, observation: Any) -> None:
        for name, view in self._views.of(observation).items():
            self._obs[name][i] = view

    def _open(self, i: int, seed: int) -> None:
        observation, _ = self._envs[i].reset(seed=seed)
        self._show(i, observation)

    def _step(self, i: int, action: Action) -> tuple[float, bool, bool]:
        observation, reward, terminated, truncated, _ = self._envs[i].step(self._actions.execute(action))
        self._show(i, observation)
        return float(reward), bool(terminated), bool(truncated) and not terminated

    def _move(self, lanes: Sequence[int], actions: np.ndarray) -> Outcome:
        return Outcome(*zip(*map(self._step, lanes, actions), strict=True))

    def render(self, lane: int = 0) -> np.ndarray:
        try:
            picture = self._envs[lane].render()
        except gymnasium.error.DependencyNotInstalled as error:
            raise UserError(f"cannot draw: {error}") from error
        if not isinstance(picture, np.ndarray):
            raise UserError("this environment draws no RGB pictures, or its lanes were made without render=True")
        return picture

    def close(self) -> None:
        for env in self._envs:
            env.close()
