"""Trains the wrapped algorithm with our kernel: `python -m extras --out runs/lookalike`, again with `--resume`."""

from __future__ import annotations

import argparse

import numpy as np

import extras  # noqa: F401 - makes the names known
import s2pg
from s2pg.configure import compilation_cache


def main() -> None:
    """Trains two seeds on recall; the given observations are those of an episode's first step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--borders", type=int, default=50)
    parser.add_argument("--resume", action="store_true")
    chosen = parser.parse_args()
    compilation_cache()  # what is compiled is kept for the next start
    cues = np.random.default_rng(0).choice([-1.0, 1.0], 64)
    given = np.stack([cues, np.ones(64)], axis=1).astype(np.float32)
    run = s2pg.train(
        "lookalike", s2pg.make("recall", k=4), kernel="leaky", critic="critic", seeds=(0, 1), steps=chosen.steps,
        out=chosen.out, borders=chosen.borders, resume=chosen.resume, shared=given,
        hyper={"leak": 0.2, "lanes": 32, "size": 16, "width": 16},
    )  # fmt: skip
    print(f"return {run.metrics[-1]['eval_return']:.2f}, judged {run.metrics[-1]['judged']:.0f} observations")


main()
