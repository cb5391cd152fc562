"""Files of demonstrations: recognises a layout by its members, reads and writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from s2pg.clip import Clip
from s2pg.demos import locomujoco, members, minari, own
from s2pg.demos.data import Demonstrations
from s2pg.errors import UserError
from s2pg.io.checkpoint import META

Found = Demonstrations | Clip | list[Clip]


class Layout(NamedTuple):
    """A layout of `.npz` files: what tells it, and what reads it, given names of joints."""

    name: str
    fits: Callable[[set[str]], bool]
    read: Callable[[Path, Sequence[str] | None], Found]


def _read_own(path: Path, joints: Sequence[str] | None) -> Demonstrations:
    return own.read(path)


LAYOUTS = (
    Layout("s2pg", lambda names: META in names, _read_own),
    Layout("LocoMuJoCo 0.x clip", locomujoco.is_clip, locomujoco.read_clip),
    Layout("LocoMuJoCo 0.x transitions", lambda names: names >= locomujoco.TRANSITIONS, locomujoco.read_transitions),
    Layout("LocoMuJoCo 1.x trajectories", lambda names: names >= locomujoco.TRAJECTORY, locomujoco.read_trajectories),
)
MINARI = "Minari"


def _recognise(path: Path) -> Layout:
    if minari.is_dataset(path):
        return Layout(MINARI, lambda names: False, lambda path, joints: minari.read(path))
    if path.is_dir():
        raise UserError(f"{path} is a folder without data/main_data.hdf5: no Minari dataset")
    found = members.names(path)
    for layout in LAYOUTS:
        if layout.fits(found):
            return layout
    known = ", ".join((*(layout.name for layout in LAYOUTS), MINARI))
    raise UserError(f"{path} has no layout that is known here ({known})")


def layout(path: str | Path) -> str:
    """Names the layout of a file or folder."""
    return _recognise(Path(path)).name


def read(
    path: str | Path,
    *,
    dt: float | None = None,
    joints: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    views: Mapping[str, Sequence[str]] | None = None,
    hidden: Sequence[Any] | np.ndarray | None = None,
) -> Found:
    """Reads demonstrations or clips from a file of any layout; nothing in it is executed.

    `dt` says how long a step takes where the file does not, or says it wrongly. `joints` are those of a clip, in the
    order wanted. `columns` names the columns of the view `policy`, `views` makes views of those in the file (see
    `Demonstrations.arrange`). `hidden` has an entry, or a row of them, for each episode or clip.
    """
    path = Path(path)
    kind = _recognise(path)
    try:
        return _as_told(path, kind.read(path, joints), dt, joints, columns, views, hidden)
    except UserError as error:
        if str(path) in str(error):
            raise
        raise UserError(f"{path}: {error}") from error
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        MemoryError,
    ) as error:  # what NumPy makes of others' bytes
        raise UserError(f"{path} cannot be read as {kind.name}: {' '.join(str(error).split())}") from error


def _as_told(
    path: Path,
    found: Found,
    dt: float | None,
    joints: Sequence[str] | None,
    columns: Sequence[str] | None,
    views: Mapping[str, Sequence[str]] | None,
    hidden: Sequence[Any] | np.ndarray | None,
) -> Found:
    """What a file holds, with all that it does not say itself."""
    if isinstance(found, Demonstrations):
        if joints is not None:
            raise UserError(f"{path} holds transitions: joints are for clips")
        found = found if columns is None else found.name(columns)
        found = found if views is None else found.arrange(views)
        told = _per_episode(path, hidden, len(found.episodes))
        if told is not None:
            found = dataclasses.replace(found, hidden=np.repeat(told, found.lengths, axis=0))
        return found if dt is None else dataclasses.replace(found, dt=dt)
    if columns is not None or views is not None:
        raise UserError(f"{path} holds clips: they have joints, not columns and views")
    clips = found if isinstance(found, list) else [found]
    told = _per_episode(path, hidden, len(clips))
    if told is not None:
        each = zip(clips, told, strict=True)
        clips = [dataclasses.replace(clip, hidden=np.repeat(row[None], clip.frames, axis=0)) for clip, row in each]
    clips = clips if dt is None else [dataclasses.replace(clip, dt=dt) for clip in clips]
    return clips if isinstance(found, list) else clips[0]


def _per_episode(path: Path, hidden: Sequence[Any] | np.ndarray | None, count: int) -> np.ndarray | None:
    if hidden is None:
        return None
    try:
        rows = np.asarray(hidden, float).reshape(len(hidden), -1)
    except (TypeError, ValueError):
        raise UserError("hidden must have a number, or as many of them, for each episode or clip") from None
    if len(rows) != count:
        raise UserError(f"{path} has {count} episodes or clips, and hidden has {len(rows)} entries")
    return rows


def read_clips(path: str | Path, **asked: object) -> list[Clip]:
    """Reads clips alone, as a list even where there is only one; takes what `read` takes."""
    found = read(path, **asked)  # pyright: ignore[reportArgumentType]
    if isinstance(found, Demonstrations):
        raise UserError(f"{path} holds transitions, not clips")
    return found if isinstance(found, list) else [found]


def check(path: str | Path) -> None:
    """Refuses a name that nothing can be written to, before an episode is played for it."""
    if _is_folder(path):
        minari.check(Path(path))
    elif Path(path).suffix != ".npz":
        name = Path(path).name
        raise UserError(f"cannot write {name}: the name must end in .npz, or in / or {minari.SUFFIX} for Minari")


def _is_folder(path: str | Path) -> bool:
    return str(path).endswith(("/", minari.SUFFIX))


def write(path: str | Path, demonstrations: Demonstrations) -> None:
    """Writes the library's own `.npz`, or a Minari folder if the name ends in a slash or `.minari`."""
    check(path)
    to = minari.write if _is_folder(path) else own.write
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    to(Path(path), demonstrations)
