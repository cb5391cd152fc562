"""Presets: hyper-parameters, steps and critic for each algorithm, task and memory label, in one readable place.

Later lines win: algorithm, then (algorithm, task), then kind of memory label, then kernel; `--hyper` over all of them.
The robots share a line, `robot`, before their own, and on the device have one more of each, such as `robot@mjx`.
"""

from __future__ import annotations

import math
from typing import Any

from s2pg.config.methods import Label, algorithm_class, hyper_defaults
from s2pg.envs.mujoco.robots import ROBOTS
from s2pg.errors import UserError
from s2pg.types import CRITIC, POLICY, Spec

# These are no hyper-parameters: how long to train, whether the critic sees the full state, and whether the learning
# rate falls to 0 over the run.
SWITCHES: dict[str, Any] = {"total_steps": 1_000_000, "privileged": False, "anneal": False}
# Temperatures fall quickly, and z' is quieter than the authors have it: both learn sooner (benchmarks/offpolicy).
SAC: dict[str, Any] = {
    "lanes": 1, "steps": 1, "size": 32, "width": 256, "alpha_action": 0.1, "alpha_learning_rate": 1e-3,
    "alpha_state_learning_rate": 1e-3, "state_log_std": -2.5,
}  # fmt: skip
DETERMINISTIC: dict[str, Any] = {"lanes": 1, "size": 32, "width": 128, "state_log_std": math.log(0.1)}
# Without them z ends in a corner of [-1, 1] and stays there (benchmarks/README.md, "SAC and TD3").
AWAKE: dict[str, Any] = {"saturation_cost": 0.1, "state_log_std": -3.5}
LONG_MEMORY: dict[str, Any] = {"lanes": 1, "capacity": 1_000_000, "total_steps": 1_000_000}
# Small, and with a buffer that is soon renewed.
RECALL: dict[str, Any] = {
    "lanes": 32, "size": 32, "width": 32, "batch_size": 64, "learning_starts": 1000, "capacity": 30_000,
    "learning_rate": 1e-3, "total_steps": 640_000,
}  # fmt: skip
OFF_POLICY, POINT_MASSES = ("sac", "td3", "ddpg"), ("pointmass-goal", "pointmass-door")
QUIET: dict[str, Any] = {"entropy_per_state": -2.0, "alpha_state": 1e-3, "state_log_std": -3.4}  # z' of SAC
POINTMASS: dict[str, Any] = QUIET | {"q_network": "branched"}
ALGORITHM: dict[str, dict[str, Any]] = {
    "ppo": {"lanes": 128, "steps": 32, "total_steps": 1_000_000},
    "trpo": {"lanes": 128, "steps": 32, "total_steps": 1_000_000},
    # Off policy the critic is privileged, as in the paper: bootstrapping alone does not find out what to remember.
    "sac": SAC | {"privileged": True},
    "td3": DETERMINISTIC | {"steps": 2, "privileged": True},
    "ddpg": DETERMINISTIC | {"steps": 1, "privileged": True},
    "reinforce": {"lanes": 256, "learning_rate": 1e-2, "total_steps": 500_000},
    "gpomdp": {"lanes": 256, "learning_rate": 1e-2, "total_steps": 500_000},
}
TASK: dict[tuple[str, str], dict[str, Any]] = {
    ("ppo", "recall"): {
        "size": 32, "width": 32, "learning_rate": 1e-3, "entropy_action": 0.01, "total_steps": 800_000,
    },
    ("trpo", "recall"): {"size": 32, "width": 32, "radius": 0.03, "fisher_share": 0.25, "total_steps": 400_000},
    ("reinforce", "recall"): {"size": 32, "width": 32},
    ("gpomdp", "recall"): {"size": 32, "width": 32},
    ("ppo", "masked-pendulum"): {"lanes": 64, "steps": 64, "learning_rate": 1e-3, "discount": 0.97},
    # As in benchmarks/pointmass-goal, with a rate that reaches 0 at the end of the run.
    ("ppo", "pointmass-goal"): {
        "lanes": 1024, "steps": 64, "minibatches": 4, "drift_cost": 0.1,
        "anneal": True, "privileged": True, "total_steps": 115_000_000,
    },
    ("ppo", "pointmass-door"): {"lanes": 1024, "steps": 64, "minibatches": 4, "drift_cost": 0.1, "privileged": True},
    # A number can be told apart from its neighbours only where z' is drawn with little noise. With the default, 2 of 3
    # seeds of lstm and 1 of 3 of mingru did not get beyond the best constant within 640,000 steps.
    # With a constant rate, a seed in a dozen ends in a dip.
    ("sac", "recall"): RECALL | QUIET | {"anneal": True, "total_steps": 960_000},
    ("td3", "recall"): RECALL
    | {"state_log_std": -3.0, "smoothing_state": 0.025, "smoothing_state_clip": 0.0625, "total_steps": 960_000},
    ("ddpg", "recall"): RECALL | {"state_log_std": -3.0, "total_steps": 960_000},
    # Many environments and fresh experience where success is common from the start ...
    ("sac", "pointmass-goal"): POINTMASS | {
        "lanes": 256, "capacity": 256_000, "anneal": True, "total_steps": 25_600_000,
    },
    # ... and a longer memory of it where it is rare.
    ("sac", "pointmass-door"): POINTMASS | {"lanes": 64, "capacity": 500_000, "total_steps": 6_400_000},
    **{(name, task): {"lanes": 64, "total_steps": 3_200_000} for name in ("td3", "ddpg") for task in POINT_MASSES},
    **{(name, "masked-pendulum"): {"lanes": 8, "total_steps": 200_000} for name in OFF_POLICY},
    **{(name, "gym:"): {"total_steps": 100_000} for name in OFF_POLICY},
    ("trpo", "masked-pendulum"): {"lanes": 64, "steps": 64, "discount": 0.97},
    **{("trpo", task): {"lanes": 1024, "steps": 64, "fisher_share": 0.2, "privileged": True} for task in POINT_MASSES},
    ("trpo", "gym:"): {"lanes": 8, "steps": 256, "epochs": 10, "learning_rate": 3e-4, "total_steps": 200_000},
    ("ppo", "gym:"): {"lanes": 8, "steps": 128, "epochs": 10, "learning_rate": 3e-4, "total_steps": 200_000},
}  # fmt: skip

