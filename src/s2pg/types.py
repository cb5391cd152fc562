"""The nouns of the library: decisions, transitions, time steps and the spaces they live in.

A stateful policy is one Markov kernel (a, z') ~ pi(. | o, z). The pair u = (a, z') is its *decision*.
Everything an algorithm weighs per half of a decision (log-probabilities, temperatures, noise, entropy
weights) is a `Decision` too; a half that does not exist is `()`, which has no leaves.
"""

from __future__ import annotations

import dataclasses
import functools
from types import ModuleType
from typing import Any, ClassVar, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from s2pg import views

State = PyTree  # z, the internal state of a policy: any pytree of arrays, `()` if there is none
Obs = dict[str, Array]  # one flat vector per named view
POLICY, CRITIC, PREVIOUS_ACTION = views.POLICY, views.CRITIC, views.PREVIOUS_ACTION
Numbers = TypeVar("Numbers", bound=Array | np.ndarray | np.generic)  # on the device, on the host, a scalar there


class Decision(NamedTuple):
    """u = (a, z'), or anything that has one part for each half of it."""

    action: Any
    state: Any = ()


def total(decision: Decision) -> Array:
    """Adds the leaves up: log pi(a, z' | x) from its two halves; a missing half counts nothing."""
    return sum(jax.tree.leaves(decision), start=jnp.zeros(()))


def weighted(weights: Decision, decision: Decision) -> Array:
    """The sum over the halves there are, each times its weight: alpha^a log pi(a | x) + alpha^z log pi(z' | x)."""
    return total(jax.tree.map(jnp.multiply, weights, decision))


class Timestep(NamedTuple):
    """What an environment returns: `obs` after an autoreset, `last_obs` before it."""

    obs: Obs
    last_obs: Obs
    reward: Array
    terminated: Array
    truncated: Array
    first: Array
    diverged: Any = ()  # whether a simulation broke down and ended the episode, where it can
    overflowed: Any = ()  # whether a simulation had no room for all contacts, where that can be

    def faults(self) -> dict[str, Any]:
        """What may go wrong in this task, and whether it did."""
        named = {"diverged": self.diverged, "overflowed": self.overflowed}
        return {name: flags for name, flags in named.items() if not isinstance(flags, tuple)}


class Transition(NamedTuple):
    """One step of experience; `next_obs` and `next_z` are those before a reset."""

    obs: Obs
    z: State
    decision: Decision
    log_prob: Decision
    reward: Array
    terminated: Array
    truncated: Array
    next_obs: Obs
    next_z: State
    first: Array


class Expert(NamedTuple):
    """Demonstrations as an algorithm reads them, rows of one episode after the other; `s2pg.demos.expert` makes them.

    `obs` and `next_obs` hold the views [rows, size], `previous_action` among them where the task shows it and the
    demonstrations have actions. `action` is in policy units, [rows, *spec.action.drawn]; [rows, 0] without actions.
    """

    obs: Obs
    next_obs: Obs
    action: Any
    terminated: Any
    first: Any  # whether an episode begins at this row


class Bounds(NamedTuple):
    """What scaling the actions of a `Box` takes, one number for each axis."""

    least: np.ndarray  # in policy units
    most: np.ndarray
    low: np.ndarray  # in the environment's own
    high: np.ndarray
    middle: np.ndarray  # own = middle + half * policy's
    half: np.ndarray


@functools.lru_cache
def _bounds(low: tuple[float, ...], high: tuple[float, ...], precision: np.dtype) -> Bounds:
    least, most = np.asarray(low, precision), np.asarray(high, precision)
    bounded = np.isfinite(least) & np.isfinite(most)
    one = np.ones_like(least)
    with np.errstate(invalid="ignore"):  # infinity less infinity, of axes that are left alone
        # Adding -0.0 changes no number, not even the sign of 0.
        middle = np.where(bounded, (least + most) / 2, -0.0 * one)
        half = np.where(bounded, (most - least) / 2, one)
    return Bounds(np.where(bounded, -one, least), np.where(bounded, one, most), least, most, middle, half)


