"""What lies in a run folder, and what can be told of it without reading arrays: names, steps, sums over text files.

Nothing here needs JAX: reports and lists of runs are to come at once.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from pathlib import Path
from typing import Any

from s2pg.errors import UserError

CONFIG, METRICS, CHECKPOINTS, POLICIES, EVENTS = "config.json", "metrics.jsonl", "checkpoints", "policies", "events"
DIVERGED = "diverged.json"  # in the folder of a run that stopped because a number was not finite
SCHEMA, READABLE = 3, (1, 2, 3)  # of a configuration; runs of an earlier schema can be evaluated, not resumed
META = "meta.json"  # the last entry of a checkpoint
SUM = "sha256"  # what a text file of ours keeps the sum over all the rest under


def policy_file(out: Path, seed: int) -> Path:
    """Where the policy of a seed lies."""
    return out / POLICIES / f"seed-{seed}.npz"


def stored_steps(folder: Path) -> list[int]:
    """The steps at which a folder has checkpoints, in order; nothing is changed in it."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    matches = (re.fullmatch(r"step-(\d{12,})\.npz", name) for name in names)
    return sorted(int(match[1]) for match in matches if match)


def read_meta(path: str | Path) -> dict[str, Any] | None:
    """The meta data of a checkpoint alone, without its arrays and their sum; None where it is damaged or not there."""
    try:
        with zipfile.ZipFile(path) as archive:
            return dict(json.loads(archive.read(META))["meta"])
    except Exception:  # whatever the parsers of zip and JSON make of foreign bytes
        return None


def newest_meta(out: Path) -> dict[str, Any]:
    """The meta data of the newest checkpoint of a run that can be read; empty where there is none."""
    for step in reversed(stored_steps(out / CHECKPOINTS)):
        if (found := read_meta(out / CHECKPOINTS / f"step-{step:012d}.npz")) is not None:
            return found
    return {}


def sum_of(content: dict[str, Any]) -> str:
    """A sum over what a JSON object says, however it is laid out."""
    rest = {name: value for name, value in content.items() if name != SUM}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object, if it is as it was written; one from before objects had sums is believed."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{path} is damaged: it is no JSON") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged: it is no JSON object")
    if SUM in content and content[SUM] != sum_of(content):
        raise UserError(f"{path} is damaged: its checksum is wrong")
    return content


def why_diverged(out: Path) -> str:
    """What a run that diverged left to say; nothing of one that did not."""
    if not (out / DIVERGED).exists():
        return ""
    try:
        return str(read_object(out / DIVERGED)["why"])
    except (UserError, KeyError):
        return "for a reason that cannot be read"
