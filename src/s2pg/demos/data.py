"""Demonstrations: transitions of whole episodes on the host, checked when they are made."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from s2pg.columns import check_dt, find, finite, matrix, numbers
from s2pg.errors import UserError
from s2pg.types import POLICY


@dataclasses.dataclass(frozen=True, eq=False)
class Demonstrations:
    """Transitions of one episode after the other, as NumPy arrays with one row per step.

    Actions are in the environment's own units; clips of motion without any have None. Columns of a view may have
    names, `notes["columns"][view]`.
    """

    obs: Mapping[str, np.ndarray]  # [rows, size] for each view
    next_obs: Mapping[str, np.ndarray]  # before a reset
    action: np.ndarray | None  # [rows, ...]
    terminated: np.ndarray  # [rows]; an episode that ends without was cut off
    first: np.ndarray  # [rows], whether an episode begins here
    hidden: np.ndarray | None = None  # [rows, k]: size, weight, what else the policy does not see
    dt: float | None = None  # seconds a step
    task: str = ""
    notes: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # where they come from, as JSON
    reward: np.ndarray | None = None  # [rows]

    def __post_init__(self) -> None:
        for name in ("obs", "next_obs"):
            self._set(name, {view: numbers(f"view '{view}'", x, np.float32) for view, x in getattr(self, name).items()})
        for name, kind in (("terminated", bool), ("first", bool), ("hidden", np.float32), ("reward", np.float32)):
            value = getattr(self, name)
            self._set(name, None if value is None else numbers(name, value, kind))
        if self.action is not None:
            whole = np.asarray(self.action).dtype.kind in "biu"
            self._set("action", numbers("action", self.action, np.int32 if whole else np.float32))
        self._check_shapes()
        self._check_episodes()
        check_dt(self.dt)
        if not isinstance(self.task, str):
            raise UserError(f"task must be a name, not {self.task!r}")
        if not isinstance(self.notes, Mapping) or not isinstance(self.notes.get("columns", {}), Mapping):
            raise UserError("notes must be names and values, and columns among them a list of names for each view")
        try:
            self._set("notes", json.loads(json.dumps(dict(self.notes), allow_nan=False)))
        except (TypeError, ValueError) as error:
            raise UserError(f"notes must be JSON: {error}") from None

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)  # the way around `frozen`, while it is being made

    def _check_shapes(self) -> None:
        for name, values in (("first", self.first), ("terminated", self.terminated), ("reward", self.reward)):
            if values is not None and values.ndim != 1:
                raise UserError(f"{name} must have one entry for each row, and has {values.ndim} axes")
        if self.action is not None and not self.action.ndim:
            raise UserError("action must have an entry for each row, and is a single number")
        rows = len(self.first)
        if not rows:
            raise UserError("demonstrations have no rows")
        if not self.obs:
            raise UserError("demonstrations have no views")
        if self.obs.keys() != self.next_obs.keys():
            raise UserError(f"obs has the views {', '.join(self.obs)} and next_obs has {', '.join(self.next_obs)}")
        for view, values in self.obs.items():
            matrix(f"view '{view}'", values, rows)
            matrix(f"view '{view}' of next_obs", self.next_obs[view], rows)
            if values.shape != self.next_obs[view].shape:
                sizes = f"{values.shape[1]} entries in obs and {self.next_obs[view].shape[1]}"
                raise UserError(f"view '{view}' has {sizes} in next_obs")
        if self.hidden is not None:
            matrix("hidden", self.hidden, rows)
        for name, values in (("terminated", self.terminated), ("action", self.action), ("reward", self.reward)):
            if values is not None and len(values) != rows:
                raise UserError(f"{name} has {len(values)} rows where there are {rows}")
        for name, values in (("action", self.action), ("reward", self.reward)):
            if values is not None:
                finite(name, values)

    def _check_episodes(self) -> None:
        if not self.first[0]:
            raise UserError("the first row must be the first of an episode")
        goes_on = np.flatnonzero(self.terminated[:-1] & ~self.first[1:])
        if goes_on.size:
            raise UserError(f"row {goes_on[0]} terminates its episode, and row {goes_on[0] + 1} goes on with it")

    @property
    def rows(self) -> int:
        """Counts the steps of all episodes."""
        return len(self.first)

    @property
    def episodes(self) -> list[slice]:
        """Tells which rows each episode has."""
        starts = [*np.flatnonzero(self.first).tolist(), self.rows]
        return [slice(start, end) for start, end in itertools.pairwise(starts)]

    @property
    def lengths(self) -> np.ndarray:
        """Counts the steps of each episode."""
        return np.diff(np.append(np.flatnonzero(self.first), self.rows))

    @property
    def returns(self) -> np.ndarray | None:
        """Adds up the rewards of each episode; None where there are none."""
        if self.reward is None:
            return None
        return np.add.reduceat(self.reward.astype(float), np.flatnonzero(self.first))

    def arrange(self, views: Mapping[str, Sequence[str]]) -> Demonstrations:
        """Makes views out of those there are, side by side: `{"policy": ["joints", "goal"], "critic": [...]}`."""
        for parts in views.values():
            find("view", parts, list(self.obs))
        obs, next_obs = (
            {view: np.concatenate([source[part] for part in parts], axis=1) for view, parts in views.items()}
            for source in (self.obs, self.next_obs)
        )
        known = self.notes.get("columns", {})
        named = {
            view: [name for part in parts for name in known[part]]
            for view, parts in views.items()
            if all(part in known for part in parts)
        }
        rest = {key: value for key, value in self.notes.items() if key != "columns"}
        notes = rest | ({"columns": named} if named else {})
        return dataclasses.replace(self, obs=obs, next_obs=next_obs, notes=notes)

    def name(self, columns: Sequence[str], view: str = POLICY) -> Demonstrations:
        """Gives the columns of a view names."""
        find("view", [view], list(self.obs))
        size = self.obs[view].shape[1]
        if len(columns) != size:
            raise UserError(f"view '{view}' has {size} columns, and there are {len(columns)} names for them")
        named = {**self.notes.get("columns", {}), view: list(columns)}
        return dataclasses.replace(self, notes={**self.notes, "columns": named})

    def order(self, names: Sequence[str], view: str = POLICY) -> Demonstrations:
        """Takes these columns of a view, in this order; others are left out."""
        known = self.notes.get("columns", {}).get(view)
        if known is None:
            raise UserError(f"the columns of view '{view}' have no names: read the file with columns=[...]")
        at = find("column", names, known)
        obs, next_obs = ({**source, view: source[view][:, at]} for source in (self.obs, self.next_obs))
        notes = {**self.notes, "columns": {**self.notes["columns"], view: list(names)}}
        return dataclasses.replace(self, obs=obs, next_obs=next_obs, notes=notes)
