"""Gymnasium environments on the host: `GymTask` says which, `HostLanes` steps S x N of them in turn.

A lane means the same as on the device (`s2pg.envs.base`): actions come in policy units, an ended episode gives
way to the next in the same step, the previous action is a view. Every episode is seeded from (seed, lane,
episode, stream), so that a run can be resumed by replaying the actions of its open episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Array

from s2pg.errors import UserError
from s2pg.types import CRITIC, POLICY, PREVIOUS_ACTION, Box, Discrete, Spec, Timestep

Action = np.ndarray | np.generic  # NumPy hands out scalars where an array has no axes left

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


class _Actions:
    """`types.Box` and `types.Discrete` in NumPy: JAX would cost more per step than most environments."""

    def __init__(self, space: spaces.Space, where: str):
        if isinstance(space, spaces.Box):
            self._low, self._high = (np.asarray(bound, np.float32).reshape(-1) for bound in (space.low, space.high))
            self.space = Box(tuple(map(float, self._low)), tuple(map(float, self._high)), space.shape)
            self._bounded = np.isfinite(self._low) & np.isfinite(self._high)
            low, high = (np.where(self._bounded, bound, 0.0) for bound in (self._low, self._high))
            self._least, self._most = np.where(self._bounded, -1.0, self._low), np.where(self._bounded, 1.0, self._high)
            self._middle = ((low + high) / 2).astype(np.float32)
            self._half = np.where(self._bounded, (high - low) / 2, 1.0).astype(np.float32)
            self.empty = np.zeros(self.space.size, np.float32)
        elif isinstance(space, spaces.Discrete):
            self.space = Discrete(int(space.n), int(space.start))
            self.empty = np.zeros((), np.int32)
        else:
            raise UserError(f"actions of {where} are {type(space).__name__}; known: Box, Discrete")
        self._gym = space

    def encode(self, action: Action) -> np.ndarray:
        if isinstance(self.space, Discrete):
            return np.eye(self.space.n, dtype=np.float32)[int(action)]
        return np.clip(action, self._least, self._most).astype(np.float32)

    def execute(self, action: Action) -> Any:
        if isinstance(self._gym, spaces.Discrete):
            return self._gym.start + np.int64(action)
        # Clipped again: middle + half can round to just above `high`, which strict environments refuse.
        own = np.clip(self._middle + self._half * self.encode(action), self._low, self._high)
        return own.reshape(self._gym.shape).astype(self._gym.dtype)


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
            self._actions = _Actions(env.action_space, self.id)
        finally:
            env.close()
        sizes = self._views.sizes | {PREVIOUS_ACTION: self._actions.space.size}
        self.spec = Spec(views=sizes, action=self._actions.space, horizon=horizon or limit or UNLIMITED)

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

    def lanes(self, seeds: Sequence[int], lanes: int, stream: int = 0, render: bool = False) -> HostLanes:
        """`lanes` environments for each seed; another `stream` gives other episodes, as for evaluation."""
        more = {"render_mode": "rgb_array"} if render else {}
        envs = [self._make(max_episode_steps=self.spec.horizon, **more) for _ in range(len(seeds) * lanes)]
        return HostLanes(envs, self._views, self._actions, seeds, lanes, stream, self.spec.horizon)


class HostLanes:
    """S x N environments stepped one after the other; arrays carry the leading axes [S, N]."""

    def __init__(
        self,
        envs: list[gymnasium.Env],
        views: _Views,
        actions: _Actions,
        seeds: Sequence[int],
        lanes: int,
        stream: int,
        horizon: int,
    ):
        self.horizon = horizon
        self._envs, self._views, self._actions = envs, views, actions
        self._names = [(seed, lane) for seed in seeds for lane in range(lanes)]
        self._shape, self._stream = (len(seeds), lanes), stream
        self._episode = [0] * len(envs)
        self._taken: list[list[Action]] = [[] for _ in envs]  # the actions of each open episode
        self._obs: list[dict[str, np.ndarray]] = [{} for _ in envs]

    def _begin(self, i: int) -> None:
        """Starts episode number `_episode[i]` of lane i."""
        entropy = (*self._names[i], self._episode[i], self._stream)
        seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        observation, _ = self._envs[i].reset(seed=seed)
        self._taken[i] = []
        self._obs[i] = self._views.of(observation) | {PREVIOUS_ACTION: np.zeros(self._actions.space.size, np.float32)}

    def _act(self, i: int, action: Action) -> tuple[float, bool, bool]:
        observation, reward, terminated, truncated, _ = self._envs[i].step(self._actions.execute(action))
        self._taken[i].append(action)
        self._obs[i] = self._views.of(observation) | {PREVIOUS_ACTION: self._actions.encode(action)}
        return float(reward), bool(terminated), bool(truncated) and not terminated

    def _stack(self, rows: Any, dtype: Any = np.float32) -> Any:
        array = np.asarray(rows, dtype)
        return array.reshape(*self._shape, *array.shape[1:])

    def _stack_obs(self) -> dict[str, Any]:
        return {name: self._stack([obs[name] for obs in self._obs]) for name in self._obs[0]}

    def _opened(self) -> Timestep:
        obs, none = self._stack_obs(), [0] * len(self._envs)
        reward, terminated, truncated = (self._stack(none, kind) for kind in (np.float32, bool, bool))
        return Timestep(
            obs, obs, reward, terminated, truncated, self._stack([not taken for taken in self._taken], bool)
        )

    def reset(self, stream: int | None = None) -> Timestep:
        """Every lane at the start of its episode 0, in another stream of episodes if one is named."""
        self._stream = self._stream if stream is None else stream
        self._episode = [0] * len(self._envs)
        for i in range(len(self._envs)):
            self._begin(i)
        return self._opened()

    def step(self, actions: np.ndarray | Array) -> Timestep:
        """One step of every lane, `actions` [S, N, ...] in policy units."""
        # A copy, as they are kept for replay.
        flat = np.array(actions).reshape(len(self._envs), *self._actions.empty.shape)
        rewards, terminated, truncated = zip(*(self._act(i, action) for i, action in enumerate(flat)), strict=True)
        last_obs = self._stack_obs()
        ended = np.asarray(terminated) | np.asarray(truncated)
        for i in map(int, np.flatnonzero(ended)):
            self._episode[i] += 1
            self._begin(i)
        flags = (self._stack(flag, bool) for flag in (terminated, truncated, ended))
        return Timestep(self._stack_obs() if ended.any() else last_obs, last_obs, self._stack(rewards), *flags)

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that `restore` needs, as arrays: environments cannot be saved, but episodes can be played again."""
        lengths = [len(taken) for taken in self._taken]
        # Padded to the longest episode there can be, so that the arrays have one shape throughout a run.
        actions = np.zeros((len(lengths), self.horizon, *self._actions.empty.shape), self._actions.empty.dtype)
        for i, taken in enumerate(self._taken):
            actions[i, : lengths[i]] = np.asarray(taken, actions.dtype).reshape(-1, *actions.shape[2:])
        arrays = {
            "episodes": self._stack(self._episode, np.int64),
            "lengths": self._stack(lengths, np.int64),
            "actions": self._stack(actions, actions.dtype),
        }
        return arrays | {f"obs_{name}": view for name, view in self._stack_obs().items()}

    def restore(self, snapshot: dict[str, np.ndarray]) -> tuple[Timestep, bool]:
        """Plays the open episodes again; False where an environment came out elsewhere than it did before."""
        if snapshot["episodes"].shape != self._shape:
            raise UserError(f"the snapshot holds {snapshot['episodes'].shape} seeds and lanes, not {self._shape}")
        exact = True
        self._episode = [int(episode) for episode in snapshot["episodes"].reshape(-1)]
        actions = snapshot["actions"].reshape(len(self._envs), *snapshot["actions"].shape[2:])
        for i, length in enumerate(snapshot["lengths"].reshape(-1)):
            self._begin(i)
            for action in actions[i, :length]:
                _, terminated, truncated = self._act(i, action)
                if terminated or truncated:  # it did not end there before
                    exact = False
                    self._episode[i] += 1
                    self._begin(i)
                    break
        step = self._opened()
        same = (np.array_equal(view, snapshot[f"obs_{name}"]) for name, view in step.obs.items())
        return step, exact and all(same)

    def render(self, lane: int = 0) -> np.ndarray:
        """The RGB picture of a lane (counted through all seeds), if these lanes were made with `render=True`."""
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
