"""Writes a policy of a run as a file for robots: what `s2pg export` and `s2pg.export` do."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from s2pg.demos import recorder
from s2pg.errors import UserError
from s2pg.io import export as files
from s2pg.io import folder, provenance
from s2pg.io.export import Difference
from s2pg.loops import stream
from s2pg.runs import training
from s2pg.runs.assess import ASSESS
from s2pg.runs.run import Run
from s2pg.runs.session import LoadedPolicy

RETURNS = ("eval_return", "eval_return_stochastic", "train_return")


class Exported(NamedTuple):
    """A file that was written."""

    path: Path
    size: int  # in bytes
    inputs: dict[str, tuple[int, ...]]
    metadata: dict[str, Any]
    difference: Difference | None  # None where it was not checked


def export(
    run: Run | str | Path,
    out: str | Path,
    *,
    seed: int | None = None,
    format: str = "onnx",
    force: bool = False,
    check: bool = True,
) -> Exported:
    """Writes the policy of a seed, the first one's unless one is named, to `out`.

    With `check` the file plays one episode beside the policy before it is put in place, if its runtime is installed. It
    takes the place of another file only with `force`.
    """
    files.require(format)
    out, run = Path(out), run if isinstance(run, Run) else Run(run)
    if out.is_dir():
        raise UserError(f"{out} is a folder, not a file to write")
    for each in (out, files.beside(out)) if format == "stablehlo" else (out,):
        if each.exists() and not force:
            raise UserError(f"{each} is there already: --force writes over it")
    seed = run.experiment.seeds[0] if seed is None else seed
    policy = run.policy(seed)
    metadata = files.describe(policy.flat, _facts(run, seed))
    content = files.encode(policy.flat, format, metadata)
    play, found = files.player(content, format) if check else None, None
    if play is not None:
        found = files.compare(policy.flat, play, _episode(run, policy))
        files.judge(found)
    files.write(out, content, format, metadata)
    return Exported(out, len(content), files.signature(policy.flat), metadata, found)


def _facts(run: Run, seed: int) -> dict[str, Any]:
    """Where the policy comes from, and how good it was when it was saved."""
    file, plan = training.policy_file(run.path, seed), run.experiment
    step = (folder.read_meta(file) or {}).get("step")
    rows = [row for row in run.metrics if row.get("seed") == seed and row.get("step") == step]
    returns = {name: rows[-1].get(name) for name in RETURNS if rows and rows[-1].get(name) is not None}
    return {
        "task": plan.task,
        "options": plan.options,
        "algorithm": plan.algorithm,
        "memory": plan.memory,
        "kernel": plan.kernel,
        "seed": seed,
        "step": step,
        "returns": returns,
        "versions": provenance.versions(),
        "policy_sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
    }


def _episode(run: Run, policy: LoadedPolicy) -> np.ndarray:
    """What the policy sees in one episode of its task [T, N]."""
    played = recorder.record(run.env(), policy.actor, 1, stream(jax.random.key(0), ASSESS))
    return np.concatenate([np.asarray(played.obs[name]) for name in policy.flat.views], axis=1)
