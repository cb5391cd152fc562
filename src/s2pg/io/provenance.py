"""Where figures come from: the machine and the versions that made them, for every file that holds some."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from typing import Any

import jax

PACKAGES = ("s2pg", "jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium", "mujoco", "mujoco-mjx", "warp-lang")


def versions() -> dict[str, str]:
    """Of Python and of the packages that have a say in the numbers, as far as they are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # a checkout that was not installed
            continue
    return found


def hardware() -> dict[str, Any]:
    """What JAX computes on."""
    device = jax.devices()[0]
    return {
        "platform": device.platform,
        "device": device.device_kind,
        "devices": len(jax.devices()),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }
