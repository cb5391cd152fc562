"""What differs between episodes of a robot: links that weigh more or less, bodies of other sizes, other loads.

MuJoCo derives constants from masses and lengths on the C side only, and MJX takes them as given. So models are made in
C, and the device draws from a pool of what differs between them.
"""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from s2pg.envs.mujoco.models import mujoco


class Variants(ABC):
    """The models that a robot's episodes are drawn from, each told from the others by a few hidden numbers."""

    model: Any  # one of them
    size: int  # how many numbers tell it

    @abstractmethod
    def draw(self, random: np.random.Generator) -> np.ndarray:
        """Draws the hidden numbers of an episode."""

    @abstractmethod
    def lane(self) -> Callable[[np.ndarray], Any]:
        """Makes what finds the model of hidden numbers for one of many robots."""

    @abstractmethod
    def pool(self, like: Any) -> tuple[dict[str, Array], Array]:
        """Lists what differs between models, field by field, and their hidden numbers [models, size].

        `like` is the model on the device, which has fewer fields, and some in other shapes.
        """

    @abstractmethod
    def drawn(self, which: Any) -> Any:
        """Finds the model that stands for an entry of the pool in a picture."""


class Table(Variants):
    """A few models that are made beforehand, with hidden numbers [models, size]."""

    def __init__(self, models: Sequence[Any], hidden: np.ndarray | None = None):
        self.models, self.model = models, models[0]
        self.hidden = np.zeros((len(models), 0)) if hidden is None else hidden
        self.size = self.hidden.shape[1]

    def draw(self, random: np.random.Generator) -> np.ndarray:
        """Draws those of one of the models."""
        return self.hidden[random.integers(len(self.models)) if len(self.models) > 1 else 0]

    def lane(self) -> Callable[[np.ndarray], Any]:
        """Looks a model up: robots share them."""
        return lambda hidden: self.models[int(np.argmin(np.abs(self.hidden - hidden).sum(axis=1)))]

    def pool(self, like: Any) -> tuple[dict[str, Array], Array]:
        """Lists all of them."""
        names = {name for other in self.models[1:] for name in differing(self.model, other)}
        rows = {name: np.stack([getattr(model, name) for model in self.models]) for name in sorted(names)}
        return _on_device(rows, like), jnp.asarray(self.hidden, jnp.float32)

    def drawn(self, which: Any) -> Any:
        """Finds the model itself."""
        return self.models[int(which)] if len(self.models) > 1 else self.model


class Masses(Variants):
    """One model whose links weigh more or less; the hidden numbers say by which share."""

    def __init__(self, model: Any, masses: float, spread: str, variants: int):
        self.model, self.size = model, model.nbody - 1
        self._masses, self._spread, self._variants = masses, spread, variants

    def draw(self, random: np.random.Generator) -> np.ndarray:
        """Draws how much heavier each link is."""
        return draw_masses(self.size, self._masses, self._spread, random)

    def lane(self) -> Callable[[np.ndarray], Any]:
        """Weighs a copy of the model anew each time."""
        return MassScaler(self.model).weigh

    def pool(self, like: Any) -> tuple[dict[str, Array], Array]:
        """Makes so many models as were asked for."""
        random, scaler = np.random.default_rng(0), MassScaler(self.model)
        heavier = np.stack([self.draw(random) for _ in range(self._variants)])
        # Unevenly: what depends on centres of mass alone would otherwise stay.
        names = differing(self.model, scaler.weigh(self._masses * np.linspace(0.5, 1.0, self.size)))
        rows: dict[str, list[np.ndarray]] = {name: [] for name in names}
        for each in heavier:
            now = scaler.weigh(each)
            for name, kept in rows.items():
                kept.append(getattr(now, name).copy())
        stacked = {name: np.stack(kept) for name, kept in rows.items()}
        return _on_device(stacked, like), jnp.asarray(heavier, jnp.float32)

    def drawn(self, which: Any) -> Any:
        """Finds the usual one: masses do not show."""
        return self.model


def differing(model: Any, other: Any) -> list[str]:
    """Names the fields that differ between two compiled models."""
    names = [name for name in dir(model) if isinstance(getattr(model, name), np.ndarray)]
    return [name for name in names if not np.array_equal(getattr(model, name), getattr(other, name))]


def _on_device(rows: dict[str, np.ndarray], like: Any) -> dict[str, Array]:
    """Takes what the device's model has, in its shapes."""
    known = {field.name for field in dataclasses.fields(like)}
    return {
        name: jnp.asarray(stacked, jnp.float32).reshape(len(stacked), *getattr(like, name).shape)
        for name, stacked in rows.items()
        if name in known
    }


def draw_masses(links: int, masses: float, spread: str, random: np.random.Generator) -> np.ndarray:
    """Draws how much heavier each link is, as a share.

    Uniform within +-masses, or one of -masses, 0 and +masses (the authors' way).
    """
    if spread == "three":
        return masses * random.integers(-1, 2, links).astype(float)
    return random.uniform(-masses, masses, links)


class MassScaler:
    """A model whose links can be weighed anew, over and over, without rounding piling up."""

    def __init__(self, model: Any):
        self.model = copy.copy(model)
        self._mass, self._inertia = model.body_mass.copy(), model.body_inertia.copy()
        self._scratch = mujoco().MjData(self.model)

    def weigh(self, heavier: np.ndarray) -> Any:
        """Multiplies masses and inertias of its links (the world is none) with 1 + `heavier`, and returns the model.

        A link of the same shape and another density: its inertia grows with its mass.
        """
        scale = np.concatenate([[1.0], 1.0 + heavier])
        self.model.body_mass[:] = self._mass * scale
        self.model.body_inertia[:] = self._inertia * scale[:, None]
        mujoco().mj_setConst(self.model, self._scratch)
        return self.model
