"""What tasks from other libraries share: a package that may be missing, options, and observations as views."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from s2pg.envs.base import Env, seconds, traced_sizes
from s2pg.errors import UserError
from s2pg.options import Option
from s2pg.types import CRITIC, POLICY, Obs, Space

# Options of every such task; those that may come as text are Python values by then.
Hide = Annotated[
    Any,
    Option("indices of observation entries that the policy sees as 0, such as 2,3", said="nothing"),
]
Horizon = Annotated[int | None, Option("time limit", said="its own")]

Own = TypeVar("Own")  # the type of another library's environments
Made = TypeVar("Made")


@dataclasses.dataclass(eq=False)
class Source(Generic[Own]):
    """What a task was made as. Compared by identity, as a static field needs a hash and few of these have one."""

    id: str  # with its prefix
    options: dict[str, Any]
    env: Own
    action: Space
    params: Any = None  # where they are apart from the environment
    sizes: dict[str, int] | None = None  # of views; traced once, which takes a second where there is physics
    pool: PyTree = None  # states to start from, where those are dear


class Adapter(Env, Generic[Own]):
    """An environment of another library as a task, with entries `hide` of its policy view zero.

    The time limit is ours, `horizon`: the environment's own wrappers for limits and resets stay away.
    """

    stagger: ClassVar[bool] = True

    made: Source[Own] = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    hide: tuple[int, ...] = eqx.field(static=True)

    def __check_init__(self):
        size = self.spec.views[POLICY]
        outside = [index for index in self.hide if not 0 <= index < size]
        if outside:
            raise UserError(f"cannot hide entry {outside[0]} of {self.id}: it has entries 0 to {size - 1}")

    @property
    def id(self) -> str:
        """The name that `make` knows it by."""
        return self.made.id

    @property
    def options(self) -> dict[str, Any]:
        """What it was made with, beside the id."""
        return self.made.options

    @property
    def action(self) -> Space:
        """The environment's own space, or one that it scales itself."""
        return self.made.action

    @property
    def dt(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How long a step takes, where the environment says so."""
        return seconds(getattr(self.made.env, "dt", None))

    def view_sizes(self) -> dict[str, int]:
        """Traces the environment once."""
        if self.made.sizes is None:
            self.made.sizes = traced_sizes(self)
        return self.made.sizes

    def show(self, policy: PyTree, critic: PyTree) -> Obs:
        """Makes the views of observations of any shape."""
        seen = _vector(policy)
        return {POLICY: seen.at[jnp.asarray(self.hide, int)].set(0.0), CRITIC: _vector(critic)}


def _vector(observation: PyTree) -> Array:
    return jnp.concatenate([jnp.ravel(leaf).astype(float) for leaf in jax.tree.leaves(observation)])


def package(module: str, task: str, remedy: str) -> ModuleType:
    """Imports a module of an optional package; where that is missing, one line says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"{task} needs a package that is not installed ({_line(error)}): {remedy}") from error


def attempt(task: str, make: Callable[[], Made]) -> Made:
    """Makes what `make` makes, and tells in one line where it cannot."""
    try:
        return make()
    except UserError:
        raise
    except Exception as error:  # whatever an environment's constructor may raise
        raise UserError(f"cannot make {task}: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def hidden(hide: Any) -> tuple[int, ...]:
    """Reads which entries to hide: one index, or several."""
    hide = (hide,) if isinstance(hide, int) else hide
    if not isinstance(hide, tuple | list) or not all(type(index) is int for index in hide):
        raise UserError(f"hide must be indices such as 2 or 2,3, not {hide!r}")
    return tuple(hide)


def limit(task: str, horizon: int | None, own: int, name: str, options: dict[str, Any]) -> int:
    """Takes the horizon asked for, or else the environment's `own`, which its option `name` must not set as well."""
    if name in options:
        raise UserError(f"{name} of {task} is set by the option horizon")
    if horizon is not None and (type(horizon) is not int or horizon < 1):
        raise UserError(f"horizon of {task} must be a whole number of at least 1, not {horizon!r}")
    return own if horizon is None else horizon


def given(**options: Any) -> dict[str, Any]:
    """Keeps the options that say anything."""
    return {name: value for name, value in options.items() if value is not None and value != ()}


def firm(tree: PyTree) -> PyTree:
    """Makes every leaf an array of a fixed type: resets hand out plain numbers too, which `scan` would not carry."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf)), tree)


def alike(tree: PyTree, before: PyTree) -> PyTree:
    """Gives a tree the shapes and types of that `before` a step: `scan` insists on them, and these libraries do not."""
    return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype).reshape(old.shape), tree, before)
