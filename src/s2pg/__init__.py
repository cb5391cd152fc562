"""Policies with memory at the price of policies without: stochastic stateful policy gradients in JAX."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from s2pg.envs.ids import register as _register
from s2pg.errors import DivergenceError, UserError

if TYPE_CHECKING:
    from s2pg import demos
    from s2pg.algorithms import register_algorithm
    from s2pg.config.presets import register_presets
    from s2pg.envs.tasks import make, register_task
    from s2pg.io.trackers import register_tracker
    from s2pg.kernels import register_kernel
    from s2pg.runs.expert import expert
    from s2pg.runs.export import export
    from s2pg.runs.record import record
    from s2pg.runs.run import Run, load
    from s2pg.runs.session import LoadedPolicy
    from s2pg.runs.start import train

__version__ = "0.2.0"

__all__ = [
    "DivergenceError", "LoadedPolicy", "Run", "UserError", "__version__", "demos", "expert", "export", "load", "make",
    "record", "register_algorithm", "register_kernel", "register_presets", "register_task",
    "register_tracker", "train",
]  # fmt: skip

# Where the rest is, imported when it is first asked for: `s2pg --help` and reports need no JAX, which takes seconds.
_WHERE = {
    "LoadedPolicy": "runs.session", "Run": "runs.run", "expert": "runs.expert", "export": "runs.export",
    "load": "runs.run", "make": "envs.tasks", "record": "runs.record",
    "register_algorithm": "algorithms", "register_kernel": "kernels", "register_presets": "config.presets",
    "register_task": "envs.tasks", "register_tracker": "io.trackers", "train": "runs.start",
}  # fmt: skip

_register()  # so that gymnasium.make("s2pg/Recall-v0") works


def __getattr__(name: str) -> Any:
    if name == "demos":
        return importlib.import_module("s2pg.demos")
    if name not in _WHERE:
        raise AttributeError(f"module 's2pg' has no attribute '{name}'")
    globals()[name] = found = getattr(importlib.import_module(f"s2pg.{_WHERE[name]}"), name)
    return found


def __dir__() -> list[str]:
    return [*globals(), *__all__]
