"""From folders to a report: finds the runs, compares them, and settles what counts as 0 and as 1."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from s2pg.analysis.comparison import compare
from s2pg.analysis.logs import Log, find, load
from s2pg.analysis.report.page import Report
from s2pg.analysis.scale import Ends, read_study, scales
from s2pg.errors import UserError, unknown

EVALUATION, TRAINING = "eval_return", "train_return"


def build(
    folders: Sequence[Path],
    schemas: Collection[int],
    value: str = EVALUATION,
    seconds: bool = True,
    rules: Mapping[str, Ends] | None = None,
) -> Report:
    """A report of all runs below some folders; one of a schema that is not among `schemas` is refused."""
    runs = find(folders)
    logs = [load(run) for run in runs]
    for log in logs:
        if log.config.get("schema") not in schemas:
            known = ", ".join(map(str, schemas))
            raise UserError(f"{log.path} has schema {log.config.get('schema')!r}; this version of s2pg reads {known}")
    found = compare(logs, _choose(value, logs))
    about, own = read_study(folders)
    title = ", ".join(dict.fromkeys(folder.resolve().name for folder in folders))
    return Report(title, found, scales(found, own | dict(rules or {})), _where(folders, runs), seconds, about=about)


def _choose(value: str, logs: Sequence[Log]) -> str:
    """`value`, or training returns if some run has no such evaluation: a report compares one quantity, never two."""
    begun = [log for log in logs if log.rows]
    known = {name for log in begun for at in log.rows.values() for row in at.values() for name in row}
    if begun and value not in known and (value != EVALUATION or TRAINING not in known):
        raise unknown("metric", value, known - {"step", "seed"})
    lacking = not all(log.has(value) for log in begun)
    return TRAINING if lacking and all(log.has(TRAINING) for log in begun) else value


def _where(folders: Sequence[Path], runs: Sequence[Path]) -> dict[Path, str]:
    """How a page names run folders: below the folder that the user named, not where that lies on this machine."""
    names = {}
    for run in runs:
        above = [folder.resolve() for folder in folders if run.resolve().is_relative_to(folder.resolve())]
        names[run] = str(run.resolve().relative_to(above[0].parent))
    return names


def state(folders: Sequence[Path]) -> str:
    """A short text that changes when a run below these folders does."""
    seen = []
    for run in find(folders):
        for file in ("config.json", "metrics.jsonl"):
            try:
                found = os.stat(run / file)
            except FileNotFoundError:
                continue
            seen.append((str(run), file, found.st_size, found.st_mtime_ns))
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]
