"""Runs that are killed at random moments, or whose disk is full, end as if nothing had been."""

import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections import Counter

from runs import ALGORITHMS, differences, ended, rows_of, started

from s2pg.errors import UserError
from s2pg.io.checkpoint import load_arrays
from s2pg.io.folder import CHECKPOINTS, POLICIES

BORDERS = 40
AT_START = 0.2  # the share of kills that hit a process before its first new row, most of them


def undisturbed(folder, sources):
    """A whole run of every algorithm; the first is `distill`'s teacher, who ends up in `sources`."""
    for algorithm in ALGORITHMS:
        child = started(algorithm, BORDERS, folder / algorithm, sources, folder / "log")
        assert ended(child) == 0, (folder / "log").read_text()
        sources.setdefault("teacher", folder / algorithm)
    return folder


def kill_runs(count, folder, whole, sources, seed=0):
    """Kills `count` processes, shared out among the algorithms; how often what came of it."""
    found, draw, log = Counter(), random.Random(seed), folder / "log"
    names = list(ALGORITHMS)
    for number, algorithm in enumerate(names):
        kills = count // len(names) + (number < count % len(names))
        out = folder / algorithm
        while kills > 0:
            child = started(algorithm, BORDERS, out, sources, log)
            early = draw.random() < AT_START
            target = 0 if early else rows_of(out) + draw.randint(1, 8)
            delay = draw.uniform(0.0, 2.0) if early else draw.uniform(0.0, 0.1)
            while rows_of(out) < target and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                time.sleep(0.002)
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)
            if ended(child) == -signal.SIGKILL:
                found["killed"] += 1
                kills -= 1
            else:  # it was done before: the next one begins anew
                _compare(found, algorithm, out, whole, sources, log)
        _compare(found, algorithm, out, whole, sources, log)
    return found


def _compare(found, algorithm, out, whole, sources, log):
    """Lets a run come to its end, and looks whether it is the one that nothing disturbed."""
    if ended(started(algorithm, BORDERS, out, sources, log)) != 0:
        found["could not go on"] += 1
        print(f"{algorithm}: {log.read_text()[-2000:]}")
    elif other := differences(out, whole / algorithm):
        found["runs that differ"] += 1
        print(f"{algorithm}: {other}")
    else:
        found["runs byte for byte as undisturbed"] += 1
    shutil.rmtree(out)


def fill_disks(count, folder, whole, sources, seed=0):
    """Lets `count` runs meet a full disk; how often what came of it.

    The disk is a file system in memory that is too small, where one can be mounted; every other time, and elsewhere
    always, it is a limit on the size of files.
    """
    found, draw, names = Counter(), random.Random(seed), list(ALGORITHMS)
    for number in range(count):
        algorithm, mount = names[number % len(names)], folder / f"disk-{number}"
        mount.mkdir()
        log, out = folder / f"log-{number}", mount / "run"
        sizes = [path.stat().st_size for path in (whole / algorithm).rglob("*") if path.is_file()]
        mounted = (number // len(names)) % 2 == 0 and _mount(mount, int(draw.uniform(0.4, 0.9) * sum(sizes)))
        room = int(draw.uniform(0.1, 0.9) * max(sizes))
        code = ended(started_within(None if mounted else room, algorithm, out, sources, log))
        lines = [line for line in log.read_text().splitlines() if line.startswith("s2pg:")]
        kind = "small file system" if mounted else "limit on files"
        if code == 0:
            found[f"{kind}: there was room"] += 1
        elif code != 2 or len(lines) != 1 or "Traceback" in log.read_text():
            found["unnamed errors"] += 1
            print(f"{algorithm}: exit code {code}: {log.read_text()[-3000:]}")
        else:
            found[f"{kind}: named in one line"] += 1
        found["lost"] += not _whole(out)
        if mounted:
            subprocess.run(["mount", "-o", "remount,size=64m", str(mount)], check=True)
        _compare(found, algorithm, out, whole, sources, log)
        if mounted:
            subprocess.run(["umount", str(mount)], check=True)
    return found


def started_within(room, algorithm, out, sources, log):
    """A child that trains and may write no file longer than `room` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room or before[0], before[1]))
        return started(algorithm, BORDERS, out, sources, log)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _mount(folder, size):
    wanted = ["mount", "-t", "tmpfs", "-o", f"size={size}", "s2pg-stress", str(folder)]
    return (
        shutil.which("mount") is not None and subprocess.run(wanted, check=False, capture_output=True).returncode == 0
    )


def _whole(out):
    """Whether every checkpoint and policy in a folder is whole."""
    for path in [*(out / CHECKPOINTS).glob("*.npz"), *(out / POLICIES).glob("*.npz")]:
        try:
            load_arrays(path)
        except UserError as error:
            print(error)
            return False
    return True
