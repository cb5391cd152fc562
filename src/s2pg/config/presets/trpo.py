"""Presets of TRPO."""

import math

from s2pg.config.presets.base import Preset

PRESETS = (
    Preset({}, {"lanes": 128, "steps": 32, "total_steps": 1_000_000}),
    Preset(
        {"task": "recall"},
        {"size": 32, "width": 32, "radius": 0.03, "fisher_share": 0.25, "total_steps": 400_000},
    ),
    Preset({"task": "masked-pendulum"}, {"lanes": 64, "steps": 64, "discount": 0.97}),
    *(
        Preset({"task": task}, {"lanes": 1024, "steps": 64, "fisher_share": 0.2, "privileged": True})
        for task in ("pointmass-goal", "pointmass-door")
    ),
    Preset(
        {"task": "gym:"}, {"lanes": 8, "steps": 256, "epochs": 10, "learning_rate": 3e-4, "total_steps": 200_000}
    ),
    # One step of the policy for each batch, so batches are larger than PPO's, and the critic makes up for it.
    Preset(
        {"task": "robot"},
        {
            "lanes": 8, "steps": 256, "epochs": 10, "minibatches": 16, "learning_rate": 3e-4, "size": 128, "width": 128,
            "total_steps": 1_000_000,
        },
    ),
    Preset(
        {"task": "robot", "backend": "device"},
        {"lanes": 1024, "steps": 32, "epochs": 4, "minibatches": 32, "fisher_share": 0.2, "total_steps": 10_000_000},
    ),
    *(
        Preset({"task": "robot", "label": label}, {"size": 32, "state_log_std": math.log(0.5)})
        for label in ("s2pg", "s2pg-pathwise")
    ),
    Preset({"task": "robot", "label": "s2pg-N"}, {"pathwise_weight": 0.0}),  # as under PPO, measured there alone
)  # fmt: skip
