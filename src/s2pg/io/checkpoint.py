"""Checkpoints: the arrays of any pytree in one file, without pickle, so that loading one executes nothing.

A file is a zip archive in NumPy's .npz layout, one `.npy` per leaf under its key path, closed by `meta.json`:
`{schema, meta, leaves: [{name, dtype, shape, key}], sha256}`, the sum being over all the rest. Timestamps are
fixed and nothing is compressed: the same tree gives the same bytes. `np.load` opens it too.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from s2pg.errors import UserError
from s2pg.io.atomic import replacing, sweep

SCHEMA = 1
META = "meta.json"


class Damaged(UserError):
    """The file is not as it was written."""

    def __init__(self, path: Path, reason: str):
        super().__init__(f"checkpoint {path} is damaged ({reason})")
        self.reason = reason


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _named(tree: PyTree) -> tuple[dict[str, Any], Any]:
    """The leaves by key path, in the tree's own order, and its structure."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    named = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}
    if len(named) < len(leaves):
        raise ValueError("two leaves of the tree have the same path")
    for name, leaf in named.items():
        if not (hasattr(leaf, "dtype") and hasattr(leaf, "shape")):
            raise TypeError(f"leaf {name!r} is no array but a {type(leaf).__name__}")
    return named, structure


def _encode(name: str, leaf: Any) -> tuple[dict[str, Any], bytes]:
    """A leaf's entry in `meta.json`, and its `.npy` file."""
    key = str(jax.random.key_impl(leaf)) if _is_key(leaf) else None
    array = np.asarray(leaf if key is None else jax.random.key_data(leaf), order="C")
    entry = {"name": name, "dtype": array.dtype.name, "shape": list(array.shape), "key": key}
    if array.dtype.isbuiltin == 2:  # bfloat16 and its kin, of which the .npy format knows nothing: keep the bits
        array = array.view(f"u{array.dtype.itemsize}")
    if array.dtype.kind not in "biufc":
        raise TypeError(f"leaf {name!r} has dtype {array.dtype}, which no checkpoint holds")
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=False)
    return entry, buffer.getvalue()


def _decode(entry: dict[str, Any], data: bytes) -> np.ndarray:
    array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    if array.dtype.name != entry["dtype"]:
        array = array.view(jnp.dtype(entry["dtype"]))
    if list(array.shape) != entry["shape"]:
        raise ValueError(f"{entry['name']} has shape {array.shape}")
    return array


def _dump(header: dict[str, Any]) -> bytes:
    return json.dumps(header, sort_keys=True, separators=(",", ":")).encode()


def save(path: str | Path, tree: PyTree, meta: dict[str, Any]) -> None:
    """Writes every array of the tree (numpy, JAX, typed PRNG keys) and `meta`, which is JSON, in one step."""
    digest, entries = hashlib.sha256(), []
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:

        def write(name: str, data: bytes) -> None:
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, 0o644 << 16
            archive.writestr(info, data)

        for name, leaf in _named(tree)[0].items():
            entry, data = _encode(name, leaf)
            entries.append(entry)
            digest.update(data)
            write(f"{name}.npy", data)
        # Through JSON and back, so that the sum is over what a reader will see: keys that were numbers are strings.
        header = {"schema": SCHEMA, "meta": json.loads(_dump(meta)), "leaves": entries}
        digest.update(_dump(header))
        write(META, _dump(header | {"sha256": digest.hexdigest()}))


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a whole file. No array is parsed before the sum over all of them is right."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise UserError(f"no checkpoint can be read from {path}: {error.strerror}") from None
    try:
        with file, zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
            if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
                raise ValueError("it holds compressed data")
            header = json.loads(archive.read(META))
            schema = header.pop("schema")
            if schema != SCHEMA:
                raise UserError(f"checkpoint {path} has schema {schema!r}; this version of s2pg reads {SCHEMA}")
            names = [f"{entry['name']}.npy" for entry in header["leaves"]]
            if [info.filename for info in infos] != [*names, META]:
                raise ValueError("its list of arrays is not the one written")
            raw = [archive.read(name) for name in names]
        written = header.pop("sha256")
        digest = hashlib.sha256()
        for data in [*raw, _dump({"schema": schema, **header})]:
            digest.update(data)
        if digest.hexdigest() != written:
            raise ValueError("its checksum is wrong")
        return header, {entry["name"]: _decode(entry, data) for entry, data in zip(header["leaves"], raw, strict=True)}
    except UserError:
        raise
    except Exception as error:  # whatever the parsers of zip, JSON and .npy make of foreign bytes
        raise Damaged(path, " ".join(str(error).split()) or type(error).__name__) from error


