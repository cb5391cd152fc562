"""Stable-Baselines3's `evaluate_policy` plays a policy of this library, beside `s2pg eval` (`make sb3-evaluate`).

    python benchmarks/sb3/evaluate.py RUN       # of HalfCheetah, by any algorithm

Fails where the two means are more than three standard errors apart: the episodes are not the same ones.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys

import numpy as np
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

import s2pg

ID = "s2pg/HalfCheetahPOMDP-v0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="folder that `s2pg train` made")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--lanes", type=int, default=4, help="environments that Stable-Baselines3 steps side by side")
    args = parser.parse_args()
    env = make_vec_env(ID, args.lanes, seed=0)  # with a Monitor around each
    theirs, _ = evaluate_policy(
        s2pg.load(args.run), env, n_eval_episodes=args.episodes, deterministic=True, return_episode_rewards=True
    )
    env.close()
    # The id's physics are C MuJoCo's, whatever the run was trained on.
    command = ["eval", args.run, "--episodes", str(args.episodes), "--set", "backend=gymnasium", "--json"]
    told = subprocess.run([sys.executable, "-m", "s2pg", *command], check=True, capture_output=True, text=True)
    ours = json.loads(told.stdout)["seeds"][0]
    rows = {"evaluate_policy": (np.mean(theirs), np.std(theirs)), "s2pg eval": (ours["mean"], ours["std"])}
    errors = {name: std / math.sqrt(args.episodes - 1) for name, (_, std) in rows.items()}
    for name, (mean, std) in rows.items():
        print(f"{name:16s} mean return {mean:.1f}, standard error {errors[name]:.1f}, standard deviation {std:.1f}")
    (one, _), (other, _) = rows.values()
    apart = abs(one - other) / math.hypot(*errors.values())
    print(f"{args.episodes} episodes each: {apart:.2f} standard errors apart")
    assert apart < 3.0, "they do not play the same policy"


if __name__ == "__main__":
    main()
