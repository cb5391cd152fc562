"""Benchmarks by name: how long one thing takes under each label, all measured in one alternating run.

A report is `{schema, name, hardware, versions, settings, rows: [{label, seconds, spread, ratio, ...}]}`, with the
median of the rounds, their interquartile range, and the ratio of seconds to the first label's, or to that of the row
named under `against`. Where the arithmetic is known, `gflop_per_s`; where the machine's rate for matrices was measured,
the `share` of it that was reached. A row that names another under `share_of` has the share of that one's rate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import jax
import numpy as np

from s2pg.bench import envs, imitation, memory, offpolicy, session
from s2pg.bench.base import Settings, Workload
from s2pg.bench.offpolicy import MATRICES
from s2pg.errors import unknown
from s2pg.io import provenance

__all__ = ["BENCHES", "Settings", "run"]

SCHEMA = 2
BENCHES: dict[str, Callable[[Settings], dict[str, Workload]]] = {
    "memory": memory.workloads, "offpolicy": offpolicy.workloads, "imitation": imitation.workloads,
    "envs": envs.workloads, "session": session.workloads,
}  # fmt: skip


def run(name: str, settings: Settings, report: Callable[[int], None] = lambda done: None) -> dict[str, Any]:
    """Times every label of a benchmark in turn, round after round, so that a busy moment hits all of them alike."""
    if name not in BENCHES:
        raise unknown("benchmark", name, BENCHES)
    timed = BENCHES[name](settings)
    try:
        seconds = _alternate(timed, settings.rounds, report)
    finally:
        for each in timed.values():
            each.close()
    rows = [_row(label, timed[label].facts, each) for label, each in seconds.items()]
    by_label = {row["label"]: row for row in rows}
    arithmetic = by_label.get(MATRICES, {}).get("gflop_per_s")
    for row in rows:
        row["ratio"] = row["seconds"] / by_label[row.get("against", rows[0]["label"])]["seconds"]
        if arithmetic and "gflop_per_s" in row:
            row["share"] = row["gflop_per_s"] / arithmetic
        if "share_of" in row:
            row["share"] = by_label[row["share_of"]]["seconds"] / row["seconds"]
    facts = {"hardware": provenance.hardware(), "versions": provenance.versions(), "settings": asdict(settings)}
    return {"schema": SCHEMA, "name": name, **facts, "rows": rows}


def _alternate(timed: Mapping[str, Workload], rounds: int, report: Callable[[int], None]) -> dict[str, list[float]]:
    """Seconds of one piece of each label's work, in every round."""
    seconds: dict[str, list[float]] = {label: [] for label in timed}
    for number in range(-2, rounds):  # two rounds to compile and warm up
        for label, (work, facts, _) in timed.items():
            began = time.perf_counter()
            jax.block_until_ready(work())
            if number >= 0:
                seconds[label].append((time.perf_counter() - began) / facts.get("pieces", 1))
        report(number + 1)
    return seconds


def _row(label: str, facts: Mapping[str, Any], seconds: list[float]) -> dict[str, Any]:
    median = float(np.median(seconds))
    spread = float(np.subtract(*np.quantile(seconds, (0.75, 0.25))))
    known = {name: value for name, value in facts.items() if name not in ("pieces", "piece")}
    rate = {"gflop_per_s": facts["gflop"] / median} if "gflop" in facts else {}
    if "piece" in facts:
        rate[f"{facts['piece']}_per_s"] = 1.0 / median
    return {"label": label, "seconds": median, "spread": spread} | known | rate
