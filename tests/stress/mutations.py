"""Files of runs are damaged in every way; whoever reads them says so in one line, or is not misled."""

import dataclasses
import io
import json
import os
import pickle
import random
import shutil
import zipfile
from collections import Counter
from hashlib import sha256

import jax
import numpy as np
from reused import reusing
from runs import OPTIONS, SEEDS, TASK, asked, bits, timeless

import s2pg
from s2pg.analysis import logs
from s2pg.errors import UserError
from s2pg.io import lock
from s2pg.io.checkpoint import META, Checkpoints, _dump
from s2pg.io.folder import CHECKPOINTS, CONFIG, DIVERGED, METRICS, policy_file
from s2pg.io.sinks import read_metrics, write_object
from s2pg.runs.experiment import Experiment
from s2pg.runs.request import Request
from s2pg.study.cells import look
from s2pg.study.plan import Cell

BORDERS = 4
NAMES = (*(field.name for field in dataclasses.fields(Experiment)), "schema", "spec", "versions", "hardware")
LOST = ("has lost its checkpoints", "took over from")  # what a resumed run says


class Bomb:
    """What runs when it is unpickled."""

    def __init__(self, fuse):
        self.fuse = fuse

    def __reduce__(self):
        return os.mkdir, (self.fuse,)


def flip(data, draw, fuse):
    place = draw.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]


def truncate(data, draw, fuse):
    return data[: draw.randrange(len(data))]


def overwrite(data, draw, fuse):
    place, noise = draw.randrange(len(data)), draw.randbytes(draw.randint(1, 64))
    return (data[:place] + noise + data[place + len(noise) :])[: len(data)]


def append(data, draw, fuse):
    return data + draw.randbytes(draw.randint(1, 64))


def replace(data, draw, fuse):
    return draw.randbytes(len(data))


def empty(data, draw, fuse):
    return b""


def hide_pickle(data, draw, fuse):
    """A pickle in place of the file, or of one array in it: that archive's sums are right again."""
    if data[:2] != b"PK" or draw.random() < 0.2:
        return pickle.dumps(Bomb(str(fuse)))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    held = io.BytesIO()
    np.lib.format.write_array(held, np.asarray([Bomb(str(fuse))], object))
    content[draw.choice([name for name in content if name != META])] = held.getvalue()
    header = {name: value for name, value in json.loads(content.pop(META)).items() if name != "sha256"}
    digest = sha256(b"".join(content.values()) + _dump(header)).hexdigest()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, entry in (content | {META: _dump(header | {"sha256": digest})}).items():
            archive.writestr(name, entry)
    return made.getvalue()


CHANGES = (flip, flip, flip, truncate, overwrite, append, replace, empty, hide_pickle)
MOVES = ("deleted", "swapped", "made a folder")


def mutate_runs(count, folder, seed=0):
    """Damages one file of a run `count` times; how often what came of it."""
    draw, found, fuse = random.Random(seed), Counter(), folder / "fuse"
    with reusing():
        intact = [Intact(algorithm, folder) for algorithm in ("ppo", "sac")]
        for number in range(count):
            run = draw.choice(intact)
            file = draw.choice(run.files)
            try:
                outcome = run.outcome(draw, file, fuse)
            except Exception as error:  # which is what must not be
                outcome = "unnamed errors"
                print(f"{number}: {run.algorithm} {file} {run.last}: {type(error).__name__}: {error}")
            if fuse.exists():
                fuse.rmdir()
                outcome = "code executed"
            if outcome == "silent wrong numbers":
                print(f"{number}: {run.algorithm} {file} {run.last}")
            found[outcome] += 1
    return found