def load_arrays(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """All arrays by key path, PRNG keys as their bits, and the meta data."""
    header, arrays = _read(Path(path))
    return arrays, header["meta"]


def load(path: str | Path, like: PyTree) -> tuple[PyTree, dict[str, Any]]:
    """The tree and its meta data; `like` gives structure, shapes and dtypes, by arrays or `ShapeDtypeStruct`s.

    Leaves come back as numpy arrays where `like` has those, as JAX arrays elsewhere.
    """
    path = Path(path)
    header, arrays = _read(path)
    wanted, structure = _named(like)
    for kind, names in (("lacks", wanted.keys() - arrays.keys()), ("has", arrays.keys() - wanted.keys())):
        if names:
            shown = ", ".join(sorted(names)[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            raise UserError(f"checkpoint {path} does not fit: it {kind} {shown}")
    keys = {entry["name"]: entry["key"] for entry in header["leaves"]}
    leaves = []
    for name, leaf in wanted.items():
        found: Any = arrays[name]
        if keys[name] is not None:
            found = jax.random.wrap_key_data(jnp.array(found), impl=keys[name])
        if found.dtype != leaf.dtype or found.shape != leaf.shape:
            raise UserError(
                f"checkpoint {path} does not fit: {name} is {found.dtype}{list(found.shape)}"
                f" where {leaf.dtype}{list(leaf.shape)} is wanted"
            )
        # A copy: JAX may otherwise share numpy's memory, and donating that would be an error.
        leaves.append(found if isinstance(leaf, np.ndarray | np.generic) or _is_key(leaf) else jnp.array(found))
    return jax.tree.unflatten(structure, leaves), header["meta"]


class Checkpoints:
    """The last `keep` checkpoints of a run, `step-000000012345.npz` in a folder of their own."""

    def __init__(self, folder: str | Path, keep: int = 3):
        self.folder, self.keep = Path(folder), keep
        self.folder.mkdir(parents=True, exist_ok=True)
        sweep(self.folder)

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:012d}.npz"

    def steps(self) -> list[int]:
        """The steps at which there is a file, in order."""
        matches = (re.fullmatch(r"step-(\d{12,})\.npz", path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def save(self, step: int, tree: PyTree, meta: dict[str, Any]) -> Path:
        save(self.path(step), tree, meta)
        for old in self.steps()[: -self.keep]:
            self.path(old).unlink(missing_ok=True)
        return self.path(step)

    def latest(self, like: PyTree) -> tuple[PyTree, dict[str, Any]] | None:
        """The newest checkpoint, None where there is none. A damaged one is named, never skipped in silence."""
        steps = self.steps()
        if not steps:
            return None
        try:
            return load(self.path(steps[-1]), like)
        except Damaged as error:
            raise UserError(f"{error}; {self._way_out(steps)}") from error

    def _way_out(self, steps: list[int]) -> str:
        """What to do about a damaged newest checkpoint."""
        bad = str(self.path(steps[-1]))
        for step in reversed(steps[:-1]):
            try:
                load_arrays(self.path(step))
            except UserError:
                bad += f" and {self.path(step)}"
            else:
                return f"the one before it, step {step}, is whole: delete {bad} to go on from there"
        return "no earlier one is whole: start afresh in another folder"
