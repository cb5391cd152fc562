"""Numbers that are not finite come out of the task or into the parameters; each is named, and none is kept."""

import math
import random
import shutil
from collections import Counter
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from reused import Reused, reusing
from runs import ALGORITHMS, OPTIONS, SEEDS, asked, differences, timeless

import s2pg
from s2pg.envs.base import Env
from s2pg.envs.recall import Recall
from s2pg.errors import DivergenceError, UserError
from s2pg.io import checkpoint
from s2pg.io.folder import METRICS, policy_file, why_diverged
from s2pg.io.sinks import read_metrics

BEFORE, AFTER = 1, 4  # borders before a fault, and in all
WHILE_TRAINING, WHILE_EVALUATING = ("observation", "reward"), ("observation, evaluating", "reward, evaluating")
IN_STATE = ("policy", "learner")
KINDS = (*WHILE_TRAINING, *IN_STATE, *WHILE_EVALUATING, "policy file")
VALUES = (math.nan, math.inf, -math.inf)


class Fault:
    """What is to go wrong next; a task asks at every step, and a loop before every batch."""

    def __init__(self):
        self.kind, self.value, self.steps, self.draw, self.open = "", 0.0, 0, random.Random(0), False

    def arm(self, kind, value, draw, steps):
        """Has a number be replaced within the next few steps, `steps` at most: those of one batch."""
        self.kind, self.value, self.steps, self.draw = kind, value, draw.randrange(steps), draw

    def at_a_step(self, elapsed):
        """What is added to an observation and to a reward, in all lanes [seeds, lanes]: zero, but for a fault."""
        added = np.zeros((2, *np.shape(elapsed)), np.float32)
        if self.open:
            if self.steps == 0:
                added[int("reward" in self.kind)].flat[self.draw.randrange(added[0].size)] = self.value
            self.steps -= 1
        return added[0], added[1]

    def in_tree(self, tree):
        """The tree with one of its numbers replaced."""
        leaves, structure = jax.tree.flatten(tree)
        numbers = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.size]
        if not numbers:
            return tree
        which = self.draw.choice(numbers)
        changed = np.array(leaves[which])
        changed.flat[self.draw.randrange(changed.size)] = self.value
        leaves[which] = jnp.asarray(changed)
        return jax.tree.unflatten(structure, leaves)


FAULT = Fault()


class Faulty(Env):
    """Recall whose observations and rewards a fault can reach, without another compilation."""

    task: ClassVar[Recall] = Recall(**OPTIONS)
    shows_action: ClassVar[bool] = False

    @property
    def horizon(self):
        return self.task.horizon

    @property
    def action(self):
        return self.task.action

    def begin(self, key):
        return self.task.begin(key), jnp.zeros(())

    def move(self, inner, elapsed, action, key):
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        seen, earned = jax.pure_callback(FAULT.at_a_step, (shape, shape), elapsed, vmap_method="broadcast_all")
        cue, reward, over = self.task.move(inner[0], elapsed, action, key)
        return (cue, seen), reward + earned, over

    def views(self, inner, elapsed):
        views = self.task.views(inner[0], elapsed)
        return {name: view + inner[1] for name, view in views.items()}


class FaultyLoop(Reused):
    """A loop in which the next fault happens."""

    def advance(self, loop):
        if FAULT.kind in IN_STATE:
            part = FAULT.in_tree(getattr(loop.train, FAULT.kind))
            loop = loop._replace(train=loop.train._replace(**{FAULT.kind: part}))
            FAULT.kind = ""
        FAULT.open = FAULT.kind in WHILE_TRAINING
        found = super().advance(loop)
        FAULT.open = False
        return found

    def evaluate(self, loop):
        FAULT.open = FAULT.kind in WHILE_EVALUATING
        found = super().evaluate(loop)
        FAULT.open = False
        return found


