"""Gymnasium environments on the host: `GymTask` says which, `GymLanes` steps S x N of them in turn."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from s2pg.envs.adapter import Hide, Horizon, attempt, given, hidden, limit, package
from s2pg.envs.base import seconds
from s2pg.envs.host import Action, Lanes, Outcome
from s2pg.envs.spaces import KNOWN, from_gymnasium
from s2pg.errors import UserError
from s2pg.types import CRITIC, POLICY, PREVIOUS_ACTION, Space, Spec

PREFIX = "gym:"
REMEDIES = {"popgym": "pip install 's2pg[popgym]'"}
UNLIMITED = 10_000  # where episodes of an environment without a time limit are cut


class _Vector(NamedTuple):
    """A space as a flat vector: its size, and what turns one of its elements into float32 [size]."""

    size: int
    of: Callable[[Any], np.ndarray]


def _vector(space: spaces.Space, where: str) -> _Vector:
    match space:
        case spaces.Box():
            return _Vector(int(np.prod(space.shape)), lambda x: np.asarray(x, np.float32).reshape(-1))
        case spaces.Discrete() | spaces.MultiDiscrete() | spaces.MultiBinary():
            one_hot = from_gymnasium(space, where)
            return _Vector(one_hot.size, functools.partial(_one_hot, space, one_hot, where))
        case spaces.Dict() | spaces.Tuple():
            inner: dict[Any, spaces.Space] = dict(space.items() if isinstance(space, spaces.Dict) else enumerate(space))
            parts = {key: _vector(inner[key], where) for key in sorted(inner)}
            size = sum(part.size for part in parts.values())
            return _Vector(size, lambda x: np.concatenate([part.of(x[key]) for key, part in parts.items()]))
    known = ", ".join((*KNOWN, "Dict", "Tuple"))
    raise UserError(f"observations of {where} are {type(space).__name__}; known: {known}")


def _one_hot(space: spaces.Space, classes: Space, where: str, x: Any) -> np.ndarray:
    own = np.asarray(x).reshape(space.shape)
    shown = classes.encode(classes.policy_units(own, np), np)
    if shown.sum() != own.size:  # a class that is not there has no place in the vector
        raise UserError(f"{where} showed {x}, which is not in its space {space}")
    return shown


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
    """Any Gymnasium environment, such as gym:Pendulum-v1.

    Its id may name a module to import, as in `gym:module:Id-v0`. The policy sees entries `hide` as 0; the critic sees
    them. A Dict observation with a `policy` key names views itself. `horizon` replaces the environment's own time
    limit, and further options go to `gymnasium.make`.
    """

    def __init__(self, id: str, hide: Hide = (), horizon: Horizon = None, **options: Any):
        self.id = id if id.startswith(PREFIX) else PREFIX + id
        self.hide = hide = hidden(hide)
        if "render_mode" in options:
            raise UserError(f"render_mode of {id} is set by films")
        steps = limit(id, horizon, UNLIMITED, "max_episode_steps", options)
        self._options, self.options = options, given(hide=hide, horizon=horizon) | options
        env = self._make()
        try:
            own = env.spec.max_episode_steps if env.spec else None
            self._views = _Views(env.observation_space, hide, self.id)
            action = from_gymnasium(env.action_space, self.id)
            dt = seconds(getattr(env.unwrapped, "dt", None))
        finally:
            env.close()
        sizes = self._views.sizes | {PREVIOUS_ACTION: action.size}
        self.spec = Spec(views=sizes, action=action, horizon=steps if horizon else own or steps, dt=dt)

    def __repr__(self) -> str:
        return f"GymTask({', '.join([repr(self.id), *(f'{name}={value!r}' for name, value in self.options.items())])})"

    def _make(self, **more: Any) -> gymnasium.Env:
        name = self.id.removeprefix(PREFIX)
        module = name.rpartition(":")[0]

        def make() -> gymnasium.Env:
            if module:  # Gymnasium imports it too, but does not say how to get it
                package(module, self.id, REMEDIES.get(module, f"install what brings {module}"))
            return gymnasium.make(name, **self._options, **more)

        return attempt(self.id, make)

    def read(self, observation: Any) -> dict[str, np.ndarray]:
        """Shows an observation of the environment as views: what a session wants where that is no vector."""
        return self._views.of(observation)

    def lanes(self, seeds: Sequence[int], lanes: int, stream: int = 0, render: bool = False) -> GymLanes:
        """Makes `lanes` environments for each seed; another `stream` gives other episodes, as for evaluation."""
        more = {"render_mode": "rgb_array"} if render else {}
        envs = [self._make(max_episode_steps=self.spec.horizon, **more) for _ in range(len(seeds) * lanes)]
        return GymLanes(envs, self._views, self.spec, seeds, lanes, stream)


class GymLanes(Lanes):
    """Gymnasium environments stepped one after the other."""

    def __init__(
        self, envs: list[gymnasium.Env], views: _Views, spec: Spec, seeds: Sequence[int], lanes: int, stream: int
    ):
        super().__init__(spec, seeds, lanes, stream)
        self._envs, self._views = envs, views
        self._own_type = envs[0].action_space.dtype if envs else None

    def _show(self, i: int, observation: Any) -> None:
        for name, view in self._views.of(observation).items():
            self._obs[name][i] = view

    def _open(self, i: int, seed: int) -> None:
        observation, _ = self._envs[i].reset(seed=seed)
        self._show(i, observation)

    def _step(self, i: int, action: Action) -> tuple[float, bool, bool]:
        own = self._space.execute(action, np).astype(self._own_type)
        observation, reward, terminated, truncated, _ = self._envs[i].step(own)
        self._show(i, observation)
        return float(reward), bool(terminated), bool(truncated) and not terminated

    def _move(self, lanes: Sequence[int], actions: np.ndarray) -> Outcome:
        return Outcome(*zip(*map(self._step, lanes, actions), strict=True))

    def render(self, lane: int = 0) -> np.ndarray:
        """Draws a lane, counted through all seeds."""
        try:
            picture = self._envs[lane].render()
        except gymnasium.error.DependencyNotInstalled as error:
            raise UserError(f"cannot draw: {error}") from error
        if not isinstance(picture, np.ndarray):
            raise UserError("this environment draws no RGB pictures, or its lanes were made without render=True")
        return picture

    def close(self) -> None:
        """Closes every environment."""
        for env in self._envs:
            env.close()
