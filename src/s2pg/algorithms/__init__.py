"""Learning algorithms, each one file, each for every memory rule."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from s2pg.algorithms.adversarial import Adversarial
from s2pg.algorithms.base import (
    Algorithm,
    Imitator,
    Metrics,
    Plan,
    Policy,
    PolicyAlgorithm,
    Student,
    TrainState,
    Traits,
)
from s2pg.algorithms.cloning import Cloning
from s2pg.algorithms.ddpg import DDPG
from s2pg.algorithms.distillation import Distillation
from s2pg.algorithms.gpomdp import GPOMDP
from s2pg.algorithms.lsiq import LSIQ
from s2pg.algorithms.ppo import PPO
from s2pg.algorithms.reinforce import REINFORCE
from s2pg.algorithms.sac import SAC
from s2pg.algorithms.slac import SLAC
from s2pg.algorithms.td3 import TD3
from s2pg.algorithms.trpo import TRPO
from s2pg.errors import UserError, unknown

__all__ = [
    "ALGORITHMS", "Algorithm", "Entry", "Imitator", "Metrics", "Plan", "Policy", "Student", "TrainState", "Traits",
    "chain", "find_algorithm", "register_algorithm",
]  # fmt: skip


class Entry(NamedTuple):
    """An algorithm by its name: its class, and the name of the algorithm that it wraps, if it does."""

    cls: type[Algorithm]
    wraps: str | None = None


ALGORITHMS: dict[str, Entry] = {
    "ppo": Entry(PPO), "trpo": Entry(TRPO), "sac": Entry(SAC), "td3": Entry(TD3), "ddpg": Entry(DDPG),
    "reinforce": Entry(REINFORCE), "gpomdp": Entry(GPOMDP), "gail": Entry(Adversarial, "ppo"),
    "gail-trpo": Entry(Adversarial, "trpo"), "gail-paper": Entry(Adversarial, "ppo"), "lsiq": Entry(LSIQ, "sac"),
    "slac": Entry(SLAC, "sac"), "bc": Entry(Cloning), "distill": Entry(Distillation),
}  # fmt: skip


def find_algorithm(name: str) -> Entry:
    """The algorithm of this name; one line where there is none."""
    if name not in ALGORITHMS:
        raise unknown("algorithm", name, ALGORITHMS)
    return ALGORITHMS[name]


def chain(name: str) -> list[str]:
    """The names of an algorithm and of all that it wraps, the innermost first."""
    inner = find_algorithm(name).wraps
    return [*(chain(inner) if inner else ()), name]


def traits(name: str) -> Traits:
    """What is known of an algorithm before it is built: what its class says, or else that of what it wraps."""
    cls, inner = find_algorithm(name)
    own: Traits | None = getattr(cls, "traits", None)
    if own is None:
        assert inner is not None
        return traits(inner)
    return own


def register_algorithm(name: str, cls: type, wraps: str | None = None) -> None:
    """Makes an algorithm of your own known as `name`: to `s2pg.train(name, ...)`, and to `s2pg.load` of its runs.

    `cls` is a `PolicyAlgorithm`, or with `wraps` any `Algorithm` that has a field `inner`: the algorithm of that name
    is built first and handed over there, and its hyper-parameters and presets hold for yours too. Fields made with
    `s2pg.options.option` are hyper-parameters.
    """
    kind = Algorithm if wraps else PolicyAlgorithm
    if not (isinstance(cls, type) and issubclass(cls, kind)):
        raise UserError(f"algorithm '{name}' must be a subclass of s2pg.algorithms.base.{kind.__name__}, not {cls!r}")
    if not wraps and not hasattr(cls, "traits"):
        raise UserError(f"algorithm '{name}' needs a class attribute 'traits' (s2pg.algorithms.Traits)")
    if wraps:
        if name in chain(wraps):
            raise UserError(f"algorithm '{name}' cannot wrap itself")
        if "inner" not in {field.name for field in dataclasses.fields(cls)}:
            raise UserError(f"algorithm '{name}' wraps {wraps} and needs a field 'inner' to hold it")
    known = ALGORITHMS.get(name, Entry(cls)).cls
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise UserError(f"there is an algorithm '{name}' already: {known.__name__}")
    ALGORITHMS[name] = Entry(cls, wraps)
