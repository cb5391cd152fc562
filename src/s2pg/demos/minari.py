"""Minari's folders of episodes, `NAME/data/main_data.hdf5`: read and written by h5py, without Minari itself.

An episode is a group with T + 1 observations and T actions, rewards, terminations and truncations. What Minari has no
place for (`hidden`, `dt`, `task`, `notes`) lies beside it under names of our own, which Minari does not look at.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from s2pg.demos.data import Demonstrations
from s2pg.errors import UserError
from s2pg.io.sinks import write_json
from s2pg.types import POLICY

SUFFIX = ".minari"
DATA, MAIN, METADATA, OWN, HIDDEN = "data", "main_data.hdf5", "metadata.json", "s2pg", "s2pg_hidden"
VERSION = "0.5.0"  # of the layout: Minari refuses a folder that is newer than itself


def _h5py() -> Any:
    try:
        import h5py  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UserError("Minari folders need h5py: pip install 's2pg[demos]'") from None
    return h5py


def _data_folder(path: Path) -> Path | None:
    """Where the data are; the dataset's folder, its `data` and the file in there all name it."""
    for folder in (path / DATA, path, path.parent):
        if (folder / MAIN).is_file() and (folder != path.parent or path.name == MAIN):
            return folder
    return None


def is_dataset(path: Path) -> bool:
    """Tells whether a path names a dataset that is stored as HDF5."""
    return _data_folder(path) is not None


def read(path: Path) -> Demonstrations:
    """Reads all episodes; entries of a dict are views, an observation without names is the view `policy`."""
    h5py, folder = _h5py(), _data_folder(path)
    assert folder is not None
    try:
        metadata = json.loads((folder / METADATA).read_text()) if (folder / METADATA).is_file() else {}
        with h5py.File(folder / MAIN, "r") as file:
            numbers = sorted(int(match[1]) for name in file if (match := re.fullmatch(r"episode_(\d+)", name)))
            parts = [_episode(h5py, file[f"episode_{i}"], f"episode {i} of {path}") for i in numbers]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} is damaged: {' '.join(str(error).split())}") from error
    if not parts:
        raise UserError(f"{path} has no episodes")
    if len({_shapes(part) for part in parts}) > 1:
        raise UserError(f"episodes of {path} do not have the same observations and actions")
    joined: dict[str, Any] = {
        name: {view: np.concatenate([part[name][view] for part in parts]) for view in parts[0][name]}
        for name in ("obs", "next_obs")
    }
    for name in ("action", "terminated", "first", "hidden", "reward"):
        found = [part[name] for part in parts]
        joined[name] = None if any(one is None for one in found) else np.concatenate(found)
    told = metadata.get(OWN, {}) if isinstance(metadata, dict) else None
    if not isinstance(told, dict):
        raise UserError(f"{METADATA} of {path} is no table of names and values")
    notes = told.get("notes") or {"source": f"Minari, {metadata.get('dataset_id', path.name)}"}
    return Demonstrations(dt=told.get("dt"), task=told.get("task", _task(metadata)), notes=notes, **joined)


def _shapes(part: dict[str, Any]) -> tuple:
    """What the arrays of all episodes have in common, their lengths aside."""
    views = tuple((view, table.shape[1:]) for view, table in part["obs"].items())
    return views, part["action"].shape[1:], None if part["hidden"] is None else part["hidden"].shape[1:]


def _task(metadata: dict[str, Any]) -> str:
    """The environment that was recorded, as `make` knows it."""
    try:
        return f"gym:{json.loads(metadata['env_spec'])['id']}"
    except (KeyError, TypeError, ValueError):
        return ""


def _require(h5py: Any, group: Any, names: Sequence[str], where: str) -> None:
    for name in names:
        if not isinstance(group, h5py.Group) or name not in group:
            raise UserError(f"{where} has no {name}")


def _episode(h5py: Any, group: Any, where: str) -> dict[str, Any]:
    _require(h5py, group, ("observations", "actions"), where)
    observations = _observations(h5py, group["observations"], where)
    action = _table(h5py, group["actions"], f"actions of {where}", flat=False)
    rows = len(action)
    if not rows:
        raise UserError(f"{where} is empty")
    _require(h5py, group, ("rewards", "terminations"), where)
    read = lambda name: _table(h5py, group[name], f"{name} of {where}", flat=False)  # noqa: E731
    for view, table in observations.items():
        if len(table) != rows + 1:
            raise UserError(f"'{view}' of {where} has {len(table)} rows where {rows} actions want {rows + 1}")
    reward = np.asarray(read("rewards"), np.float32)
    return {
        "obs": {view: table[:-1] for view, table in observations.items()},
        "next_obs": {view: table[1:] for view, table in observations.items()},
        "action": action,
        "terminated": np.asarray(read("terminations"), bool),
        "first": np.arange(rows) == 0,
        "hidden": read(HIDDEN) if HIDDEN in group else None,
        "reward": None if np.isnan(reward).all() else reward,
    }


