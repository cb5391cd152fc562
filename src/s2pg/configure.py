"""JAX's settings for a process of ours: the persistent compilation cache, kept readable.

JAX writes cache entries in place and never replaces one: an entry cut short by a killed process or a full disk
stays, and warns at every start. So the cache has a folder of its own, and unreadable entries are removed first.
"""

from __future__ import annotations

import os
import sys
import time
import zlib
from pathlib import Path

STAMP = ".checked"
MARGIN_NS = 2 * 10**9  # file systems round their timestamps, some of them to two seconds


def cache_folder() -> Path:
    """`$S2PG_CACHE`, or `s2pg/jax` under the user's cache folder."""
    if own := os.environ.get("S2PG_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "s2pg" / "jax"


def compilation_cache(folder: str | Path | None = None) -> Path | None:
    """Turns the cache on; None, and one line on stderr, where the folder cannot be written.

    `JAX_ENABLE_COMPILATION_CACHE=0` in the environment keeps it off, as ever.
    """
    import jax  # here: not every command computes

    folder = Path(folder) if folder else cache_folder()
    try:
        # Entries are machine code that JAX runs unasked: nobody else may write here.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_unreadable(folder)
    except OSError as error:
        print(f"no compilation cache, every start compiles anew: {error}", file=sys.stderr)
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return folder


def remove_unreadable(folder: Path) -> list[Path]:
    """Removes the entries that JAX could not read, and says which; looks only at those new since the last call.

    Processes may do this side by side. One may remove what another is just writing: that entry is then compiled
    once more, and nothing else happens.
    """
    stamp = folder / STAMP
    now = time.time_ns()
    since = stamp.stat().st_mtime_ns if stamp.exists() else 0
    removed = []
    for entry in folder.glob("*-cache"):
        try:
            status = entry.stat()
            if max(status.st_mtime_ns, status.st_ctime_ns) < since or _readable(entry.read_bytes()):
                continue
        except FileNotFoundError:  # another process was faster
            continue
        entry.unlink(missing_ok=True)
        removed.append(entry)
    stamp.touch()
    os.utime(stamp, ns=(now - MARGIN_NS, now - MARGIN_NS))
    return removed


def _readable(data: bytes) -> bool:
    try:
        from jax._src.compilation_cache import decompress_executable  # the very function that would fail later
    except ImportError:
        if data[:1] != b"\x78":  # not zlib's: in a format we do not know, only an empty entry is surely broken
            return bool(data)
        decompress_executable = zlib.decompress
    try:
        return bool(decompress_executable(data))
    except Exception:  # zlib.error, zstandard.ZstdError, ...: each backend has its own
        return False
