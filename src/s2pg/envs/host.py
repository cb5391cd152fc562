"""Environments on the host, S x N of them side by side: what every kind of them shares.

A lane means the same as on the device (`s2pg.envs.base`): actions come in policy units, an ended episode gives
way to the next in the same step, the previous action is a view. Every episode is seeded from (seed, lane,
episode, stream), so that a run can be resumed by replaying the actions of its open episodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array
from numpy.typing import DTypeLike

from s2pg.errors import UserError
from s2pg.types import PREVIOUS_ACTION, Spec, Timestep

Action = np.ndarray | np.generic  # NumPy hands out scalars where an array has no axes left
Flags = Sequence[bool] | np.ndarray


class Outcome(NamedTuple):
    """What came of one step in some lanes."""

    reward: Sequence[float] | np.ndarray
    terminated: Flags
    truncated: Flags
    diverged: Flags = ()  # whether the simulation broke down, where it can


class Lanes(ABC):
    """S x N environments; arrays carry the leading axes [S, N].

    The views of `spec` are those that `_open` and `_move` put into `_obs`, and `previous_action`, which is added here.
    `stream` tells episodes of the same seeds apart: those of training and of evaluation, say.
    """

    breaks: ClassVar[bool] = False  # whether a simulation may break down

    def __init__(self, spec: Spec, seeds: Sequence[int], lanes: int, stream: int = 0):
        self.horizon, self._space = spec.horizon, spec.action
        self._names = [(seed, lane) for seed in seeds for lane in range(lanes)]
        self._shape, self._stream = (len(seeds), lanes), stream
        self._count = len(self._names)
        self._episode = [0] * self._count
        self._taken: list[list[Action]] = [[] for _ in range(self._count)]  # the actions of each open episode
        self._obs = {name: np.zeros((self._count, size), np.float32) for name, size in spec.views.items()}

    @abstractmethod
    def _open(self, i: int, seed: int) -> None:
        """Begins an episode in lane i and puts its views into row i of `_obs`."""

    @abstractmethod
    def _move(self, lanes: Sequence[int], actions: np.ndarray) -> Outcome:
        """Makes one step in these lanes and puts their views into `_obs`; actions are in policy units."""

    @abstractmethod
    def render(self, lane: int = 0) -> np.ndarray:
        """Draws the RGB picture of a lane (counted through all seeds), if these lanes were made with `render=True`."""

    @abstractmethod
    def close(self) -> None:
        """Frees what the environments hold."""

    def _begin(self, i: int) -> None:
        """Starts episode number `_episode[i]` of lane i."""
        entropy = (*self._names[i], self._episode[i], self._stream)
        self._open(i, int(np.random.SeedSequence(entropy).generate_state(1)[0]))
        self._taken[i] = []
        self._obs[PREVIOUS_ACTION][i] = 0.0

    def _act(self, lanes: Sequence[int], actions: np.ndarray) -> Outcome:
        moved = self._move(lanes, actions)
        for i, action in zip(lanes, actions, strict=True):
            self._taken[i].append(action)
        self._obs[PREVIOUS_ACTION][lanes] = self._space.encode(actions, np)
        return moved

    def _stack(self, rows: Sequence[Any] | np.ndarray, dtype: DTypeLike = np.float32) -> Any:
        """A copy: what is handed out is read later than the next step is taken."""
        array = np.array(rows, dtype)
        return array.reshape(*self._shape, *array.shape[1:])

    def _stack_obs(self) -> dict[str, Any]:
        return {name: self._stack(view) for name, view in self._obs.items()}

    def _opened(self) -> Timestep:
        obs, none = self._stack_obs(), [0] * self._count
        reward, terminated, truncated = (self._stack(none, kind) for kind in (np.float32, bool, bool))
        first = self._stack([not taken for taken in self._taken], bool)
        return Timestep(obs, obs, reward, terminated, truncated, first, terminated if self.breaks else ())

    def reset(self, stream: int | None = None) -> Timestep:
        """Puts every lane at the start of its episode 0, in another stream of episodes if one is named."""
        self._stream = self._stream if stream is None else stream
        self._episode = [0] * self._count
        for i in range(self._count):
            self._begin(i)
        return self._opened()

    def step(self, actions: np.ndarray | Array) -> Timestep:
        """Makes one step in every lane, `actions` [S, N, ...] in policy units."""
        # A copy, as they are kept for replay.
        flat = np.array(actions, self._space.dtype).reshape(self._count, *self._space.drawn)
        moved = self._act(range(self._count), flat)
        last_obs = self._stack_obs()
        ended = np.asarray(moved.terminated) | np.asarray(moved.truncated)
        for i in map(int, np.flatnonzero(ended)):
            self._episode[i] += 1
            self._begin(i)
        terminated, truncated, first = (self._stack(flag, bool) for flag in (moved.terminated, moved.truncated, ended))
        diverged = self._stack(moved.diverged, bool) if self.breaks else ()
        obs = self._stack_obs() if ended.any() else last_obs
        return Timestep(obs, last_obs, self._stack(moved.reward), terminated, truncated, first, diverged)

    def snapshot(self) -> dict[str, np.ndarray]:
        """Saves all that `restore` needs, as arrays: environments cannot be saved, but episodes can be played again."""
        lengths = [len(taken) for taken in self._taken]
        # Padded to the longest episode there can be, so that the arrays have one shape throughout a run.
        actions = np.zeros((len(lengths), self.horizon, *self._space.drawn), self._space.dtype)
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
        actions = snapshot["actions"].reshape(self._count, *snapshot["actions"].shape[2:])
        for i, length in enumerate(snapshot["lengths"].reshape(-1)):
            self._begin(i)
            for action in actions[i, :length]:
                moved = self._act([i], action[None])
                if moved.terminated[0] or moved.truncated[0]:  # it did not end there before
                    exact = False
                    self._episode[i] += 1
                    self._begin(i)
                    break
        step = self._opened()
        same = (np.array_equal(view, snapshot[f"obs_{name}"]) for name, view in step.obs.items())
        return step, exact and all(same)


@runtime_checkable
class HostTask(Protocol):
    """A task whose environments run on the host; `id` is the name that `make` knows it by."""

    id: str
    spec: Spec

    @property
    def options(self) -> dict[str, Any]:
        """What it was made with, beside the id."""
        ...

    def read(self, observation: Any) -> dict[str, np.ndarray]:
        """Shows an observation of the environment as views: what a session wants where that is no vector."""
        ...

    def lanes(self, seeds: Sequence[int], lanes: int, stream: int = 0, render: bool = False) -> Lanes:
        """Makes `lanes` environments for each seed; another `stream` gives other episodes, as for evaluation."""
        ...
