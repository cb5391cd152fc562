"""How imitators move, by size of the body or weight of the box: how long, how fast, and how near to the expert's poses.

    python benchmarks/imitation/gait.py --demos studies/demos/walkers-mini.npz RUN ...

Episodes in C MuJoCo without noise, 32 of each seed and body. The pose error of a step is the distance of its joint
angles from the nearest ones of the demonstrations of that body, root mean square over joints; phases may differ.
"""

from __future__ import annotations

import argparse

import numpy as np

import s2pg
from s2pg.demos import Demonstrations, files

EPISODES = 32
VARIED = {"humanoid-ages": ("size", (0.4, 0.6, 0.8, 1.0)), "atlas-carry": ("weight", (0.1, 1.0, 5.0, 10.0))}
ANGLES = {"humanoid-ages": slice(4, 17), "atlas-carry": slice(4, 14)}  # of joints, in the full view
FORWARD = {"humanoid-ages": 17, "atlas-carry": 14}  # m/s
SPEEDS = {"walk": 1.25, "run": 2.5}  # what the task rewards, of an adult


def of_body(demonstrations: Demonstrations, task: str, value: float) -> np.ndarray:
    """The joint angles that the expert had in this body; Atlas is the same with every box."""
    view = demonstrations.obs["critic"]
    chosen = np.isclose(view[:, -1], value, atol=1e-3) if task == "humanoid-ages" else np.ones(len(view), bool)
    return view[chosen, ANGLES[task]]


def nearest(poses: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The distance of each pose [n, joints] from the nearest known one, root mean square over joints."""
    squares = np.sum(poses**2, axis=1)[:, None] - 2.0 * poses @ known.T + np.sum(known**2, axis=1)
    return np.sqrt(np.maximum(squares.min(axis=1), 0.0) / poses.shape[1])


def tell(path: str, demonstrations: Demonstrations) -> None:
    """Prints a row for each body, of all seeds together; in brackets what lasts by seed."""
    run = s2pg.Run(path)
    task, options = run.experiment.task, run.experiment.options
    name, values = VARIED[task]
    for value in values if not options.get(name) else (options[name],):
        known = of_body(demonstrations, task, value)
        if not len(known):
            raise SystemExit(f"the demonstrations show no body with {name}={value:g}")
        goal = SPEEDS[options.get("gait", "walk")] * (value if task == "humanoid-ages" else 1.0)
        seeds = []
        for seed in run.experiment.seeds:
            played = s2pg.record(run, EPISODES, seed=seed, options={"backend": "gymnasium", name: value})
            view = played.obs["critic"]
            pose = nearest(view[:, ANGLES[task]], known).mean()
            lasted = np.mean(~np.maximum.reduceat(played.terminated, np.flatnonzero(played.first)))
            seeds.append((lasted, played.lengths.mean(), view[:, FORWARD[task]].mean() / goal, pose))
        lasted, length, speed, pose = np.mean(seeds, axis=0)
        each = " ".join(f"{row[0]:.2f}" for row in seeds)
        print(
            f"{path} {name}={value:g}: {lasted:.2f} of episodes last ({each}), {length:.0f} steps, "
            f"{100 * speed:.0f} % of the speed, {pose:.3f} rad off",
            flush=True,
        )


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("runs", nargs="+", metavar="RUN")
parser.add_argument("--demos", required=True, metavar="FILE", help="what the runs have imitated")
asked = parser.parse_args()
shown = files.read(asked.demos)
for each in asked.runs:
    tell(each, shown)