# The robots: on the host the sizes that other libraries use, with a GRU of 32 for s2pg, whose ratio is over z' too.
TASK |= {
    ("ppo", "robot"): {
        "lanes": 8, "steps": 128, "epochs": 10, "minibatches": 8, "learning_rate": 3e-4, "size": 128, "width": 128,
        "total_steps": 1_000_000,
    },
    ("ppo", "robot@mjx"): {
        "lanes": 1024, "steps": 32, "epochs": 4, "minibatches": 32, "total_steps": 10_000_000,
    },
    # One step of the policy for each batch, so batches are larger than PPO's, and the critic makes up for it.
    ("trpo", "robot"): {
        "lanes": 8, "steps": 256, "epochs": 10, "minibatches": 16, "learning_rate": 3e-4, "size": 128, "width": 128,
        "total_steps": 1_000_000,
    },
    ("trpo", "robot@mjx"): {
        "lanes": 1024, "steps": 32, "epochs": 4, "minibatches": 32, "fisher_share": 0.2, "total_steps": 10_000_000,
    },
    **{(name, "robot"): {"lanes": 16, "total_steps": 1_000_000} for name in ("reinforce", "gpomdp")},
    # With more, its policy narrows before it has learnt to walk.
    ("ppo", "ant"): {"epochs": 5, "learning_rate": 1e-4},
    ("ppo", "ant@mjx"): {"epochs": 4, "learning_rate": 3e-4},
    ("sac", "robot"): LONG_MEMORY,
    ("td3", "robot"): LONG_MEMORY | AWAKE | {"smoothing_state": 0.015, "smoothing_state_clip": 0.0375},
    ("ddpg", "robot"): LONG_MEMORY | AWAKE,
    # Off policy, a step of the simulator on the device takes as long for 128 environments as for one: several gradient
    # steps share it.
    **{
        (name, "robot@mjx"): {"lanes": 128, "steps": 1, "gradient_steps": 8, "total_steps": 2_000_000}
        for name in OFF_POLICY
    },
}  # fmt: skip

