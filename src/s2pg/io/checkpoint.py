"""Checkpoints: the arrays of any pytree in one file, without pickle, so that loading one executes nothing.

A file is a zip archive in NumPy's .npz layout, one `.npy` per leaf under its key path, closed by `meta.json`:
`{schema, meta, leaves: [{name, dtype, shape, key}], sha256}`, the sum being over all the rest. Timestamps are
fixed and nothing is compressed: the same tree gives the same bytes. `np.load` opens it too.

A replay buffer may fill most of the memory, so no array is held twice: they are written in pieces, and read from a
map of the file.
"""

from __future__ import annotations

import hashlib
import io
import json
import mmap
import struct
import zipfile
from pathlib import Path
from typing import IO, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from s2pg.errors import UserError
from s2pg.io.atomic import replacing, sweep
from s2pg.io.folder import META, stored_steps

SCHEMA = 1


class DamagedFileError(UserError):
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


def _encode(name: str, leaf: Any) -> tuple[dict[str, Any], np.ndarray]:
    """A leaf's entry in `meta.json`, and what its `.npy` file holds."""
    key = str(jax.random.key_impl(leaf)) if _is_key(leaf) else None
    leaf = leaf if key is None else jax.random.key_data(leaf)
    # By another handle on the same data: JAX keeps the host's copy of an array for as long as that array lives. What is
    # spread over several devices has no such handle; it is small.
    whole = isinstance(leaf, jax.Array) and leaf.is_fully_replicated
    array = np.asarray(leaf.addressable_data(0) if whole else leaf, order="C")
    entry = {"name": name, "dtype": array.dtype.name, "shape": list(array.shape), "key": key}
    if array.dtype.isbuiltin == 2:  # bfloat16 and its kin, of which the .npy format knows nothing: keep the bits
        array = array.view(f"u{array.dtype.itemsize}")
    if array.dtype.kind not in "biufc":
        raise TypeError(f"leaf {name!r} has dtype {array.dtype}, which no checkpoint holds")
    return entry, array


def _decode(entry: dict[str, Any], data: memoryview) -> np.ndarray:
    """A leaf as a view of its `.npy` file."""
    head = io.BytesIO(data[:1024])  # as much as a header can need
    if np.lib.format.read_magic(head) != (1, 0):
        raise ValueError(f"{entry['name']} is in a format that is not written here")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(head)
    if dtype.hasobject or fortran:
        raise ValueError(f"{entry['name']} holds no plain numbers")
    array = np.frombuffer(data[head.tell() :], dtype).reshape(shape)
    if array.dtype.name != entry["dtype"]:
        array = array.view(jnp.dtype(entry["dtype"]))
    if list(array.shape) != entry["shape"]:
        raise ValueError(f"{entry['name']} has shape {array.shape}")
    return array


def _dump(header: dict[str, Any]) -> bytes:
    return json.dumps(header, sort_keys=True, separators=(",", ":")).encode()


class _Summed:
    """A file to write to, the sum over what is written being kept."""

    def __init__(self, file: Any, digest: Any):
        self._file, self._digest = file, digest

    def write(self, data: bytes) -> None:
        self._digest.update(data)
        self._file.write(data)


def save(path: str | Path, tree: PyTree, meta: dict[str, Any]) -> None:
    """Writes every array of the tree (numpy, JAX, typed PRNG keys) and `meta`, which is JSON, in one step."""
    digest, entries = hashlib.sha256(), []
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:

        def entry_of(name: str, size: int) -> Any:
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            # The size, which need not be exact, tells the archive whether to expect more than 2 GiB.
            info.create_system, info.external_attr, info.file_size = 3, 0o644 << 16, size
            return archive.open(info, "w")

        for name, leaf in _named(tree)[0].items():
            entry, array = _encode(name, leaf)
            entries.append(entry)
            with entry_of(f"{name}.npy", array.nbytes) as part:
                np.lib.format.write_array(_Summed(part, digest), array, allow_pickle=False)  # in pieces of 16 MiB
        # Through JSON and back, so that the sum is over what a reader will see: keys that were numbers are strings.
        header = {"schema": SCHEMA, "meta": json.loads(_dump(meta)), "leaves": entries}
        digest.update(_dump(header))
        data = _dump(header | {"sha256": digest.hexdigest()})
        with entry_of(META, len(data)) as part:
            part.write(data)


def _verify(path: Path, file: IO[bytes]) -> tuple[dict[str, Any], list[slice]]:
    """Header of a whole file, and where in it the leaves are, if the sum over everything is right."""
    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
            raise ValueError("it holds compressed data")
        header = json.loads(archive.read(META))
        schema = header.pop("schema")
        if schema != SCHEMA:
            raise UserError(f"checkpoint {path} has schema {schema!r}; this version of s2pg reads {SCHEMA}")
        if [info.filename for info in infos] != [*(f"{entry['name']}.npy" for entry in header["leaves"]), META]:
            raise ValueError("its list of arrays is not the one written")
        written, digest = header.pop("sha256"), hashlib.sha256()
        for info in infos[:-1]:
            with archive.open(info) as data:
                while piece := data.read(2**20):
                    digest.update(piece)
        digest.update(_dump({"schema": schema, **header}))
        if digest.hexdigest() != written:
            raise ValueError("its checksum is wrong")
        return header, [_span(file, info) for info in infos[:-1]]


