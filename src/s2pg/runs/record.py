"""Records demonstrations of a trained policy: what `s2pg record` and `s2pg.record` do."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from s2pg.demos import Demonstrations, files, recorder
from s2pg.errors import UserError
from s2pg.io import provenance
from s2pg.loops import stream
from s2pg.runs.run import Run

# A stream of random numbers beside those of training and of evaluation: no learner is judged by episodes that it saw.
RECORD = 5


def record(
    run: Run | str | Path,
    episodes: int,
    out: str | Path | None = None,
    *,
    seed: int | None = None,
    record_seed: int = 0,
    stochastic: bool = False,
    noise: Sequence[float] = (),
    options: Mapping[str, Any] | None = None,
) -> Demonstrations:
    """Plays the policy of a run for so many whole episodes, and writes them to `out` if one is named.

    `seed` says whose policy of the run (the best one's: an expert that failed is nothing to imitate), `record_seed`
    which episodes. `noise` has standard deviations of noise on the actions, which episodes take in turn. `options` are
    other ones of the task than in training.
    """
    if out is not None:
        files.check(out)  # before minutes are spent
    run = run if isinstance(run, Run) else Run(run)
    if not 0 <= record_seed < 2**32:
        raise UserError(f"record_seed must lie between 0 and 2^32 - 1, not {record_seed}")
    env, experiment = run.env(**(options or {})), run.experiment
    seed = run.best_seed if seed is None else seed
    actor = run.policy(seed, explore=stochastic).actor
    for view in actor.reads:
        if env.spec.views.get(view) != run.spec.views[view]:
            raise UserError(f"with these options the view '{view}' is another than the policy was trained on")
    key = stream(jax.random.key(record_seed), RECORD)
    played = recorder.record(env, actor, episodes, key, seed=record_seed, noise=noise)
    assert played.returns is not None
    notes = {
        "source": "s2pg record",
        "run": run.path.resolve().name,
        "algorithm": experiment.algorithm,
        "memory": experiment.memory,
        "kernel": experiment.kernel,
        "options": experiment.options | dict(options or {}),
        "seed": seed,
        "record_seed": record_seed,
        "stochastic": stochastic,
        "returns": [round(float(x), 6) for x in played.returns],
        "versions": provenance.versions(),
    }
    made = dataclasses.replace(played, task=experiment.task, notes={**notes, **played.notes})
    if out is not None:
        files.write(out, made)
    return made