LABEL: dict[str | tuple[str, str, str], dict[str, Any]] = {
    # It learns from dV/dz', so its critic has to know what is worth remembering.
    "s2pg-pathwise": {"privileged": True},
    # Larger batches help where z' is drawn, and hold up policies that have nothing to draw (benchmarks/offpolicy).
    ("sac", "pointmass-goal", "s2pg"): {"batch_size": 1024},
    # A ratio over many units of z' leaves its bounds at once, and then nothing is learnt.
    ("ppo", "robot", "s2pg"): {"size": 32, "state_log_std": math.log(0.5)},
    ("ppo", "robot", "s2pg-pathwise"): {"size": 32, "state_log_std": -2.5, "drift_cost": 0.03},
    **{("trpo", "robot", kind): {"size": 32, "state_log_std": math.log(0.5)} for kind in ("s2pg", "s2pg-pathwise")},
}

KERNEL: dict[str | tuple[str, str, str], dict[str, Any]] = {
    "cpg": {"state_log_std": -4.0},  # in half turns: 3 degrees a step leave a rhythm one
    # Louder noise costs more than standing still earns, and then it stands (benchmarks/README.md, "cpg").
    ("ppo", "ant", "cpg"): {
        "action_log_std": -1.5, "lanes": 16, "steps": 256, "minibatches": 16, "learning_rate": 3e-4,
    },
    ("ppo", "ant@mjx", "cpg"): {"action_log_std": -1.5},
    ("ppo", "recall", "rnn"): {"state_log_std": -2.5},  # it has no gate that would keep noise out
}  # fmt: skip


def place(task: str, options: dict[str, Any]) -> str:
    """What presets call a task: its name, and the backend where that is not the usual one."""
    return f"{task}@mjx" if options.get("backend") == "mjx" else task


def lines(place: str) -> list[str]:
    """The lines that a task takes presets from, in turn."""
    if place.startswith("gym:"):
        return ["gym:"]
    name, _, backend = place.partition("@")
    names = ["robot", name] if name in ROBOTS else [name]
    return [key for each in names for key in ([each, f"{each}@{backend}"] if backend else [each])]


def preset(algorithm: str, place: str, label: Label) -> dict[str, Any]:
    merged = SWITCHES | ALGORITHM.get(algorithm, {})
    for key in lines(place):
        merged |= TASK.get((algorithm, key), {})
    merged |= LABEL.get(label.kind, {})
    for key in lines(place):
        merged |= LABEL.get((algorithm, key, label.kind), {})
    return merged


