"""Tiny runs of every algorithm, as commands in processes of their own, and what two of them must have in common."""

import contextlib
import os
import sys
import warnings
from pathlib import Path

import numpy as np

import s2pg
import s2pg.cli.train  # before anything is forked
from s2pg.cli import main
from s2pg.configure import compilation_cache
from s2pg.io.checkpoint import Checkpoints, load_arrays
from s2pg.io.folder import CHECKPOINTS, METRICS, policy_file
from s2pg.io.sinks import read_metrics

SMALL = {"size": 4, "width": 4}
BATCHES = SMALL | {"lanes": 4, "steps": 8, "epochs": 1, "minibatches": 2}
EPISODES = SMALL | {"lanes": 4}
REPLAY = SMALL | {"lanes": 2, "steps": 4, "learning_starts": 40, "batch_size": 8, "capacity": 200}
# Memory, hyper-parameters, steps of the warm-up and of one update.
ALGORITHMS = {
    "ppo": ("s2pg", BATCHES, 0, 32),
    "trpo": ("s2pg", SMALL | {"lanes": 4, "steps": 8}, 0, 32),
    "sac": ("s2pg", REPLAY, 40, 8),
    "td3": ("s2pg", REPLAY, 40, 8),
    "ddpg": ("s2pg", REPLAY, 40, 8),
    "reinforce": ("s2pg", EPISODES, 0, 12),
    "gpomdp": ("s2pg", EPISODES, 0, 12),
    "gail": ("s2pg", BATCHES | {"judge_inputs": "action", "judge_width": 4}, 0, 32),
    "lsiq": ("s2pg", REPLAY | {"anneal_updates": 0}, 40, 8),
    "bc": ("bptt-3", SMALL | {"batch_size": 8}, 0, 1),
    "slac": (
        "window-3",
        REPLAY | {"first_latents": 2, "second_latents": 2, "model_width": 4, "model_batch": 4, "pretraining": 4},
        40,
        8,
    ),
    "distill": ("bptt-3", BATCHES, 0, 32),
}
# What some learn from beside the task: demonstrations, or the run of a teacher.
SOURCES = {"gail": "demos", "lsiq": "demos", "bc": "demos", "distill": "teacher"}
TASK, OPTIONS, SEEDS = "recall", {"k": 3, "cue": "real"}, (0, 3)
TIMES = ("wall_s", "steps_per_s")


def asked(algorithm, borders, sources=None):
    """What `s2pg.train` is told, beside the task and the folder; `sources` are files and folders by their kind."""
    memory, hyper, warmup, update = ALGORITHMS[algorithm]
    given = {"memory": memory, "hyper": hyper, "steps": warmup + borders * update, "borders": borders}
    return given | {
        "seeds": SEEDS,
        "episodes": 4,
        "demos": sources[SOURCES[algorithm]] if algorithm in SOURCES else None,
    }


def command(algorithm, borders, out, sources):
    """The same as a command that starts the run or goes on with it."""
    given = asked(algorithm, borders, sources)
    words = ["train", algorithm, "--task", TASK, "--memory", given["memory"], "--resume", "--out", str(out)]
    words += ["--set", *(f"{name}={value}" for name, value in OPTIONS.items())]
    words += ["--hyper", *(f"{name}={value}" for name, value in given["hyper"].items())]
    words += ["--seeds", *map(str, SEEDS)]
    for name in ("steps", "borders", "episodes"):
        words += [f"--{name}", str(given[name])]
    return words + (["--demos", str(given["demos"])] if given["demos"] else [])


def write_demos(file):
    """Demonstrations of the task's scripted oracle."""
    import toys

    given = toys.scripted(s2pg.make(TASK, **OPTIONS), 6)
    obs, next_obs = ({name: np.asarray(view) for name, view in each.items()} for each in (given.obs, given.next_obs))
    rest = {name: np.asarray(getattr(given, name)) for name in ("action", "terminated", "first")}
    s2pg.demos.write(file, s2pg.demos.Demonstrations(obs=obs, next_obs=next_obs, task=TASK, **rest))


def forked(work, log):
    """Calls `work` in a child whose exit code is what that returns; what it prints goes to `log`. Its process id.

    A fork saves the imports. JAX must not have computed anything here yet: its threads would not be in the child.
    """
    from jax._src.xla_bridge import backends_are_initialized

    assert not backends_are_initialized()
    sys.stdout.flush()
    with warnings.catch_warnings(action="ignore"):
        child = os.fork()
    if child:
        return child
    code = 70
    with contextlib.suppress(BaseException), open(log, "ab", buffering=0) as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        try:
            code = work()
        except BaseException:
            import traceback

            traceback.print_exc()
    os._exit(code or 0)


def ended(child):
    """The exit code of a child, minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def started(algorithm, borders, out, sources, log):
    """A child that trains; its process id."""

    def train():
        sys.modules["s2pg.cli.main"].compilation_cache = keep_compiled
        return main(command(algorithm, borders, out, sources))

    return forked(train, log)


def keep_compiled():
    """Keeps everything that is compiled, also what takes less time than is usually thought worth it."""
    import jax

    compilation_cache()
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def rows_of(out):
    file = Path(out) / METRICS
    return file.read_bytes().count(b"\n") if file.exists() else 0


def differences(out, whole):
    """In what two runs differ, of what must be the same: metrics but for time, policies, the last checkpoint."""
    found = []
    if timeless(read_metrics(out / METRICS)) != timeless(read_metrics(whole / METRICS)):
        found.append("metrics")
    for seed in SEEDS:
        if policy_file(out, seed).read_bytes() != policy_file(whole, seed).read_bytes():
            found.append(f"policy {seed}")
    folders = [Checkpoints(run / CHECKPOINTS) for run in (out, whole)]
    steps = [folder.steps()[-1:] for folder in folders]
    if steps[0] != steps[1]:
        return [*found, "last checkpoint"]
    for kind in (Checkpoints.path, Checkpoints.bulk_path):
        files = [kind(folder, step) for folder, (step,) in zip(folders, steps, strict=True)]
        if len({file.exists() for file in files}) > 1 or (files[0].exists() and bits(files[0]) != bits(files[1])):
            found.append(files[0].name)
    return found


def timeless(rows):
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def bits(file):
    """The arrays of a checkpoint, as text and bytes."""
    arrays, meta = load_arrays(file)
    return meta["chunks"], {name: (str(array.dtype), array.shape, array.tobytes()) for name, array in arrays.items()}
