"""Turns demonstrations into what algorithms read: policy units, and the previous action as a view."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from s2pg.demos.data import Demonstrations
from s2pg.errors import UserError
from s2pg.types import PREVIOUS_ACTION, Box, Discrete, Expert, MultiDiscrete, Space, Spec


def expert(demonstrations: Demonstrations, spec: Spec, views: Sequence[str] | None = None) -> Expert:
    """Fits demonstrations to a task, and refuses those of another one.

    All views of the task must be there, or those of `views`. Actions beyond the bounds are clipped, as the task
    itself would. `previous_action` follows from the actions; without any it is left out.
    """
    _check_dt(demonstrations, spec)
    made = PREVIOUS_ACTION not in demonstrations.obs  # here, and is not looked for in the file
    wanted = [name for name in (spec.views if views is None else views) if name != PREVIOUS_ACTION or not made]
    _check_views(demonstrations, spec, wanted)
    obs: dict[str, Any] = {name: demonstrations.obs[name] for name in wanted}
    next_obs: dict[str, Any] = {name: demonstrations.next_obs[name] for name in wanted}
    if demonstrations.action is None:
        action = np.zeros((demonstrations.rows, 0), np.float32)
    else:
        action, shown = _actions(demonstrations.action, spec.action)
        if made and PREVIOUS_ACTION in spec.views:
            before = np.concatenate([np.zeros_like(shown[:1]), shown[:-1]])
            obs[PREVIOUS_ACTION] = np.where(demonstrations.first[:, None], np.float32(0.0), before)
            next_obs[PREVIOUS_ACTION] = shown
    return Expert(obs, next_obs, action, demonstrations.terminated, demonstrations.first)


def _check_dt(demonstrations: Demonstrations, spec: Spec) -> None:
    if demonstrations.dt is not None and not math.isclose(demonstrations.dt, spec.dt, rel_tol=1e-3):
        raise UserError(f"the demonstrations have a step of {demonstrations.dt:g} s, and the task one of {spec.dt:g} s")


def _check_views(demonstrations: Demonstrations, spec: Spec, wanted: Sequence[str]) -> None:
    has = f"the demonstrations{f' of {demonstrations.task}' if demonstrations.task else ''}"
    for name in wanted:
        if name not in spec.views:
            raise UserError(f"the task has no view '{name}'; it has {', '.join(spec.views)}")
        if name not in demonstrations.obs:
            raise UserError(f"{has} lack the task's view '{name}'; they have {', '.join(demonstrations.obs)}")
        size = demonstrations.obs[name].shape[1]
        if size != spec.views[name]:
            raise UserError(f"view '{name}' has {size} entries in {has}, and {spec.views[name]} in the task")


def _actions(own: np.ndarray, space: Space) -> tuple[np.ndarray, np.ndarray]:
    """(actions in policy units, the same as a policy reads them afterwards)."""
    rows, width = len(own), math.prod(space.drawn)
    if own.size != rows * width:
        raise UserError(f"actions have {own.size // rows} entries in the demonstrations, and {width} in the task")
    if not isinstance(space, Box):
        own = _whole(own)
    action = np.asarray(jax.vmap(space.policy_units)(jnp.asarray(own.reshape(rows, *space.drawn))), space.dtype)
    if isinstance(space, Box):
        action = space.encode(action, np)
    if isinstance(space, Discrete | MultiDiscrete):
        classes = np.asarray(space.n if isinstance(space, Discrete) else space.sizes)
        fits = ((action >= 0) & (action < classes)).reshape(rows, -1).all(axis=1)
        if not fits.all():
            worst = int(np.argmin(fits))
            raise UserError(f"action {own[worst]} in row {worst} of the demonstrations is not in the task's space")
    return action, np.asarray(space.encode(action, np), np.float32)


def _whole(own: np.ndarray) -> np.ndarray:
    """Classes as whole numbers: some files keep them as floats."""
    whole = np.round(own).astype(np.int32)
    if not np.array_equal(whole, own):
        raise UserError("actions of the demonstrations are no whole numbers, and the task's are discrete")
    return whole