def resolve(
    algorithm: str, task: str, label: Label, kernel: str, spec: Spec, given: dict[str, Any], total_steps: int
) -> dict[str, Any]:
    """The complete hyper-parameters: defaults, preset, what the user gave, and what follows from the rest."""
    chosen, episodic = preset(algorithm, task, label), algorithm_class(algorithm).whole_episodes
    own = {name: value for name, value in chosen.items() if name not in SWITCHES}
    own |= KERNEL.get(kernel, {}) | KERNEL.get((algorithm, task, kernel), {})
    hyper = hyper_defaults(algorithm, kernel) | {"lanes": 128, "steps": spec.horizon if episodic else 32} | own | given
    if episodic and hyper["steps"] < spec.horizon:
        raise UserError(f"{algorithm} learns from whole episodes of up to {spec.horizon} steps, not {hyper['steps']}")
    _check_ranges(hyper)
    if algorithm_class(algorithm).off_policy:
        _check_replay(label, hyper)
    elif label.kind == "bptt" and label.length > hyper["steps"] and not episodic:
        transitions = hyper["lanes"] * hyper["steps"]
        if "steps" in given or label.length > transitions:
            raise UserError(f"memory '{label.name}': a segment is longer than the rollout of {hyper['steps']} steps")
        # The same number of transitions per update, in fewer and longer lanes.
        hyper |= {"steps": label.length, "lanes": hyper["lanes"] if "lanes" in given else transitions // label.length}
    if chosen["anneal"] and "anneal_updates" not in given:
        hyper["anneal_updates"] = math.ceil(total_steps / (hyper["lanes"] * hyper["steps"]))
    return hyper


def _check_replay(label: Label, hyper: dict[str, Any]) -> None:
    if hyper["batch_size"] > hyper["learning_starts"]:
        raise UserError(
            f"a batch of {hyper['batch_size']} is larger than what the buffer holds when learning starts,"
            f" {hyper['learning_starts']} rows: raise 'learning_starts' or lower 'batch_size'"
        )
    if hyper["learning_starts"] > hyper["capacity"]:
        raise UserError(f"'capacity' {hyper['capacity']} is less than 'learning_starts' {hyper['learning_starts']}")
    rows, sample = hyper["capacity"] // hyper["lanes"], hyper["burn_in"] + label.length + 1
    if rows < sample:
        raise UserError(f"'capacity' leaves {rows} rows to each lane, and memory '{label.name}' needs {sample}")
    if hyper["gradient_steps"] % hyper.get("policy_delay", 1):
        raise UserError(f"'gradient_steps' must be a multiple of 'policy_delay', {hyper['policy_delay']}")


def _check_ranges(hyper: dict[str, Any]) -> None:
    counts = ("lanes", "steps", "size", "width", "epochs", "minibatches", "batch_size", "capacity", "learning_starts",
              "gradient_steps", "critics", "policy_delay", "cg_steps", "backtracks")  # fmt: skip
    for name in counts:
        if hyper.get(name, 1) < 1:
            raise UserError(f"hyper-parameter '{name}' must be 1 or more, not {hyper[name]}")
    for name in ("discount", "trace", "refresh", "refresh_heads", "target_rate"):
        if not 0.0 <= hyper.get(name, 0.0) <= 1.0:
            raise UserError(f"hyper-parameter '{name}' must be between 0 and 1, not {hyper[name]}")
    amounts = ("critic_first", "max_grad_norm", "critic_learning_rate", "alpha_learning_rate", "burn_in",
               "alpha_state_learning_rate", "smoothing_action", "smoothing_action_clip", "smoothing_state",
               "smoothing_state_clip", "saturation_cost", "encoder_width", "cg_tolerance")  # fmt: skip
    for name in amounts:
        if hyper.get(name, 0) < 0:
            raise UserError(f"hyper-parameter '{name}' must be 0 or more, not {hyper[name]}")
    if not 0.0 < hyper.get("fisher_share", 1.0) <= 1.0:
        raise UserError(f"hyper-parameter 'fisher_share' must be above 0 and at most 1, not {hyper['fisher_share']}")
    for name in ("learning_rate", "clip", "alpha_action", "alpha_state", "radius", "damping"):
        if not hyper.get(name, 1.0) > 0.0:
            raise UserError(f"hyper-parameter '{name}' must be above 0, not {hyper[name]}")


def default_critic(algorithm: str, task: str, label: Label) -> str:
    return CRITIC if preset(algorithm, task, label)["privileged"] else POLICY


def default_steps(algorithm: str, task: str, label: Label) -> int:
    return preset(algorithm, task, label)["total_steps"]
