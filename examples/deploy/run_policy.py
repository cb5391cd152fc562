"""Runs an exported policy with numpy and onnxruntime alone: copy this file to the robot.

    python run_policy.py policy.onnx                 # what the file is, and how long a step takes
    python run_policy.py policy.onnx --obs log.csv   # one action a row of observations, as CSV on stdout

In a control loop:

    policy = Policy("policy.onnx")
    policy.reset()                       # at the start of every episode
    while running:
        action = policy(observation)     # the raw observation in, the robot's own units out
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np
import onnxruntime

SCHEMA = 1


class Policy:
    """A policy with its internal state: `action = policy(observation)`, `policy.reset()` at the start of an episode."""

    def __init__(self, path: str):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # threads cost more than so small a network
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.about = json.loads(self._session.get_modelmeta().custom_metadata_map["s2pg"])
        if self.about["schema"] != SCHEMA:
            raise ValueError(f"{path} has schema {self.about['schema']}, this program knows {SCHEMA}")
        shapes = {each.name: each.shape for each in self._session.get_inputs()}
        self.inputs = shapes["obs"][1]
        self._state = np.zeros(shapes["state"], np.float32)
        self._whole = self.about["action"]["kind"] != "box"  # actions that are numbers of choices
        self.reset()

    def reset(self) -> None:
        """Forgets: the next observation is the first of an episode."""
        self._first = np.ones(1, np.float32)

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        obs = np.asarray(observation, np.float32).reshape(1, -1)
        if obs.shape[1] != self.inputs:
            raise ValueError(f"{obs.shape[1]} numbers were observed, the policy reads {self.inputs}")
        if not np.isfinite(obs).all():  # one such number would stay in the memory
            raise ValueError("an observation is not finite")
        given = {"obs": obs, "state": self._state, "first": self._first}
        action, self._state = self._session.run(["action", "next_state"], given)
        self._first = np.zeros(1, np.float32)
        action = action.reshape(self.about["action"]["shape"])
        return action.astype(np.int64) if self._whole else action


def main() -> None:
    """Plays a table of observations, or tells what a file is."""
    parser = argparse.ArgumentParser(description="Run a policy that `s2pg export` wrote.")
    parser.add_argument("policy", help="the .onnx file")
    parser.add_argument("--obs", help="CSV of observations, one row a step: prints one row of actions for each")
    asked = parser.parse_args()
    policy = Policy(asked.policy)
    if asked.obs:
        for row in np.loadtxt(asked.obs, delimiter=",", ndmin=2):
            np.savetxt(sys.stdout, policy(row).reshape(1, -1), fmt="%.9g", delimiter=",")
        return
    about, blank = policy.about, np.zeros(policy.inputs, np.float32)
    for name in ("task", "algorithm", "memory", "kernel", "views", "action", "dt", "returns"):
        print(f"{name}: {json.dumps(about[name])}")
    seconds = []
    for _ in range(2000):
        began = time.perf_counter()
        policy(blank)
        seconds.append(time.perf_counter() - began)
    print(f"one step: {1e6 * np.median(seconds):.0f} us (median of {len(seconds)})")


if __name__ == "__main__":
    main()
