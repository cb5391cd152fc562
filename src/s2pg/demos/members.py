"""Members of foreign `.npz` files, one by one and without pickle: reading one executes nothing."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from s2pg.errors import UserError


def names(path: Path) -> set[str]:
    """Lists the members of an archive, without the endings of their names."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist()}
    except zipfile.BadZipFile:
        raise UserError(f"{path} is no .npz file") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


class Members:
    """An archive of which arrays are taken by name."""

    def __init__(self, path: Path):
        self.path = path
        self._file = np.load(path, allow_pickle=False)

    def __enter__(self) -> Members:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __contains__(self, name: str) -> bool:
        return name in self._file.files

    def __iter__(self):
        return iter(self._file.files)

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            found = self._file[name]
        except KeyError:
            raise UserError(f"{self.path} has no member '{name}'") from None
        except ValueError as error:  # NumPy's word for a pickle that it was not allowed to open
            if "pickle" in str(error).lower():
                raise UserError(f"member '{name}' of {self.path} holds Python objects, which are not loaded") from None
            raise UserError(f"member '{name}' of {self.path} is damaged: {error}") from error
        except (OSError, EOFError, zipfile.BadZipFile, MemoryError) as error:
            why = str(error) or "it ends too early"
            raise UserError(f"member '{name}' of {self.path} is damaged: {why}") from error
        if not isinstance(found, np.ndarray):  # bytes of a member that is no .npy
            raise UserError(f"member '{name}' of {self.path} is no array")
        return found
