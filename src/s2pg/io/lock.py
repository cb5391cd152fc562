"""One writer for a folder: a file that says who writes there, renewed for as long as that process lives.

The file is made with O_EXCL, which network folders know as well, and its holder touches it every few seconds. A lock
is left behind by a process that is gone, which its own machine can tell at once, and others by the time of the last
touch. Times are compared with that of a file made on the spot: the folder's clock has made both.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from s2pg.errors import UserError
from s2pg.io.atomic import SUFFIX

NAME = ".lock"
BEAT_S, STALE_S = 5.0, 60.0


class LockedError(UserError):
    """Another process writes there."""


class _Holder(NamedTuple):
    """Who wrote a lock; `machine` tells process ids of one kernel and container from those of others."""

    token: str
    host: str
    machine: str
    pid: int
    born: str  # when the process began: its id may have gone to another one since

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" if self.pid else "another process"


UNKNOWN = _Holder("", "", "", 0, "")


class Lock:
    """A lock that is held; `token` is what nobody else has."""

    def __init__(self, path: Path, token: str):
        self.path, self.token = path, token
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Refuses to go on where another process took over, which it may where this one stood still for a minute."""
        if not self._ours():
            raise LockedError(f"{self.path.parent} was taken over by another process while this one stood still")

    def release(self) -> None:
        """Gives the folder free."""
        self._released.set()
        self._thread.join()
        if self._ours():
            self.path.unlink(missing_ok=True)

    def _ours(self) -> bool:
        holder = read(self.path)
        return holder is not None and holder.token == self.token

    def _beat(self) -> None:
        while not self._released.wait(BEAT_S) and self._ours():
            with contextlib.suppress(OSError):  # a network folder may be away for a moment
                os.utime(self.path)


@contextlib.contextmanager
def locked(folder: Path, say: Callable[[str], None], patience: float = 0.0) -> Iterator[Lock]:
    """Holds the lock of a folder, which is there. Waits for `patience` seconds where another process has it."""
    path, token, deadline = folder / NAME, secrets.token_hex(8), time.monotonic() + patience
    try:
        while not _create(path, token):
            if (holder := read(path)) is None:
                continue  # released just now
            if why := _left_behind(path, holder):
                if _clear(path, holder):
                    say(f"{folder}: took over from {holder}, which {why}")
            elif time.monotonic() < deadline:
                time.sleep(0.5)
            else:
                told = f"last sign of life {max(_age(path), 0.0):.0f} s ago"
                raise LockedError(f"{folder} is being written by {holder} ({told}): wait for it or stop it")
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from error
    lock = Lock(path, token)
    try:
        yield lock
    finally:
        lock.release()


def is_held(folder: Path) -> bool:
    """Whether a process writes to a folder now."""
    holder = read(folder / NAME)
    try:
        return holder is not None and not _left_behind(folder / NAME, holder)
    except OSError:  # a folder that may only be read: whoever wrote the lock has not taken it away
        return True


def read(path: Path) -> _Holder | None:
    """Who has a lock; None where there is none."""
    try:
        found = _Holder(**json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, OSError):  # not written yet, torn, or no file
        return UNKNOWN
    kinds = [type(field) for field in found]
    return found if kinds == [type(field) for field in UNKNOWN] and 0 < found.pid < 2**31 else UNKNOWN


def _create(path: Path, token: str) -> bool:
    content = json.dumps(_Holder(token, socket.gethostname(), _machine(), os.getpid(), _born(os.getpid()))._asdict())
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    try:
        os.write(file, content.encode())
        os.fsync(file)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)
    return True


def _left_behind(path: Path, holder: _Holder) -> str:
    """Why its holder cannot be writing any more, or nothing."""
    if holder.pid and holder.machine == _machine():
        return "" if _lives(holder) else "is gone"
    return f"has given no sign of life for {age:.0f} s" if (age := _age(path)) > STALE_S else ""


def _clear(path: Path, holder: _Holder) -> bool:
    """Removes a lock that was left behind; whether it was still that one."""
    aside = path.with_name(f"{NAME}.{secrets.token_hex(4)}{SUFFIX}")
    try:
        os.rename(path, aside)
    except FileNotFoundError:  # another process was faster
        return False
    try:
        if read(aside) == holder:
            return True
        with contextlib.suppress(OSError):  # another one took over in between, and this is its lock
            os.link(aside, path)
        return False
    finally:
        aside.unlink(missing_ok=True)


def _age(path: Path) -> float:
    """Seconds since the last touch, by the clock of the folder."""
    probe = path.with_name(f"{NAME}.{secrets.token_hex(4)}{SUFFIX}")
    try:
        probe.touch()
        with path.open("rb") as file:  # opened, so that a network folder looks anew
            return probe.stat().st_mtime - os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return 0.0
    finally:
        probe.unlink(missing_ok=True)


def _machine() -> str:
    """What process ids are counted by: a kernel since it started, and its namespace."""
    found = [socket.gethostname()]
    with contextlib.suppress(OSError):
        found.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        found.append(str(os.stat("/proc/self/ns/pid").st_ino))
    return " ".join(found)


def _lives(holder: _Holder) -> bool:
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return _born(holder.pid) in (holder.born, "")


def _born(pid: int) -> str:
    """When a process began, as its kernel counts; `gone` of one that has ended, nothing where that cannot be told."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return "" if not Path("/proc/self/stat").exists() else "gone"
    except OSError:
        return ""
    return "gone" if state in "ZX" else fields[18]