def inject(count, folder, sources, seed=0):
    """Injects `count` numbers that are not finite, shared out among the algorithms; how often what came of it."""
    draw, found = random.Random(seed), Counter()
    s2pg.register_task("faulty", Faulty)
    env = s2pg.make("faulty")

    def train(algorithm, out, borders, said):
        FAULT.open = False
        given = asked(algorithm, borders, sources)
        s2pg.train(algorithm, env, out=out, resume=True, say=said.append, **given)

    with reusing(FaultyLoop):
        for number, algorithm in enumerate(ALGORITHMS):
            before, whole, out = (folder / f"{algorithm}-{name}" for name in ("before", "whole", "run"))
            FAULT.kind = ""
            train(algorithm, before, BEFORE, [])
            shutil.copytree(before, whole)
            train(algorithm, whole, AFTER, [])
            sources.setdefault("teacher", whole)
            for _ in range(count // len(ALGORITHMS) + (number < count % len(ALGORITHMS))):
                shutil.copytree(before, out)
                kind, value, said = draw.choice(KINDS), draw.choice(VALUES), []
                FAULT.arm(kind, value, draw, min(3, ALGORITHMS[algorithm][-1]))
                go_on = partial(train, algorithm, out, AFTER, said)
                outcome = _outcome(go_on, said, out, before, whole)
                if outcome not in FINE:
                    print(f"{algorithm}: {value} in {kind}: {outcome}; {said}")
                found[f"{kind}: {outcome}" if outcome in FINE else outcome] += 1
                shutil.rmtree(out)
    return found


NAMED, TOLD, REFUSED = "stopped, diverged.json says why", "said in a line, null in metrics", "refused in one line"
NOTHING, STORED, FINITE = "without effect", "lies in the replay buffer, never drawn", "all numbers finite"
FINE = (NAMED, TOLD, REFUSED, NOTHING, STORED, FINITE)


def _outcome(train, said, out, before, whole):
    """What comes of one number that is not finite."""
    if FAULT.kind == "policy file":
        return _of_a_policy_file(policy_file(out, SEEDS[0]), out)
    try:
        train()
    except DivergenceError as error:
        if why_diverged(out) != str(error) or "\n" in str(error):
            return "unnamed errors"
        if differences(out, before) or (out / METRICS).read_bytes() != (before / METRICS).read_bytes():
            return "lost"  # what was there before the fault
        FAULT.kind = ""
        train()  # when the fault is gone, it goes on as if nothing had been
        return "runs that differ" if differences(out, whole) else NAMED
    other = differences(out, whole)
    if not other:
        return NOTHING
    policies = [array for seed in SEEDS for array in checkpoint.load_arrays(policy_file(out, seed))[0].values()]
    ours, theirs = (timeless(read_metrics(run / METRICS)) for run in (out, whole))
    pairs = [(name, row[name], clean[name]) for row, clean in zip(ours, theirs, strict=True) for name in row]
    nulls = [name for name, found, wanted in pairs if found is None and wanted is not None]
    if not all(np.isfinite(array).all() for array in policies):
        return "not finite, unnamed"
    if nulls:
        return TOLD if all(any(name in line for line in said) for name in nulls) else "not finite, unnamed"
    return STORED if all(name.endswith(".npz") for name in other) else FINITE


def _of_a_policy_file(file, out):
    """Whether a policy whose file holds such a number, its sum being right, is refused by name."""
    arrays, meta = checkpoint.load_arrays(file)
    checkpoint.save(file, _nested(FAULT.in_tree(arrays)), meta)
    try:
        s2pg.load(out, SEEDS[0])
    except UserError as error:
        return REFUSED if file.name in str(error) and "not finite" in str(error) else "unnamed errors"
    return "not finite, unnamed"


def _nested(arrays):
    """Arrays by path as dicts in dicts, which have the same paths."""
    tree = {}
    for path, array in arrays.items():
        *folders, name = path.split("/")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = np.asarray(array)
    return tree
