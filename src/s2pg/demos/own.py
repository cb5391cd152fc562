"""The library's own layout: a `.npz` as checkpoints are, with a JSON header, a checksum and no pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from s2pg.demos.data import Demonstrations
from s2pg.errors import UserError
from s2pg.io import checkpoint

KIND, SCHEMA = "demonstrations", 1
PARTS = ("action", "terminated", "first", "hidden", "reward")


def write(path: Path, demonstrations: Demonstrations) -> None:
    """Writes a file that is there whole or not at all; the same data give the same bytes."""
    tree: dict[str, Any] = {"obs": demonstrations.obs, "next_obs": demonstrations.next_obs}
    tree |= {name: part for name in PARTS if (part := getattr(demonstrations, name)) is not None}
    header = {"kind": KIND, "schema": SCHEMA, "dt": demonstrations.dt, "task": demonstrations.task}
    checkpoint.save(path, tree, header | {"notes": demonstrations.notes})


def read(path: Path) -> Demonstrations:
    """Reads such a file; one of the library's that holds something else is refused."""
    try:
        arrays, header = checkpoint.load_arrays(path)
    except checkpoint.DamagedFileError as error:
        raise UserError(f"{path} is damaged ({error.reason})") from error
    if header.get("kind") != KIND:
        raise UserError(f"{path} holds no demonstrations: it is a checkpoint or a policy")
    if header["schema"] != SCHEMA:
        raise UserError(f"{path} has schema {header['schema']}; this version of s2pg reads {SCHEMA}")
    obs, next_obs = _views(arrays, "obs/"), _views(arrays, "next_obs/")
    parts = {name: arrays.get(name) for name in PARTS}
    return Demonstrations(
        obs, next_obs, parts["action"], arrays["terminated"], arrays["first"], parts["hidden"], header["dt"],
        header["task"], header["notes"], parts["reward"],
    )  # fmt: skip


def _views(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
