"""Reads study files: TOML in, cells out. A file is data; nothing in it is executed."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from s2pg.errors import UserError, unknown
from s2pg.runs.request import Request
from s2pg.study.fields import AXES, TABLES, flat, known, table, tables, typed, value_of

SCHEMA = 1
MOST_CELLS, LONGEST_NAME = 10_000, 200
RUNS = "runs"  # where the cells of a study lie, in its folder
NAMED = ("task", "algorithm", "memory", "kernel")  # a cell's name begins with these, without saying which is which
ALL = "*"  # all other tasks, in [normalise]
Point = dict[str, Any]  # axes and their values


class Cell(NamedTuple):
    """A run of a study; the folder of its request has its name."""

    name: str
    request: Request


@dataclasses.dataclass(frozen=True)
class Resources:
    """What one run may take, `[run]`."""

    together: int = 0  # seeds of one process, under vmap; 0: all
    gpu: float = 1.0  # share of one; 0: none
    cpus: int = 0  # cores; 0: one where no GPU is used, and else as many as there are
    retries: int = 3  # of a run that was killed or had no memory
    log: str = ""  # trackers by name, with blanks between; none: TensorBoard, where it is installed


@dataclasses.dataclass(frozen=True)
class Study:
    """A study file, read."""

    file: Path
    about: str
    cells: tuple[Cell, ...]
    resources: Resources
    normalise: dict[str, tuple[float | str, float | str]]  # what is 0 and 1 by task: a number, or a memory label's mean
    notes: tuple[str, ...]  # what is no mistake, but may not have been meant


def read(file: Path, out: Path) -> Study:
    """The study that a file describes, its runs to lie in the folder `out`."""
    try:
        found = tomllib.loads(file.read_text())
    except OSError as error:
        raise UserError(f"no study can be read from {file}: {error.strerror}") from None
    except ValueError as error:  # no TOML, or no text at all
        raise UserError(f"{file} is no TOML file: {error}") from None
    try:
        return _study(file, found, out)
    except UserError as error:
        raise UserError(f"{file}: {error}") from None


def _study(file: Path, found: Mapping[str, Any], out: Path) -> Study:
    known("key", found, ("schema", "about", "seeds", "grid", "skip", "where", "run", "normalise"))
    if found.get("schema") != SCHEMA:
        raise UserError(f"it must say schema = {SCHEMA}, not {found.get('schema')!r}")
    given = flat("[grid]", table("[grid]", found.get("grid", {})))
    axes = _axes(given)
    points, notes = _points(axes, found)
    seeds, resources = _seeds(found.get("seeds", 1)), _resources(table("[run]", found.get("run", {})))
    told = [key for key, value in given.items() if isinstance(value, list) and key not in NAMED]
    cells = []
    for raw, point in points:
        for part, ending in _parts(seeds, resources.together):
            name = _name(raw, told) + ending
            cells.append(Cell(name, _request(point, part, out / RUNS / name, file.parent, resources.log)))
    _check_names(cells)
    normalise = _normalise(table("[normalise]", found.get("normalise", {})), [point for _, point in points])
    about = typed("about", found["about"], str) if "about" in found else ""
    return Study(file, about, tuple(cells), resources, normalise, tuple(notes))


def _axes(given: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Each axis of the grid with its values, in the file's order; what is not a list is one value."""
    for needed in ("task", "algorithm"):
        if needed not in given:
            raise UserError(f"[grid] names no {needed}: there is no cell")
    given = {**given, **({} if "memory" in given else {"memory": "s2pg"})}
    axes = {key: value if isinstance(value, list) else [value] for key, value in given.items()}
    for key, values in axes.items():
        if not values:
            raise UserError(f"'{key}' of [grid] is an empty list: there is no cell")
    if (count := math.prod(map(len, axes.values()))) > MOST_CELLS:
        raise UserError(f"[grid] has {count:,} cells, and {MOST_CELLS:,} are the most")
    return {key: [value_of(key, value) for value in values] for key, values in axes.items()}


def _points(axes: dict[str, list[Any]], found: Mapping[str, Any]) -> tuple[list[tuple[Point, Point]], list[str]]:
    """The points of the grid that are not skipped, as they stand there and with what is set for them; and remarks."""
    skips = {f"[[skip]] {n}": each for n, each in enumerate(tables("skip", found), start=1)}
    wheres = {f"[[where]] {n}": each for n, each in enumerate(tables("where", found), start=1)}
    rules = {name: _rule(name, each, axes) for name, each in skips.items()}
    changes = {}
    for name, each in wheres.items():
        known(f"key of {name}", each, ("match", "set"))
        if len(each) < 2:
            raise UserError(f"{name} needs both 'match' and 'set'")
        rules[name] = _rule(name, table(f"'match' of {name}", each["match"]), axes)
        chosen = flat(f"'set' of {name}", table(f"'set' of {name}", each["set"]))
        changes[name] = {key: value_of(key, value) for key, value in chosen.items()}
    unused, points = dict.fromkeys(rules), []
    for values in itertools.product(*axes.values()):
        raw = dict(zip(axes, values, strict=True))
        met = [name for name, rule in rules.items() if _matches(raw, rule)]
        unused = {name: None for name in unused if name not in met}
        if not any(name in skips for name in met):
            points.append((raw, raw | {key: value for name in met for key, value in changes[name].items()}))
    if not points:
        raise UserError("every cell of [grid] is skipped: there is none left")
    return points, [f"{name} matches no cell" for name in unused]


