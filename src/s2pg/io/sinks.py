"""Where the numbers of a run go: `metrics.jsonl`, TensorBoard, small JSON files."""

from __future__ import annotations

import functools
import json
import math
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from s2pg.errors import UserError
from s2pg.io.atomic import replacing

Row = dict[str, Any]  # one line of metrics: `step`, `seed` and named numbers


def _plain(value: Any) -> Any:
    """JSON's view of a value: scalars of numpy and JAX as Python's, numbers that are not finite as null."""
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: str | Path, content: Any) -> None:
    """Writes a JSON file for people to read, whole or not at all."""
    with replacing(path) as file:
        file.write(json.dumps(_plain(content), allow_nan=False, indent=2, ensure_ascii=False).encode() + b"\n")


class MetricsFile:
    """An append-only file of one JSON object per line.

    A checkpoint keeps `size()`; a resumed run calls `truncate` with it, which takes back the rows that were
    written after that checkpoint, a torn last one included.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._file = self.path.open("ab")

    def write(self, rows: Iterable[Row]) -> None:
        lines = [json.dumps(_plain(row), allow_nan=False) + "\n" for row in rows]
        self._file.write("".join(lines).encode())
        self._file.flush()

    def size(self) -> int:
        """Bytes written so far, all of them on the disk: a checkpoint must not outlive rows that it counts."""
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def truncate(self, size: int) -> None:
        """Forgets everything after the first `size` bytes."""
        if (present := os.fstat(self._file.fileno()).st_size) < size:
            raise UserError(f"{self.path} has {present} bytes, but its checkpoint counts {size}: rows are missing")
        self._file.truncate(size)

    def close(self) -> None:
        self._file.close()


def read_metrics(path: str | Path) -> list[Row]:
    """The rows of a metrics file; a last line that is torn, as in a run that is being written, is left out."""
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"there are no metrics at {path}") from None
    rows = []
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last newline is torn, or nothing
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise UserError(f"{path}, line {number}: no row of metrics")
        rows.append(row)
    return rows


@functools.cache
def _tensorboardx() -> Any:
    """The package, or None after one line on stderr."""
    try:
        import tensorboardX
    except ImportError:
        print("tensorboardX is not installed: no TensorBoard events (pip install 's2pg[logging]')", file=sys.stderr)
        return None
    return tensorboardX


class TensorBoard:
    """Scalars as TensorBoard events, one curve `name/seed-k` per metric and seed; nothing without tensorboardX.

    A resumed run gives its first step as `purge_step`, and TensorBoard hides what older files say from there on.
    """

    def __init__(self, folder: str | Path, purge_step: int | None = None):
        package = _tensorboardx()
        self._writer = package and package.SummaryWriter(str(folder), purge_step=purge_step)

    def write(self, rows: Iterable[Row]) -> None:
        if self._writer is None:
            return
        for row in rows:
            values = {name: _plain(value) for name, value in row.items() if name not in ("step", "seed")}
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._writer.add_scalar(f"{name}/seed-{row.get('seed', 0)}", value, int(row["step"]))
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
