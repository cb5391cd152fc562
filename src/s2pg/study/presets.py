"""Presets: hyper-parameters, steps and critic for each algorithm, task and memory label, in one readable place.

Later lines win: algorithm, then task, then (task, label kind). `--hyper` on the command line wins over all.
"""

from __future__ import annotations

from typing import Any

from s2pg.errors import UserError
from s2pg.study.methods import Label, hyper_defaults
from s2pg.types import CRITIC, POLICY, Spec

# `total_steps` and `privileged` are no hyper-parameters: how long to train, and whether the critic sees the full state.
ALGORITHM: dict[str, dict[str, Any]] = {
    "ppo": {"lanes": 128, "steps": 32, "total_steps": 1_000_000},
    "reinforce": {"lanes": 256, "learning_rate": 1e-2, "total_steps": 500_000},
    "gpomdp": {"lanes": 256, "learning_rate": 1e-2, "total_steps": 500_000},
}
TASK: dict[tuple[str, str], dict[str, Any]] = {
    ("ppo", "recall"): {
        "size": 32, "width": 32, "learning_rate": 1e-3, "entropy_action": 0.01, "total_steps": 800_000,
    },
    ("reinforce", "recall"): {"size": 32, "width": 32},
    ("gpomdp", "recall"): {"size": 32, "width": 32},
    ("ppo", "masked-pendulum"): {"lanes": 64, "steps": 64, "learning_rate": 1e-3, "discount": 0.97},
    # As measured in benchmarks/pointmass-goal.
    ("ppo", "pointmass-goal"): {
        "lanes": 1024, "steps": 64, "minibatches": 4, "drift_cost": 0.1, "anneal_updates": 1750,
        "privileged": True, "total_steps": 115_000_000,
    },
    ("ppo", "pointmass-door"): {"lanes": 1024, "steps": 64, "minibatches": 4, "drift_cost": 0.1, "privileged": True},
    ("ppo", "gym:"): {"lanes": 8, "steps": 128, "epochs": 10, "learning_rate": 3e-4, "total_steps": 200_000},
}  # fmt: skip
LABEL: dict[tuple[str, str, str], dict[str, Any]] = {}


def preset(algorithm: str, task: str, label: Label) -> dict[str, Any]:
    key = "gym:" if task.startswith("gym:") else task
    merged: dict[str, Any] = {"privileged": False, "total_steps": 1_000_000}
    merged |= ALGORITHM.get(algorithm, {}) | TASK.get((algorithm, key), {})
    # The pathwise estimator learns from dV/dz', so its critic has to know what is worth remembering.
    merged |= {"privileged": True} if label.kind == "s2pg-pathwise" else {}
    return merged | LABEL.get((algorithm, key, label.kind), {})


def resolve(algorithm: str, task: str, label: Label, spec: Spec, given: dict[str, Any]) -> dict[str, Any]:
    """The complete hyper-parameters: defaults, preset, what the user gave, and what follows from the label."""
    chosen = preset(algorithm, task, label)
    own = {name: value for name, value in chosen.items() if name not in ("privileged", "total_steps")}
    hyper = hyper_defaults(algorithm) | own | given
    if hyper["steps"] is None:  # episodic algorithms collect one episode per lane
        hyper["steps"] = spec.horizon
    if label.kind == "bptt" and label.length > hyper["steps"] and algorithm == "ppo":
        if "steps" in given:
            raise UserError(f"memory '{label.name}': a segment is longer than the rollout of {hyper['steps']} steps")
        # The same number of transitions per update, in fewer and longer lanes.
        lanes = hyper["lanes"] * hyper["steps"] // label.length
        hyper |= {"steps": label.length, "lanes": hyper["lanes"] if "lanes" in given else max(1, lanes)}
    for name in ("lanes", "steps", "size", "width", "epochs", "minibatches"):
        if hyper.get(name, 1) < 1:
            raise UserError(f"hyper-parameter '{name}' must be 1 or more, not {hyper[name]}")
    return hyper


def default_critic(algorithm: str, task: str, label: Label) -> str:
    return CRITIC if preset(algorithm, task, label)["privileged"] else POLICY


def default_steps(algorithm: str, task: str, label: Label) -> int:
    return preset(algorithm, task, label)["total_steps"]