def _rule(name: str, given: Mapping[str, Any], axes: Mapping[str, Any]) -> Point:
    rule = flat(name, given)
    for key in rule:
        if key not in axes:
            raise UserError(f"{name} asks for '{key}', which [grid] does not name")
    return rule


def _matches(point: Point, rule: Point) -> bool:
    """Whether a point has the value that a rule names for each key, or one of several; * stands for any letters."""

    def fits(value: Any, wanted: Any) -> bool:
        if isinstance(value, str) and isinstance(wanted, str):
            return fnmatchcase(value, wanted)
        return value == wanted and isinstance(value, bool) == isinstance(wanted, bool)

    several = {key: wanted if isinstance(wanted, list) else [wanted] for key, wanted in rule.items()}
    return all(any(fits(point[key], each) for each in wanted) for key, wanted in several.items())


def _request(point: Point, seeds: tuple[int, ...], out: Path, beside: Path, log: str) -> Request:
    """A point as a request; a relative name of demonstrations begins where the study file lies."""
    own: dict[str, Any] = {key: value for key, value in point.items() if key in AXES}
    for name in TABLES:
        own[name] = {key.partition(".")[2]: value for key, value in point.items() if key.startswith(f"{name}.")}
    if "demos" in own:
        own["demos"] = (beside / own["demos"]).resolve()
    return Request(**own, seeds=seeds, out=out, resume=True, log=tuple(log.split()) or None)


def _name(point: Point, told: Sequence[str]) -> str:
    """TASK-ALGORITHM-MEMORY[-KERNEL], then NAME=VALUE of each other axis that is a list."""
    words = [point[key] for key in NAMED if key in point]
    words += [f"{key.rpartition('.')[2]}={_text(point[key])}" for key in told]
    return re.sub(r"[^\w.,=+-]", "-", "-".join(words))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parts(seeds: tuple[int, ...], together: int) -> Iterator[tuple[tuple[int, ...], str]]:
    """So many seeds at a time, and what the names of these parts end in: nothing where there is one part."""
    size = together or len(seeds)
    for at in range(0, len(seeds), size):
        part = seeds[at : at + size]
        numbers = str(part[0]) + f"-{part[-1]}" * (len(part) > 1)
        yield part, "" if part == seeds else f"-seeds={numbers}"


def _check_names(cells: Sequence[Cell]) -> None:
    names: dict[str, Cell] = {}
    runs: dict[str, Cell] = {}
    for cell in cells:
        if len(cell.name) > LONGEST_NAME:
            raise UserError(f"the name of cell {cell.name[:60]}... is longer than {LONGEST_NAME} letters")
        if names.setdefault(cell.name.casefold(), cell) is not cell:  # some folders do not tell A from a
            raise UserError(f"two cells are called {cell.name}")
        same = json.dumps(dataclasses.asdict(cell.request) | {"out": ""}, sort_keys=True, default=str)
        if (other := runs.setdefault(same, cell)) is not cell:
            raise UserError(f"cells {other.name} and {cell.name} are one and the same run")


def _seeds(given: Any) -> tuple[int, ...]:
    """So many from 0 on, or those in a list."""
    if not isinstance(given, list):
        count = typed("seeds", given, int)
        if count < 1:
            raise UserError(f"'seeds' must be 1 or more, not {count}")
        return tuple(range(count))
    return tuple(typed("seeds", each, int) for each in given)


def _resources(given: Mapping[str, Any]) -> Resources:
    fields = {field.name: type(field.default) for field in dataclasses.fields(Resources)}
    known("key of [run]", given, fields)
    found = Resources(**{key: typed(f"run.{key}", value, fields[key]) for key, value in given.items()})
    for key, (low, high) in {"together": (1, None), "gpu": (0, 1), "cpus": (1, None), "retries": (0, None)}.items():
        value = getattr(found, key)
        if key in given and (value < low or (high is not None and value > high)):
            wanted = f"{low} or more" if high is None else f"between {low} and {high}"
            raise UserError(f"'{key}' of [run] must be {wanted}, not {value:g}")
    return found


def _normalise(given: Mapping[str, Any], points: Sequence[Point]) -> dict[str, tuple[float | str, float | str]]:
    """What is 0 and what is 1 of normalised returns, by task."""
    tasks, labels = ({point[key] for point in points} for key in ("task", "memory"))
    known("task of [normalise]", given, (*tasks, ALL))
    found: dict[str, tuple[float | str, float | str]] = {}
    for task, ends in given.items():
        if not isinstance(ends, list) or len(ends) != 2 or ends[0] == ends[1]:
            raise UserError(f"'{task}' of [normalise] must be what is 0 and what is 1, two of them, not {ends!r}")
        for end in ends:
            if isinstance(end, str) and end not in labels:
                raise unknown("memory of [normalise]", end, labels)
        low, high = (end if isinstance(end, str) else typed(f"normalise.{task}", end, float) for end in ends)
        found[task] = low, high
    return found
