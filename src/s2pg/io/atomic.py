"""Files that are there whole or not at all: written aside, forced to the disk, then put in place by one rename."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

SUFFIX = ".partial"


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of `path` at the end; on an error, `path` stays as it was."""
    path = Path(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}{SUFFIX}")
    try:
        with aside.open("w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    # The rename itself lives in the folder, which has to reach the disk as well.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def sweep(folder: str | Path) -> None:
    """Removes what a killed process left half written. Only for a folder that no other process writes to."""
    for aside in Path(folder).glob(f".*{SUFFIX}"):
        aside.unlink(missing_ok=True)
