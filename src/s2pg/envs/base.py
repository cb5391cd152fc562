"""What an environment on the device is: pure functions of one lane, with the autoreset in one place.

A task writes `begin`, `move` and `views`; this class adds time limits, the previous action as a view of
its own, clipping of actions, and the reset. `vmap` over lanes is the caller's.

What only some tasks can do they have as further methods, each with a protocol here: pictures (`Drawable`), cheaper
starts (`Restartable`), compiling of their own (`Preparable`), sizes known without a trace (`ViewSizes`). A task's own
state with a field `diverged` says by it whether a simulation broke down in the last step, and so ended the episode;
with a field `overflowed`, whether it had no room for all contacts.
"""

# No postponed annotations here: Equinox knows an AbstractVar only by its value, not by its name.
import math
from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from s2pg.types import PREVIOUS_ACTION, Obs, Space, Spec, Timestep


class EnvState(NamedTuple):
    """An environment between two steps."""

    inner: PyTree  # the task's own state
    elapsed: Array  # steps since the episode began
    previous: Array  # the executed previous action, zero after a reset


@runtime_checkable
class Drawable(Protocol):
    """A task that draws pictures."""

    def render(self, state: EnvState) -> np.ndarray:
        """Draws an RGB picture, uint8 [height, width, 3], on the host."""
        ...


@runtime_checkable
class Restartable(Protocol):
    """A task whose episodes begin in a cheaper way where they follow another: the autoreset makes one in every step."""

    def restart(self, key: PRNGKeyArray) -> PyTree:
        """Draws the task's state at the start of an episode that follows another."""
        ...


@runtime_checkable
class Preparable(Protocol):
    """A task that compiles something of its own when it is first stepped."""

    def prepare(self) -> None:
        """Compiles it now."""
        ...


@runtime_checkable
class ViewSizes(Protocol):
    """A task that knows the sizes of its views, where a trace of them would take a second."""

    def view_sizes(self) -> dict[str, int]:
        """Tells how long the vector of each view is."""
        ...


class Env(eqx.Module):
    """A task on the device."""

    horizon: eqx.AbstractVar[int]
    # Long episodes would all end together; with `stagger` the first one of each lane is cut at a random age.
    stagger: ClassVar[bool] = False
    # Whether the executed previous action is a view. A policy that reads it can write notes to itself in its actions:
    # a task that asks for memory and nothing else does not show it.
    shows_action: ClassVar[bool] = True
    # Whether its lanes may lie on several devices.
    divides: ClassVar[bool] = True
    # Seconds between two decisions; 1 where time has no unit.
    dt: ClassVar[float] = 1.0

    @property
    @abstractmethod
    def action(self) -> Space:
        """The space of actions."""

    @abstractmethod
    def begin(self, key: PRNGKeyArray) -> PyTree:
        """Draws the task's state at the start of an episode."""

    @abstractmethod
    def move(self, inner: PyTree, elapsed: Array, action: Array, key: PRNGKeyArray) -> tuple[PyTree, Array, Array]:
        """Makes a step: (next inner state, reward, terminated) for an action in the environment's own units."""

    @abstractmethod
    def views(self, inner: PyTree, elapsed: Array) -> Obs:
        """Shows the named observation vectors, `policy` and `critic` at least."""

    @property
    def spec(self) -> Spec:
        """What an algorithm must know of the task."""
        sizes = self.view_sizes() if isinstance(self, ViewSizes) else traced_sizes(self)
        return Spec(views=sizes, action=self.action, horizon=self.horizon, dt=self.dt)

    def reset(self, key: PRNGKeyArray) -> tuple[EnvState, Timestep]:
        """Begins an episode."""
        return self._open(self.begin(key))

    def advance(self, state: EnvState, action: Array, key: PRNGKeyArray) -> tuple[EnvState, Timestep]:
        """Makes one step without the autoreset; `action` is in policy units."""
        inner, reward, terminated = self.move(state.inner, state.elapsed, self.action.execute(action), key)
        state = EnvState(inner, state.elapsed + 1, self.action.encode(action))
        obs = self._observe(state)
        truncated = (state.elapsed >= self.horizon) & ~terminated
        first = jnp.zeros((), bool)
        return state, Timestep(obs, obs, reward, terminated, truncated, first, *_faults(inner))

    def step(self, state: EnvState, action: Array, key: PRNGKeyArray) -> tuple[EnvState, Timestep]:
        """Makes one step; where the episode ends, `obs` is already that of the next one."""
        move_key, reset_key = jax.random.split(key)
        moved, step = self.advance(state, action, move_key)
        begin = self.restart if isinstance(self, Restartable) else self.begin
        fresh, fresh_step = self._open(begin(reset_key))
        done = step.terminated | step.truncated
        state, obs = jax.tree.map(
            lambda new, old: jnp.where(done, new, old), (fresh, fresh_step.obs), (moved, step.obs)
        )
        return state, step._replace(obs=obs, first=done)

    def _open(self, inner: PyTree) -> tuple[EnvState, Timestep]:
        """The first time step of an episode that begins in this state."""
        state = EnvState(inner, jnp.zeros((), jnp.int32), jnp.zeros(self.action.size))
        obs, false = self._observe(state), jnp.zeros((), bool)
        return state, Timestep(obs, obs, jnp.zeros(()), false, false, ~false, *_faults(inner))

    def _observe(self, state: EnvState) -> Obs:
        views = self.views(state.inner, state.elapsed)
        return views | {PREVIOUS_ACTION: state.previous} if self.shows_action else views


def _faults(inner: PyTree) -> tuple[Any, Any]:
    """Whether a simulation broke down in the last step, and whether it lost contacts; () where none can."""
    return getattr(inner, "diverged", ()), getattr(inner, "overflowed", ())


def traced_sizes(env: Env) -> dict[str, int]:
    """Finds how long the vector of each view is, by a trace of `reset`."""
    _, step = jax.eval_shape(env.reset, jax.random.key(0))
    return {name: view.shape[0] for name, view in step.obs.items()}


def seconds(said: Any) -> float:
    """Reads how long a step takes, where what another library's environment says of it can be that; 1 otherwise."""
    try:
        dt = float(said)
    except (TypeError, ValueError):
        return 1.0
    return dt if 0.0 < dt < math.inf else 1.0
