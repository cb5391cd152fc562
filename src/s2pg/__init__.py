"""Policies with memory at the price of policies without: stochastic stateful policy gradients in JAX."""

from s2pg import demos
from s2pg.algorithms import register_algorithm
from s2pg.config.presets import register_presets
from s2pg.envs.as_gymnasium import register as _register
from s2pg.envs.tasks import make, register_task
from s2pg.errors import DivergenceError, UserError
from s2pg.kernels import register_kernel
from s2pg.runs.expert import expert
from s2pg.runs.export import export_policy as export
from s2pg.runs.record import record
from s2pg.runs.run import Run, load
from s2pg.runs.session import LoadedPolicy
from s2pg.runs.start import train

__version__ = "0.2.0"

_register()  # so that gymnasium.make("s2pg/Recall-v0") works

__all__ = [
    "DivergenceError", "LoadedPolicy", "Run", "UserError", "__version__", "demos", "expert", "export", "load", "make",
    "record", "register_algorithm", "register_kernel", "register_presets", "register_task", "train",
]  # fmt: skip