def _observations(h5py: Any, found: Any, where: str, prefix: str = "") -> dict[str, np.ndarray]:
    if not isinstance(found, h5py.Group):
        return {prefix or POLICY: _table(h5py, found, f"observations of {where}")}
    views = {}
    for name in found:
        views |= _observations(h5py, found[name], where, f"{prefix}/{name}" if prefix else name)
    return views


def _table(h5py: Any, found: Any, what: str, flat: bool = True) -> np.ndarray:
    if isinstance(found, h5py.Group) or found.dtype.kind not in "biuf" or not found.shape:
        raise UserError(f"{what} are no arrays of numbers")
    array = found[()]
    return array.reshape(len(array), -1) if flat else array


def check(path: Path) -> None:
    """Refuses a folder that cannot be written."""
    _h5py()
    if path.exists():
        raise UserError(f"{path} exists already")


def write(path: Path, demonstrations: Demonstrations) -> None:
    """Writes a folder that Minari loads; it appears when it is whole."""
    check(path)
    h5py = _h5py()
    if demonstrations.action is None:
        raise UserError("Minari keeps actions, and these demonstrations have none")
    _check_chains(demonstrations)
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        (aside / DATA).mkdir(parents=True)
        with h5py.File(aside / DATA / MAIN, "w", track_order=True) as file:
            for i, rows in enumerate(demonstrations.episodes):
                _write_episode(file.create_group(f"episode_{i}"), i, demonstrations, rows)
        size = (aside / DATA / MAIN).stat().st_size / 2**20
        write_json(aside / DATA / METADATA, _metadata(path, demonstrations) | {"dataset_size": round(size, 3)})
        os.replace(aside, path)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _check_chains(demonstrations: Demonstrations) -> None:
    """Refuses what T + 1 observations cannot hold: a step whose next observation is not that of the next row."""
    inside = ~demonstrations.first[1:]
    for view, table in demonstrations.obs.items():
        broken = inside & (demonstrations.next_obs[view][:-1] != table[1:]).any(axis=1)
        if broken.any():
            row = int(np.argmax(broken))
            raise UserError(f"Minari keeps episodes without gaps: view '{view}' jumps after row {row}")


def _write_episode(group: Any, number: int, demonstrations: Demonstrations, rows: slice) -> None:
    steps = rows.stop - rows.start
    group.attrs.update({"id": number, "total_steps": steps})
    views = {
        view: np.concatenate([table[rows], demonstrations.next_obs[view][rows.stop - 1 : rows.stop]])
        for view, table in demonstrations.obs.items()
    }
    if set(views) == {POLICY}:
        group["observations"] = views[POLICY]
    else:
        for view, table in views.items():
            group[f"observations/{view}"] = table
    assert demonstrations.action is not None
    terminated = demonstrations.terminated[rows]
    group["actions"] = demonstrations.action[rows]
    group["terminations"] = terminated
    group["truncations"] = (np.arange(steps) == steps - 1) & ~terminated
    # Not a number where none is known: 0 would be one.
    unknown = np.full(steps, np.nan, np.float32)
    group["rewards"] = unknown if demonstrations.reward is None else demonstrations.reward[rows]
    if demonstrations.hidden is not None:
        group[HIDDEN] = demonstrations.hidden[rows]


def _metadata(path: Path, demonstrations: Demonstrations) -> dict[str, Any]:
    # As JSON within JSON, and with an infinity that is not JSON's: so Minari wants it.
    spaces = {view: _box((table.shape[1],)) for view, table in demonstrations.obs.items()}
    observation = spaces[POLICY] if set(spaces) == {POLICY} else {"type": "Dict", "subspaces": spaces}
    action = demonstrations.action
    assert action is not None
    if action.dtype.kind == "f":
        acts: dict[str, Any] = _box(action.shape[1:])
    elif action.ndim == 1:
        low = min(0, int(action.min()))
        acts = {"type": "Discrete", "dtype": "int64", "start": low, "n": int(action.max()) - low + 1}
    else:
        lows = np.minimum(0, action.min(axis=0))
        counts = action.max(axis=0) - lows + 1
        acts = {"type": "MultiDiscrete", "dtype": "int64", "nvec": counts.tolist(), "start": lows.tolist()}
    return {
        "total_episodes": len(demonstrations.episodes),
        "total_steps": demonstrations.rows,
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "observation_space": json.dumps(observation),
        "action_space": json.dumps(acts),
        "dataset_id": _id(path.name),
        "minari_version": VERSION,
        OWN: {"dt": demonstrations.dt, "task": demonstrations.task, "notes": demonstrations.notes},
    }


def _id(name: str) -> str:
    """The folder's name as Minari's ids are, which end in a version."""
    plain = re.sub(r"[^\w-]+", "-", name.removesuffix(SUFFIX)).strip("-") or "demonstrations"
    return plain if re.search(r"-v\d+$", plain) else f"{plain}-v0"


def _box(shape: tuple[int, ...]) -> dict[str, Any]:
    low, high = np.full(shape, -np.inf).tolist(), np.full(shape, np.inf).tolist()
    return {"type": "Box", "dtype": "float32", "shape": list(shape), "low": low, "high": high}
