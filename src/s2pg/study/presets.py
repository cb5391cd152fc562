"""Presets: hyper-parameters, steps and critic for each algorithm, task and memory label, in one readable place.

Later lines win: algorithm, then (algorithm, task). `--hyper` on the command line wins over all.
"""

from __future__ import annotations

import math
from typing import Any

from s2pg.errors import UserError
from s2pg.study.methods import Label, algorithm_class, hyper_defaults
from s2pg.types import CRITIC, POLICY, Spec

# These are no hyper-parameters: how long to train, whether the critic sees the full state, and whether the learning
# rate falls to 0 over the run.
SWITCHES: dict[str, Any] = {"total_steps": 1_000_000, "privileged": False, "anneal": False}
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
    # As in benchmarks/pointmass-goal, with a rate that reaches 0 at the end of the run.
    ("ppo", "pointmass-goal"): {
        "lanes": 1024, "steps": 64, "minibatches": 4, "drift_cost": 0.1,
        "anneal": True, "privileged": True, "total_steps": 115_000_000,
    },
    ("ppo", "pointmass-door"): {"lanes": 1024, "steps": 64, "minibatches": 4, "drift_cost": 0.1, "privileged": True},
    ("ppo", "gym:"): {"lanes": 8, "steps": 128, "epochs": 10, "learning_rate": 3e-4, "total_steps": 200_000},
}  # fmt: skip


def preset(algorithm: str, task: str, label: Label) -> dict[str, Any]:
    key = "gym:" if task.startswith("gym:") else task
    merged = SWITCHES | ALGORITHM.get(algorithm, {}) | TASK.get((algorithm, key), {})
    # The pathwise estimator learns from dV/dz', so its critic has to know what is worth remembering.
    return merged | ({"privileged": True} if label.kind == "s2pg-pathwise" else {})


def resolve(
    algorithm: str, task: str, label: Label, spec: Spec, given: dict[str, Any], total_steps: int
) -> dict[str, Any]:
    """The complete hyper-parameters: defaults, preset, what the user gave, and what follows from the rest."""
    chosen, episodic = preset(algorithm, task, label), algorithm_class(algorithm).whole_episodes
    own = {name: value for name, value in chosen.items() if name not in SWITCHES}
    hyper = hyper_defaults(algorithm) | {"lanes": 128, "steps": spec.horizon if episodic else 32} | own | given
    if episodic and hyper["steps"] < spec.horizon:
        raise UserError(f"{algorithm} learns from whole episodes of up to {spec.horizon} steps, not {hyper['steps']}")
    _check_ranges(hyper)
    if label.kind == "bptt" and label.length > hyper["steps"] and not episodic:
        transitions = hyper["lanes"] * hyper["steps"]
        if "steps" in given or label.length > transitions:
            raise UserError(f"memory '{label.name}': a segment is longer than the rollout of {hyper['steps']} steps")
        # The same number of transitions per update, in fewer and longer lanes.
        hyper |= {"steps": label.length, "lanes": hyper["lanes"] if "lanes" in given else transitions // label.length}
    if chosen["anneal"] and "anneal_updates" not in given:
        hyper["anneal_updates"] = math.ceil(total_steps / (hyper["lanes"] * hyper["steps"]))
    return hyper


def _check_ranges(hyper: dict[str, Any]) -> None:
    for name in ("lanes", "steps", "size", "width", "epochs", "minibatches"):
        if hyper.get(name, 1) < 1:
            raise UserError(f"hyper-parameter '{name}' must be 1 or more, not {hyper[name]}")
    for name in ("discount", "trace"):
        if not 0.0 <= hyper.get(name, 0.0) <= 1.0:
            raise UserError(f"hyper-parameter '{name}' must be between 0 and 1, not {hyper[name]}")
    for name in ("learning_rate", "max_grad_norm", "clip"):
        if not hyper.get(name, 1.0) > 0.0:
            raise UserError(f"hyper-parameter '{name}' must be above 0, not {hyper[name]}")


def default_critic(algorithm: str, task: str, label: Label) -> str:
    return CRITIC if preset(algorithm, task, label)["privileged"] else POLICY


def default_steps(algorithm: str, task: str, label: Label) -> int:
    return preset(algorithm, task, label)["total_steps"]