class Intact:
    """A run as it was, and everything that is told of it."""

    def __init__(self, algorithm, folder):
        self.algorithm, self.env, self.last = algorithm, s2pg.make(TASK, **OPTIONS), ""
        self.out, self.whole = folder / algorithm, folder / f"{algorithm}-whole"
        self.request = Request(
            algorithm, TASK, OPTIONS, seeds=SEEDS, steps=asked(algorithm, BORDERS)["steps"], out=self.out
        )
        s2pg.train(algorithm, self.env, out=self.whole, say=print, **asked(algorithm, BORDERS))
        shutil.rmtree(self.whole / "events", ignore_errors=True)
        if algorithm == "sac":  # a lock that a dead process left, with the id of this one
            holder = lock._Holder("token", lock.socket.gethostname(), lock._machine(), os.getpid(), "1")
            (self.whole / lock.NAME).write_text(json.dumps(holder._asdict()))
        else:
            write_object(self.whole / DIVERGED, {"schema": 1, "why": "kl is not finite at update 12", "step": 64})
        self.files = sorted(str(path.relative_to(self.whole)) for path in self.whole.rglob("*") if path.is_file())
        self.bytes = {name: (self.whole / name).read_bytes() for name in self.files}
        self._lay_out()
        self.told = {use.__name__: use() for use in (self.read, self.log, self.status)}

    def _lay_out(self):
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(self.whole, self.out)

    def _change(self, draw, name, fuse):
        """Damages a file; the names of those that are not as they were."""
        file, change = self.out / name, draw.choice((*CHANGES, *MOVES))
        self.last = getattr(change, "__name__", change)
        if change == "swapped":
            other = draw.choice([each for each in self.files if each != name])
            file.write_bytes(self.bytes[other])
            (self.out / other).write_bytes(self.bytes[name])
            self.last = f"swapped with {other}"
            return [name, other]
        if isinstance(change, str):
            file.unlink()
            if change == "made a folder":
                file.mkdir()
        else:
            file.write_bytes(change(self.bytes[name], draw, fuse))
        return [name]

    def outcome(self, draw, name, fuse):
        """What comes of a file that is damaged."""
        self._lay_out()
        names = self._change(draw, name, fuse)
        refused, same = False, True
        for use in (self.read, self.log, self.status):
            try:
                same &= use() == self.told[use.__name__] or self._says_so(use)
            except UserError as error:
                refused |= self._named(error, names)
        said = []
        try:
            self.resume(said.append)
        except (UserError, OSError) as error:  # the command line tells both in one line
            return "refused in one line that names the file" if self._named(error, names) else "silent wrong numbers"
        if not (same and self._as_undisturbed()):
            return "silent wrong numbers"
        if any(LOST[0] in line for line in said):
            return "went on from an older checkpoint, and said so"
        return "refused by a reader, mended by --resume" if refused else "unaffected"

    def _says_so(self, use):
        """Whether a status tells of damage by a word instead of a number."""
        found = use()
        told = self.told[use.__name__]
        if use == self.status:  # it is not as far, not called done, or nothing is told of its returns
            return found.step < told.step or found.value is None or (found.state, found.why) != (told.state, told.why)
        if use == self.log:
            return (found[:2] == told[:2] and found[2] == "for a reason that cannot be read") or not (
                self.out / DIVERGED
            ).is_file()
        return False

    def _named(self, error, names):
        text = str(error) if isinstance(error, UserError) else f"{error.strerror}: {error.filename}"
        files = [name.rpartition("/")[2] for name in names]
        # Where a checkpoint or its buffer is gone, it is the other one that is named.
        files += ["/step-" for name in names if name.startswith(CHECKPOINTS) and not (self.out / name).exists()]
        whole = any(name in (CONFIG, lock.NAME) for name in files) and str(self.out) in text
        if "\n" in text or not (whole or any(file in text for file in files)):
            raise AssertionError(f"not named: {text}")
        return True

    def read(self):
        run = s2pg.Run(self.out)
        actors = [run.policy(seed).actor for seed in SEEDS]
        leaves = [[np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(actor)] for actor in actors]
        return run.experiment, run.spec, run.metrics, leaves

    def log(self):
        found = logs.load(self.out)
        # All that was said; where the name of the sum itself is damaged, the sum is another setting that nobody reads.
        told = {name: value for name, value in found.config.items() if name in NAMES}
        return told, found.rows, found.diverged

    def status(self):
        return look(Cell(self.algorithm, self.request))

    def resume(self, say):
        s2pg.train(self.algorithm, self.env, out=self.out, resume=True, say=say, **asked(self.algorithm, BORDERS))

    def _as_undisturbed(self):
        """Whether a resumed run has the numbers that it had."""
        rows = [read_metrics(run / METRICS) for run in (self.out, self.whole)]
        policies = all(
            policy_file(self.out, seed).read_bytes() == policy_file(self.whole, seed).read_bytes() for seed in SEEDS
        )
        ours, theirs = (Checkpoints(run / CHECKPOINTS) for run in (self.out, self.whole))
        newest = theirs.steps()[-1]
        same = bits(ours.path(newest)) == bits(theirs.path(newest)) if ours.steps()[-1] == newest else False
        return timeless(rows[0]) == timeless(rows[1]) and policies and same
