"""Where a policy walks: metres along x after so many seconds, and how far Ant has turned by then.

    python benchmarks/cpg/walk.py RUN ...

Episodes of runs on the host, 20 of each seed, without the policy's noise and with it; means and deviations.
Places are sums of velocities, and stay where they are when an episode ends.
"""

from __future__ import annotations

import itertools
import sys

import jax
import numpy as np

import s2pg
from s2pg.runs import assess
from s2pg.types import Transition

EPISODES, AT = 20, (5.0, 10.0, 50.0)  # seconds
VELOCITY, QUATERNION = slice(13, 15), slice(1, 5)  # of Ant in its full view


def walk(path: str, seed: int, noise: bool) -> tuple[float, np.ndarray, np.ndarray]:
    """(seconds between steps, x and y [T, episodes, 2] in metres, turn [T, episodes] in radians)."""
    run = s2pg.Run(path)
    lanes, views, firsts = run.env(horizon=1000).lanes([0], EPISODES, assess.HOST_ASSESS), [], []

    def watch(row: Transition) -> None:
        views.append(np.asarray(row.obs["critic"][0]))
        firsts.append(np.asarray(row.first[0]))

    assess.on_host(lanes, run.policy(seed, explore=noise).actor, EPISODES, jax.random.key(0), watch)
    seen, alive = np.stack(views), np.cumsum(firsts, axis=0) == 1
    place = np.cumsum(run.spec.dt * alive[..., None] * seen[..., VELOCITY], axis=0)
    w, _, _, along = np.moveaxis(seen[..., QUATERNION], -1, 0)
    turn = np.unwrap(2 * np.arctan2(along, w), axis=0)
    return run.spec.dt, place, turn - turn[0]


for path in sys.argv[1:]:
    for seed, noise in itertools.product(s2pg.Run(path).experiment.seeds, (False, True)):
        dt, place, turn = walk(path, seed, noise)
        second = round(1 / dt)
        told = []
        for at in AT:
            x, turned = place[round(at / dt) - 1, :, 0], turn[round(at / dt) - 1]
            told.append(f"{at:g} s: {x.mean():.2f} ± {x.std():.2f} m, turned {turned.mean():.1f} rad")
        speed = np.linalg.norm(place[second:] - place[:-second], axis=-1).mean()
        how = "with its noise" if noise else "without noise"
        print(f"{path} seed {seed}, {how}: {'; '.join(told)}; {speed:.2f} m/s in whatever direction", flush=True)
