"""Presets of SAC."""

from typing import Any

from s2pg.config.presets.base import Preset
from s2pg.config.presets.offpolicy import LONG_MEMORY, RECALL, SHARED

# A number can be told apart from its neighbours only where z' is drawn with little noise. With the default, 2 of 3
# seeds of lstm and 1 of 3 of mingru did not get beyond the best constant of recall within 640,000 steps.
QUIET: dict[str, Any] = {"entropy_per_state": -2.0, "alpha_state": 1e-3, "state_log_std": -3.4}
# Targets that follow faster than usual: benchmarks/README.md, "offpolicy".
POINTMASS: dict[str, Any] = QUIET | {"q_network": "branched", "target_rate": 0.02}

PRESETS = (
    *SHARED,
    # Temperatures fall quickly, and z' is quieter than the authors have it: both learn sooner (benchmarks/offpolicy).
    Preset(
        {},
        {
            "lanes": 1, "steps": 1, "size": 32, "width": 256, "alpha_action": 0.1, "alpha_learning_rate": 1e-3,
            "alpha_state_learning_rate": 1e-3, "state_log_std": -2.5,
        },
    ),
    # With a constant rate, a seed in a dozen ends in a dip.
    Preset({"task": "recall"}, RECALL | QUIET | {"anneal": True}),
    # Many environments and fresh experience where success is common from the start ...
    Preset(
        {"task": "pointmass-goal"},
        POINTMASS | {"lanes": 256, "capacity": 256_000, "anneal": True, "total_steps": 25_600_000},
    ),
    # Larger batches help where z' is drawn, and hold up policies that have nothing to draw (benchmarks/offpolicy).
    Preset({"task": "pointmass-goal", "label": "s2pg"}, {"batch_size": 1024}),
    # ... and a longer memory of it where it is rare.
    Preset({"task": "pointmass-door"}, POINTMASS | {"lanes": 64, "capacity": 500_000, "total_steps": 6_400_000}),
    Preset({"task": "robot"}, LONG_MEMORY),
)  # fmt: skip
