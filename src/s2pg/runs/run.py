"""A run folder and the policies in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from s2pg.algorithms import Policy
from s2pg.envs.adapter import Adapter
from s2pg.envs.base import Env
from s2pg.envs.gymnasium import GymTask
from s2pg.envs.host import HostTask
from s2pg.envs.mujoco.options import ONLY_ON
from s2pg.envs.mujoco.robots import ROBOTS
from s2pg.envs.mujoco.task import AUTO, best
from s2pg.envs.tasks import BUILT_IN, make, prefix_of
from s2pg.errors import UserError
from s2pg.io import checkpoint
from s2pg.io.sinks import Row, read_metrics
from s2pg.runs import training
from s2pg.runs.experiment import read_config
from s2pg.runs.session import LoadedPolicy


class Run:
    """A run folder: its configuration, metrics and policies."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.experiment, self.spec = read_config(self.path)

    @property
    def metrics(self) -> list[Row]:
        """All rows that training logged."""
        return read_metrics(self.path / training.METRICS)

    @property
    def returns(self) -> dict[int, float]:
        """What each seed's newest policy was worth, where that is a number; nothing where no metrics were kept."""
        if not (self.path / training.METRICS).exists():
            return {}
        newest = {row["seed"]: row.get("eval_return") for row in self.metrics}
        return {seed: found for seed, found in newest.items() if found is not None}

    @property
    def best_seed(self) -> int:
        """The seed with the highest last return; the first one where there are no returns."""
        found = self.returns
        return max(found, key=lambda seed: found[seed]) if found else self.experiment.seeds[0]

    def env(self, **other: Any) -> Env | HostTask:
        """Its task, with other options where they are given."""
        own = self.experiment.options
        if self.experiment.task in ROBOTS:
            backend = other.get("backend", own["backend"])
            other = other | {"backend": best() if backend == AUTO else backend}
            # What is said of one backend is not of another that does not ask for it.
            own = {
                name: value for name, value in own.items() if name not in ONLY_ON or other["backend"] in ONLY_ON[name]
            }
        return make(self.experiment.task, **own | other)

    def policy(self, seed: int | None = None, explore: bool = False) -> LoadedPolicy:
        """The policy of a seed, the first one's unless one is named."""
        seed = self.experiment.seeds[0] if seed is None else seed
        if seed not in self.experiment.seeds:
            raise UserError(f"{self.path} has no seed {seed}; it has {', '.join(map(str, self.experiment.seeds))}")
        file = training.policy_file(self.path, seed)
        if not file.exists():
            raise UserError(f"{file} is not there: the run was stopped before its first checkpoint, or it was deleted")
        built = self.experiment.build(self.spec)
        like = eqx.filter_eval_shape(lambda key: built.init_policy(self.spec, key=key), jax.random.key(0))
        with jax.ensure_compile_time_eval():  # a function that is being traced may load a policy
            found, meta = checkpoint.load(file, like._asdict())
            finite = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))
        if meta.get("seed", seed) != seed:
            raise UserError(f"{file} is the policy of seed {meta['seed']}, by what is in it")
        if not finite:
            raise UserError(f"{file} holds numbers that are not finite")
        return LoadedPolicy(built.actor(Policy(**found), explore), self.spec, self._hidden())

    def _hidden(self) -> tuple[int, ...]:
        """The entries that its task shows as 0. A robot's hidden entries are not in its policy's view at all."""
        experiment = self.experiment
        if prefix_of(experiment.task):
            return tuple(experiment.options.get("hide", ()))
        # A task that the user registered may be another library's underneath.
        task = self.env() if experiment.task not in BUILT_IN else None
        return task.hide if isinstance(task, Adapter | GymTask) else ()


def load(run: str | Path, seed: int | None = None) -> LoadedPolicy:
    """The policy of a run; of its first seed unless one is named."""
    return Run(run).policy(seed)