def _span(file: IO[bytes], info: zipfile.ZipInfo) -> slice:
    """Where an entry's data are: behind 30 bytes, a name and an extra field, whose lengths are the last of the 30."""
    file.seek(info.header_offset + 26)
    start = info.header_offset + 30 + sum(struct.unpack("<2H", file.read(4)))
    return slice(start, start + info.file_size)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a whole file, as views of it. None is parsed before the sum over all of them is right."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise UserError(f"no checkpoint can be read from {path}: {error.strerror}") from None
    try:
        with file:
            header, spans = _verify(path, file)
            whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        located = zip(header["leaves"], spans, strict=True)
        return header, {entry["name"]: _decode(entry, whole[span]) for entry, span in located}
    except UserError:
        raise
    except Exception as error:  # whatever the parsers of zip, JSON and .npy make of foreign bytes
        raise DamagedFileError(path, " ".join(str(error).split()) or type(error).__name__) from error


def fingerprint(tree: PyTree) -> str:
    """A sum over names, types, shapes and bytes of all arrays: tells trees apart; that of an empty tree is empty."""
    digest = hashlib.sha256()
    try:
        named = _named(tree)[0]
    except TypeError as error:
        raise UserError(f"shared data must be arrays: {error}") from None
    for name, leaf in named.items():
        entry, array = _encode(name, leaf)
        digest.update(_dump(entry))
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest() if named else ""


def load_arrays(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """All arrays by key path, PRNG keys as their bits, and the meta data."""
    header, arrays = _read(Path(path))
    return {name: array.copy() for name, array in arrays.items()}, header["meta"]


def load(path: str | Path, like: PyTree) -> tuple[PyTree, dict[str, Any]]:
    """The tree and its meta data; `like` gives structure, shapes and dtypes, by arrays or `ShapeDtypeStruct`s.

    Leaves come back as numpy arrays where `like` has those, as JAX arrays elsewhere, on the devices that it names.
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
        if isinstance(leaf, np.ndarray | np.generic):
            found = found.copy()
        else:
            where = leaf.sharding if isinstance(leaf, jax.ShapeDtypeStruct) else None
            found = jax.device_put(found, where)  # it may share the file's memory, which JAX then never donates
        leaves.append(found)
    return jax.tree.unflatten(structure, leaves), header["meta"]


class StoredCheckpoint(NamedTuple):
    """A checkpoint as it was read."""

    tree: PyTree
    meta: dict[str, Any]
    bulk: PyTree = None


class Checkpoints:
    """The last `keep` checkpoints of a run, `step-000000012345.npz` in a folder of their own.

    What is too large to keep more than once, a replay buffer, is the newest one's `bulk` and has a file beside it,
    `step-000000012345.replay.npz`. It is written first: the checkpoint itself is what makes the pair complete.
    """

    def __init__(self, folder: str | Path, keep: int = 3):
        self.folder, self.keep = Path(folder), keep
        self.folder.mkdir(parents=True, exist_ok=True)
        sweep(self.folder)

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:012d}.npz"

    def bulk_path(self, step: int) -> Path:
        return self.folder / f"step-{step:012d}.replay.npz"

    def steps(self) -> list[int]:
        """The steps at which there is a file, in order."""
        return stored_steps(self.folder)

    def save(self, step: int, tree: PyTree, meta: dict[str, Any], bulk: PyTree = None) -> Path:
        if bulk is not None:
            save(self.bulk_path(step), bulk, meta)
        save(self.path(step), tree, meta)
        for old in self.steps()[: -self.keep]:
            self.path(old).unlink(missing_ok=True)
        for path in self.folder.glob("step-*.replay.npz"):
            if path != self.bulk_path(step):
                path.unlink(missing_ok=True)
        return self.path(step)

    def latest(self, like: PyTree, bulk_like: PyTree = None) -> StoredCheckpoint | None:
        """The newest checkpoint, None where there is none. A damaged one is named, never skipped in silence."""
        steps = self.steps()
        if not steps:
            return None
        paired = bulk_like is not None
        try:
            tree, meta = load(self.path(steps[-1]), like)
            return StoredCheckpoint(tree, meta, self._load_bulk(steps[-1], bulk_like, meta) if paired else None)
        except DamagedFileError as error:
            raise UserError(f"{error}; {self._way_out(steps, paired)}") from error

    def _load_bulk(self, step: int, like: PyTree, meta: dict[str, Any]) -> PyTree:
        path = self.bulk_path(step)
        if not path.exists():
            raise UserError(
                f"checkpoint {self.path(step)} has no replay buffer, which only the newest one keeps:"
                " start afresh in another folder"
            )
        bulk, of = load(path, like)
        if of != meta:  # which tells apart even two runs that were written to one folder: it says how long they took
            raise UserError(f"{path} does not belong to {self.path(step)}: start afresh in another folder")
        return bulk

    def _way_out(self, steps: list[int], paired: bool) -> str:
        """What to do about a damaged newest checkpoint."""
        bad = str(self.path(steps[-1]))
        for step in reversed(steps[:-1]):
            try:
                for path in (self.path(step), self.bulk_path(step))[: 1 + paired]:
                    _read(path)
            except UserError:
                bad += f" and {self.path(step)}"
            else:
                return f"the one before it, step {step}, is whole: delete {bad} to go on from there"
        kept = "has its replay buffer, which only the newest one keeps" if paired else "is whole"
        return f"no earlier one {kept}: start afresh in another folder"
