"""What differs between episodes of a robot: copies of a model whose links weigh more or less.

MuJoCo derives constants from masses on the C side only, and MJX takes them as given. So a model is weighed anew in C,
and the device draws from a pool of what came of it.
"""

from __future__ import annotations

import copy
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from s2pg.envs.mujoco.models import mujoco

# How a link's mass differs from the model's, as a share of it.
SPREADS = ("uniform", "three")
# What MuJoCo derives from masses and inertias, and those themselves.
MASS_FIELDS = (
    "body_mass", "body_subtreemass", "body_inertia", "body_invweight0", "dof_invweight0", "tendon_invweight0", "dof_M0",
    "actuator_acc0",
)  # fmt: skip


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


def mass_pool(model: Any, masses: float, spread: str, variants: int) -> tuple[dict[str, Array], Array]:
    """Makes the parts of so many models that differ with their masses, and how much heavier each of their links is."""
    if not masses:
        return {}, jnp.zeros((0, 0))
    random, scaler = np.random.default_rng(0), MassScaler(model)
    heavier = np.stack([draw_masses(model.nbody - 1, masses, spread, random) for _ in range(variants)])
    parts: dict[str, list[np.ndarray]] = {name: [] for name in MASS_FIELDS}
    for each in heavier:
        now = scaler.weigh(each)
        for name, kept in parts.items():
            kept.append(getattr(now, name).copy())
    pool = {name: jnp.asarray(np.stack(kept), jnp.float32) for name, kept in parts.items()}
    return pool, jnp.asarray(heavier, jnp.float32)
