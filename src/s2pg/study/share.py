"""How the runs of a study share a machine: so many at a time, each with its part of the GPUs and of the cores."""

from __future__ import annotations

import os
from typing import NamedTuple

import jax

from s2pg.errors import UserError
from s2pg.study.plan import Resources

FRACTION, OLD_FRACTION = "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"
PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"
USED = 0.9  # of a share; the rest is for what CUDA itself takes in every process
THREADS = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Share(NamedTuple):
    """So many runs at a time, and what each of them has."""

    jobs: int
    gpus: tuple[str, ...] = ()  # those of this machine, as CUDA_VISIBLE_DEVICES names them
    part: float = 1.0  # of one of them
    cpus: int = 0  # 0: all
    on_cpu: bool = False  # even where there is something faster

    def environment(self, slot: int, alone: bool = False) -> dict[str, str]:
        """The environment variables of a run; `alone` is one that has a GPU to itself."""
        found = dict(os.environ)
        if self.cpus:
            found |= dict.fromkeys(THREADS, str(self.cpus))
        if self.on_cpu:
            found["JAX_PLATFORMS"] = "cpu"
        if self.gpus:
            found.pop(OLD_FRACTION, None)  # JAX takes one of the two
            found["CUDA_VISIBLE_DEVICES"] = self.gpus[slot % len(self.gpus)]
            found[FRACTION] = f"{USED * (1.0 if alone else self.part):.3f}"
        return found


def leave_the_gpu(inherited: bool = False) -> None:
    """Lets JAX look at the GPUs, for the first time in this process, without taking their memory: the runs need it.

    JAX then says of a GPU that it has what a run with one to itself will have: `USED` of it, whatever the environment
    says. Where runs take their fraction from the environment (`inherited`), so does this process.
    """
    names = (PREALLOCATE,) if inherited else (PREALLOCATE, FRACTION, OLD_FRACTION)
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ |= {PREALLOCATE: "false"} | ({} if inherited else {FRACTION: str(USED)})
    try:
        jax.devices()
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ |= before


def share(resources: Resources, jobs: int | None = None) -> Share:
    """How the runs share this machine; `jobs` of them at a time, by default as many as fit."""
    if jobs is not None and jobs < 1:
        raise UserError(f"--jobs must be 1 or more, not {jobs}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not resources.gpu or jax.default_backend() == "cpu":
        cpus = resources.cpus or 1
        return Share(jobs or max(1, cores // cpus), cpus=cpus, on_cpu=True)
    gpus = _gpus()
    if not gpus:  # another kind of accelerator, of which nothing is known: one run at a time
        return Share(jobs or 1, cpus=resources.cpus)
    jobs = jobs or len(gpus) * int(1 / resources.gpu + 1e-9)
    part = min(resources.gpu, 1 / -(-jobs // len(gpus)))
    return Share(jobs, gpus, part, resources.cpus)


def _gpus() -> tuple[str, ...]:
    if jax.default_backend() != "gpu":
        return ()
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    return tuple(told.split(",")) if told else tuple(str(device.id) for device in jax.local_devices())
