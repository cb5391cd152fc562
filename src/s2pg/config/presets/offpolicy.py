"""What presets of SAC, TD3 and DDPG have in common."""

from typing import Any

from s2pg.config.presets.base import Preset

# A small buffer that is soon renewed.
RECALL: dict[str, Any] = {
    "lanes": 32, "size": 32, "width": 32, "batch_size": 64, "learning_starts": 1000, "capacity": 30_000,
    "learning_rate": 1e-3, "total_steps": 960_000,
}  # fmt: skip
LONG_MEMORY: dict[str, Any] = {"lanes": 1, "capacity": 1_000_000, "total_steps": 1_000_000}

SHARED = (
    # The critic is privileged, as in the paper: bootstrapping alone does not find out what to remember.
    Preset({}, {"privileged": True}),
    Preset({"task": "masked-pendulum"}, {"lanes": 8, "total_steps": 200_000}),
    Preset({"task": "gym:"}, {"total_steps": 100_000}),
    # A step of the simulator on the device takes as long for 128 environments as for one: several gradient steps
    # share it.
    Preset(
        {"task": "robot", "backend": "device"},
        {"lanes": 128, "steps": 1, "gradient_steps": 8, "total_steps": 2_000_000},
    ),
)
# The deterministic ones. Without the cost z ends in a corner of [-1, 1] and stays there (docs/results.md, "Robots").
AWAKE: dict[str, Any] = {"saturation_cost": 0.1, "state_log_std": -3.5}
DETERMINISTIC = tuple(
    Preset({"task": task}, {"lanes": 64, "total_steps": 3_200_000}) for task in ("pointmass-goal", "pointmass-door")
)
