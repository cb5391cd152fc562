"""The compilation cache is used, and mends itself."""

import os
import subprocess
import sys
import time
from pathlib import Path

from jax._src.compilation_cache import compress_executable

from s2pg import configure
from s2pg.configure import MARGIN_NS, STAMP, cache_folder, compilation_cache, remove_unreadable

GOOD = compress_executable(bytes(range(256)) * 40)


def test_truncated_entries_go_and_whole_ones_stay(tmp_path):
    for name, data in {"good": GOOD, "cut": GOOD[:-9], "empty": b"", "short": GOOD[:3]}.items():
        (tmp_path / f"{name}-cache").write_bytes(data)
    (tmp_path / "other").write_bytes(b"")
    assert {path.name for path in remove_unreadable(tmp_path)} == {"cut-cache", "empty-cache", "short-cache"}
    assert {path.name for path in tmp_path.iterdir()} == {"good-cache", "other", STAMP}


def test_only_entries_new_since_the_last_look_are_read(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(configure, "_readable", lambda data: seen.append(data) or True)
    (tmp_path / "a-cache").write_bytes(b"a")
    remove_unreadable(tmp_path)
    later = time.time_ns() + 2 * MARGIN_NS
    monkeypatch.setattr(time, "time_ns", lambda: later)
    remove_unreadable(tmp_path)  # still within the margin of the first look
    remove_unreadable(tmp_path)
    assert seen == [b"a", b"a"]
    (tmp_path / "b-cache").write_bytes(b"b")
    os.utime(tmp_path / "b-cache", ns=(later, later))
    remove_unreadable(tmp_path)
    assert seen == [b"a", b"a", b"b"]


def test_an_entry_that_another_process_removed_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "gone-cache").write_bytes(GOOD[:5])
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (path.unlink(), read(path))[1])
    assert remove_unreadable(tmp_path) == []


def test_the_folder_follows_the_environment(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.delenv("S2PG_CACHE", raising=False)
    assert cache_folder() == Path("/xdg/s2pg/jax")
    monkeypatch.setenv("S2PG_CACHE", "/own")
    assert cache_folder() == Path("/own")


def test_a_folder_that_cannot_be_made_costs_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert compilation_cache(tmp_path / "file" / "below") is None
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_jax_reads_its_cache_again_after_a_cut(tmp_path):
    script = (
        "import jax, jax.numpy as jnp; from s2pg.configure import compilation_cache; compilation_cache()\n"
        "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)\n"
        "jax.config.update('jax_raise_persistent_cache_errors', True)\n"
        "jax.jit(lambda x: jnp.tanh(x @ x).sum())(jnp.ones((3, 3)))"
    )
    environment = os.environ | {"S2PG_CACHE": str(tmp_path), "PYTHONPATH": str(Path(configure.__file__).parents[1])}
    command = [sys.executable, "-W", "error", "-c", script]
    subprocess.run(command, env=environment, check=True)
    entries = list(tmp_path.glob("*-cache"))
    assert entries
    for entry in entries:
        os.truncate(entry, 100)
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert done.stderr == ""
    assert all(entry.stat().st_size > 100 for entry in entries)
