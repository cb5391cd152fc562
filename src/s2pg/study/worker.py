"""Trains one cell in this process: as a child of the local driver, in a task of Ray, or under SLURM.

A child reads its request, a line of JSON, from a pipe that only the driver holds open. When the driver is gone, however
that came about, the pipe ends and so does the child: at once, as runs survive that.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from s2pg.configure import compilation_cache
from s2pg.errors import DivergenceError, OutOfMemoryError, UserError
from s2pg.io.lock import STALE_S
from s2pg.runs.request import Request
from s2pg.runs.start import start
from s2pg.study.cells import DIVERGED, DONE, FAILED, STOPPED, Outcome

MISTAKE, MEMORY = "mistake", "memory"
CODES = {DONE: 0, FAILED: 1, MISTAKE: 2, DIVERGED: 3, MEMORY: 4, STOPPED: 130}
PATIENCE_S = 2 * STALE_S  # the lock of a machine that died is held to be alive for a minute
ABANDONED = 5  # the exit code of a child whose driver is gone


def to_json(request: Request) -> str:
    """A request as one line."""
    return json.dumps(dataclasses.asdict(request), default=str)


def from_json(text: str) -> Request:
    """The request again."""
    found: dict[str, Any] = json.loads(text)
    found |= {name: Path(found[name]) for name in ("out", "demos") if found[name] is not None}
    found |= {name: tuple(found[name]) for name in ("seeds", "log") if found[name] is not None}
    return Request(**found)


def train(request: Request, say: Callable[[str], None] = print) -> Outcome:
    """Trains a cell, or goes on with it, and tells how that ended."""
    try:
        start(request, say=say, patience=PATIENCE_S)
    except DivergenceError as error:
        return Outcome(DIVERGED, str(error))
    except (OutOfMemoryError, MemoryError, jax.errors.JaxRuntimeError) as error:
        return Outcome(MEMORY, _line(error))
    except (UserError, OSError) as error:
        return Outcome(MISTAKE, _line(error))
    except KeyboardInterrupt:
        return Outcome(STOPPED, "stopped")
    except Exception as error:
        traceback.print_exc()
        return Outcome(FAILED, _line(error))
    return Outcome(DONE)


def _line(error: BaseException) -> str:
    kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    return f"{kind}{' '.join(str(error).split())[:500]}"


def main() -> int:
    """What a child does."""
    request = from_json(sys.stdin.readline())
    threading.Thread(target=_end_with_the_driver, daemon=True).start()
    compilation_cache()
    outcome = train(request, say=lambda line: print(line, flush=True))
    print(f"{outcome.state}{': ' * bool(outcome.why)}{outcome.why}", flush=True)
    return CODES[outcome.state]


def _end_with_the_driver() -> None:
    sys.stdin.read()
    os._exit(ABANDONED)


if __name__ == "__main__":
    sys.exit(main())
