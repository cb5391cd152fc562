"""Trains the cells of a study on Ray: plain tasks with retries, each in a worker process of its own.

Training runs inside the worker, never in a child of it, which would outlive the worker and write on.
"""

from __future__ import annotations

import importlib
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from s2pg.configure import compilation_cache
from s2pg.errors import UserError
from s2pg.io import lock
from s2pg.study.cells import FAILED, STOPPED, Outcome
from s2pg.study.local import POLL_S, Stop, Watch
from s2pg.study.plan import Cell, Resources
from s2pg.study.share import FRACTION, OLD_FRACTION, THREADS, USED
from s2pg.study.worker import MISTAKE, from_json, to_json, train


def package() -> Any:
    """Ray, or one line where it is missing."""
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise UserError("--on ray needs Ray: pip install 's2pg[ray]'") from None


def run(
    cells: Sequence[Cell], folder: Path, resources: Resources, jobs: int | None, token: str, stop: Stop, watch: Watch
) -> dict[str, Outcome]:
    """Trains all cells and tells how they ended; `token` is that of the study's lock, which every node has to see."""
    ray = package()
    _connect(ray, resources, jobs)
    try:
        return _run(ray, cells, folder, resources, token, stop, watch)
    finally:
        ray.shutdown()  # leaves a cluster that was there as it was


def _connect(ray: Any, resources: Resources, jobs: int | None) -> None:
    """Joins the cluster that runs, on $RAY_ADDRESS or here, or starts one for as long as this process lives."""
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "warning"}
    try:
        ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), **quiet)
    except ConnectionError as error:
        if address := os.environ.get("RAY_ADDRESS"):
            raise UserError(f"no Ray cluster answers at {address}: {' '.join(str(error).split())}") from None
        cpus = jobs * (resources.cpus or 1) if jobs else None
        ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
    except (ImportError, ValueError) as error:  # an address that needs ray[client], or is none
        raise UserError(f"Ray cannot connect: {' '.join(str(error).split())}") from None


def _run(
    ray: Any, cells: Sequence[Cell], folder: Path, resources: Resources, token: str, stop: Stop, watch: Watch
) -> dict[str, Outcome]:
    cpus = resources.cpus or 1
    gpu = resources.gpu if ray.cluster_resources().get("GPU") else 0
    environment = dict.fromkeys(THREADS, str(cpus)) if resources.cpus or not gpu else {}
    environment |= {FRACTION: f"{USED * gpu:.3f}", OLD_FRACTION: ""} if gpu else {"JAX_PLATFORMS": "cpu"}
    # One task a process: its memory is free again afterwards, and no compiled program meets another run's.
    task = ray.remote(
        num_cpus=cpus, num_gpus=gpu, max_calls=1, max_retries=resources.retries, retry_exceptions=False,
        runtime_env={"env_vars": environment},
    )(_train)  # fmt: skip
    asked = {task.remote(to_json(cell.request), str(folder), token): cell.name for cell in cells}
    outcomes: dict[str, Outcome] = {}
    told = 0
    while asked:
        ended, _ = ray.wait(list(asked), timeout=POLL_S)
        for reference in ended:
            outcomes[asked.pop(reference)] = _outcome(ray, reference)
        if stop.asked > told:
            told = stop.asked
            for reference in asked:
                ray.cancel(reference, force=told > 1)  # the first is a Ctrl-C to the worker: it stops at a checkpoint
        at_work = [cell.name for cell in cells if cell.name in asked.values() and lock.is_held(cell.request.folder)]
        watch(at_work, outcomes)
    return outcomes


def _outcome(ray: Any, reference: Any) -> Outcome:
    try:
        return Outcome(*ray.get(reference))
    except (ray.exceptions.TaskCancelledError, KeyboardInterrupt):
        return Outcome(STOPPED)
    except ray.exceptions.RayError as error:  # retried as often as allowed
        return Outcome(FAILED, " ".join(str(error).split())[:200])


def _train(request: str, folder: str, token: str) -> tuple[str, str]:
    """What a task does: trains one cell in this worker."""
    holder = lock.read(Path(folder) / lock.NAME)
    if holder is None or holder.token != token:
        return (
            MISTAKE,
            f"{platform.node()} does not see {folder}, which all nodes have to share",
        )
    compilation_cache()
    outcome = train(from_json(request))
    return outcome.state, outcome.why
