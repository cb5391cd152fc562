"""Where the numbers of a run go: `metrics.jsonl` and small JSON files."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from s2pg.errors import UserError
from s2pg.io.atomic import replacing
from s2pg.io.folder import SUM, newest_meta, sum_of

Row = dict[str, Any]  # one line of metrics: `step`, `seed` and named numbers


def plain(value: Any) -> Any:
    """JSON's view of a value: scalars of numpy and JAX as Python's, numbers that are not finite as null."""
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: str | Path, content: Any) -> None:
    """Writes a JSON file for people to read, whole or not at all."""
    with replacing(path) as file:
        file.write(json.dumps(plain(content), allow_nan=False, indent=2, ensure_ascii=False).encode() + b"\n")


def write_object(path: str | Path, content: dict[str, Any]) -> None:
    """Writes a JSON object with a sum over it, so that `read_object` can tell whether it is as it was."""
    content = plain(content)
    write_json(path, content | {SUM: sum_of(content)})


class MetricsFile:
    """An append-only file of one JSON object per line.

    A checkpoint keeps `size()` and `sum()`; a resumed run calls `truncate` with them, which takes back the rows that
    were written after that checkpoint, a torn last one included.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._file = self.path.open("a+b")
        self._digest = hashlib.sha256(self._read())

    def _read(self) -> bytes:
        self._file.seek(0)
        return self._file.read()

    def write(self, rows: Iterable[Row]) -> None:
        data = "".join(json.dumps(plain(row), allow_nan=False) + "\n" for row in rows).encode()
        self._file.write(data)
        self._file.flush()
        self._digest.update(data)

    def size(self) -> int:
        """Bytes written so far, all of them on the disk: a checkpoint must not outlive rows that it counts."""
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def sum(self) -> str:
        """The sum over all of them."""
        return self._digest.hexdigest()

    def truncate(self, size: int, expected: str | None = None) -> None:
        """Forgets everything after the first `size` bytes, which have this sum, if it is known."""
        data = self._read()
        _check_counted(self.path, data, size, expected)
        self._file.truncate(size)
        self._digest = hashlib.sha256(data[:size])

    def close(self) -> None:
        self._file.close()


def _check_counted(path: Path, data: bytes, size: int, expected: str | None) -> None:
    """Refuses a file of which the newest checkpoint counts more, or other, bytes than there are."""
    if len(data) < size:
        raise UserError(f"{path} has {len(data)} bytes, but its checkpoint counts {size}: rows are missing")
    if expected is not None and hashlib.sha256(data[:size]).hexdigest() != expected:
        raise UserError(f"{path} is damaged: its first {size} bytes are not those that its checkpoint counts")


def read_metrics(path: str | Path) -> list[Row]:
    """The rows of a metrics file; a last line that is torn, as in a run that is being written, is left out.

    Where the run has checkpoints, all rows up to the newest one must be there, as they were written.
    """
    path = Path(path)
    counted = newest_meta(path.parent)  # first: rows that come meanwhile are behind those that it counts
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"there are no metrics at {path}") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    _check_counted(path, data, counted.get("metrics_bytes", 0), counted.get("metrics_sha256"))
    rows, lines = [], data.split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last newline is torn, or nothing
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise UserError(f"{path}, line {number}: no row of metrics")
        rows.append(row)
    return rows