def _precision(xp: ModuleType) -> np.dtype:
    """Single on the host; on the device whatever JAX is set to."""
    return np.dtype(np.float32) if xp is np else jnp.result_type(float)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Box:
    """Continuous actions. Policies speak in units where the bounds are -1 and 1; axes without both are left alone.

    `xp` is the array module: JAX's on the device, NumPy on the host, where a call of JAX would cost more than a step
    of most environments. Leading axes are free.
    """

    dtype: ClassVar[type] = np.float32  # of an action in policy units, on the host

    low: tuple[float, ...]
    high: tuple[float, ...]
    shape: tuple[int, ...] | None = None  # the environment's own; None: a vector

    @property
    def size(self) -> int:
        """The length of an action as a vector."""
        return len(self.low)

    @property
    def drawn(self) -> tuple[int, ...]:
        """The shape of an action in policy units."""
        return (self.size,)

    def _bounds(self, xp: ModuleType) -> Bounds:
        return _bounds(self.low, self.high, _precision(xp))

    def encode(self, action: Numbers, xp: ModuleType = jnp) -> Numbers:
        """Clips an action in policy units: what is executed of it, and what a recurrent policy reads afterwards."""
        bounds = self._bounds(xp)
        return _within(action, bounds.least, bounds.most, xp)

    def execute(self, action: Numbers, xp: ModuleType = jnp) -> Numbers:
        """Turns an action in policy units into one in the environment's own, clipped to its bounds."""
        bounds = self._bounds(xp)
        # Clipped again, since middle + half may round past a bound, which strict environments refuse.
        own = self.clip(xp.add(bounds.middle, bounds.half * self.encode(action, xp)), xp)
        return _shaped(own, self.shape)

    def clip(self, own: Numbers, xp: ModuleType = jnp) -> Numbers:
        """Clips a vector in the environment's own units to its bounds."""
        bounds = self._bounds(xp)
        return _within(own, bounds.low, bounds.high, xp)

    def policy_units(self, own: Numbers, xp: ModuleType = jnp) -> Numbers:
        """Undoes `execute` for one action within the bounds."""
        bounds = self._bounds(xp)
        return xp.subtract(own.reshape(-1), bounds.middle) / bounds.half


def _shaped(own: Any, shape: tuple[int, ...] | None) -> Any:
    """Vectors in the environment's own shape, if it has one."""
    return own if shape is None else own.reshape(*own.shape[:-1], *shape)


def _within(x: Any, low: np.ndarray, high: np.ndarray, xp: ModuleType) -> Any:
    """Clips: `np.clip` takes five times as long, which for a handful of numbers is all in the call."""
    return xp.minimum(xp.maximum(x, low), high)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Discrete:
    """Actions 0 ... n-1, which the environment counts from `start`."""

    dtype: ClassVar[type] = np.int32

    n: int
    start: int = 0

    @property
    def size(self) -> int:
        """The length of an action as a one-hot vector."""
        return self.n

    @property
    def drawn(self) -> tuple[int, ...]:
        """The shape of an action in policy units."""
        return ()

    def encode(self, action: Numbers, xp: ModuleType = jnp) -> Numbers:
        """Turns an action into a one-hot vector: what a recurrent policy reads afterwards."""
        each = xp.arange(self.n).reshape(*[1] * action.ndim, self.n)
        return (xp.expand_dims(action, -1) == each).astype(_precision(xp))

    def execute(self, action: Numbers, xp: ModuleType = jnp) -> Numbers:
        """Counts an action as the environment does."""
        return xp.add(action, self.start)

    def policy_units(self, own: Numbers, xp: ModuleType = jnp) -> Numbers:
        """Undoes `execute`."""
        return xp.subtract(own, self.start)


class Axes(NamedTuple):
    """For every entry of the one-hot vectors of a `MultiDiscrete`, side by side: its axis, and its class there."""

    axis: np.ndarray
    label: np.ndarray


@functools.lru_cache
def _axes(sizes: tuple[int, ...]) -> Axes:
    return Axes(np.repeat(np.arange(len(sizes)), sizes), np.concatenate([np.arange(n) for n in sizes]))


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class MultiDiscrete:
    """Vectors of discrete actions, axis i of which is one of 0 ... sizes[i]-1; the environment counts from `start`."""

    dtype: ClassVar[type] = np.int32

    sizes: tuple[int, ...]
    start: tuple[int, ...] = (0,)  # one number for all axes, or one for each
    shape: tuple[int, ...] | None = None  # the environment's own; None: a vector

    @property
    def size(self) -> int:
        """The length of an action as one-hot vectors side by side."""
        return sum(self.sizes)

    @property
    def drawn(self) -> tuple[int, ...]:
        """The shape of an action in policy units."""
        return (len(self.sizes),)

    def encode(self, action: Numbers, xp: ModuleType = jnp) -> Numbers:
        """Turns an action into one-hot vectors side by side: what a recurrent policy reads afterwards."""
        axis, label = _axes(self.sizes)
        return (xp.take(action, axis, axis=-1) == label).astype(_precision(xp))

    def execute(self, action: Numbers, xp: ModuleType = jnp) -> Numbers:
        """Counts an action as the environment does."""
        return _shaped(xp.add(action, np.asarray(self.start, self.dtype)), self.shape)

    def policy_units(self, own: Numbers, xp: ModuleType = jnp) -> Numbers:
        """Undoes `execute` for one action."""
        return xp.subtract(own.reshape(-1), np.asarray(self.start, self.dtype))


Space = Box | Discrete | MultiDiscrete  # of actions


class Spec(eqx.Module):
    """What an algorithm must know of an environment: view sizes, action space, longest episode, seconds a step."""

    views: dict[str, int] = eqx.field(static=True)
    action: Space
    horizon: int = eqx.field(static=True)
    dt: float = eqx.field(static=True, default=1.0)  # 1 where time has no unit


def read(obs: Obs, groups: tuple[str, ...]) -> Float[Array, "*batch size"]:
    """The views a network reads, side by side in one vector."""
    return jnp.concatenate([obs[group] for group in groups], axis=-1)
