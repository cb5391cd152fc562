"""Presets of PPO."""

import math

from s2pg.config.presets.base import Preset

PRESETS = (
    Preset({}, {"lanes": 128, "steps": 32, "total_steps": 1_000_000}),
    # Quiet, and hardly held back: benchmarks/README.md, "pointmass-goal" and "cards".
    Preset({"label": "s2pg-N"}, {"state_log_std": -4.5, "drift_cost": 1e-5}),
    Preset(
        {"task": "recall"},
        {"size": 32, "width": 32, "learning_rate": 1e-3, "entropy_action": 0.01, "total_steps": 800_000},
    ),
    # It has no gate that would keep noise out.
    Preset({"task": "recall", "kernel": "rnn"}, {"state_log_std": -2.5}),
    Preset({"task": "masked-pendulum"}, {"lanes": 64, "steps": 64, "learning_rate": 1e-3, "discount": 0.97}),
    # As in benchmarks/pointmass-goal, with a rate that reaches 0 at the end of the run.
    Preset(
        {"task": "pointmass-goal"},
        {
            "lanes": 1024, "steps": 64, "minibatches": 4, "drift_cost": 0.1,
            "anneal": True, "privileged": True, "total_steps": 115_000_000,
        },
    ),
    Preset({"task": "pointmass-goal", "label": "s2pg-pathwise"}, {"state_log_std": -3.5, "drift_cost": 1e-3}),
    Preset(
        {"task": "pointmass-door"},
        {"lanes": 1024, "steps": 64, "minibatches": 4, "drift_cost": 0.1, "privileged": True},
    ),
    Preset(
        {"task": "gym:"}, {"lanes": 8, "steps": 128, "epochs": 10, "learning_rate": 3e-4, "total_steps": 200_000}
    ),
    # The robots: on the host the sizes that other libraries use ...
    Preset(
        {"task": "robot"},
        {
            "lanes": 8, "steps": 128, "epochs": 10, "minibatches": 8, "learning_rate": 3e-4, "size": 128, "width": 128,
            "total_steps": 1_000_000,
        },
    ),
    Preset(
        {"task": "robot", "backend": "device"},
        {"lanes": 1024, "steps": 32, "epochs": 4, "minibatches": 32, "total_steps": 10_000_000},
    ),
    # ... with a GRU of 32 for s2pg: a ratio over many units of z' leaves its bounds at once, and nothing is learned.
    Preset({"task": "robot", "label": "s2pg"}, {"size": 32, "state_log_std": math.log(0.5)}),
    Preset({"task": "robot", "label": "s2pg-pathwise"}, {"size": 32, "state_log_std": -2.5, "drift_cost": 0.03}),
    # A critic that sees all of a robot knows its value but not what z' does to it, and its slope pulls the memory along
    # (benchmarks/README.md, "The adult alone"). N steps teach what is to be remembered there.
    Preset({"task": "robot", "label": "s2pg-N"}, {"state_log_std": -3.5, "drift_cost": 1e-3, "pathwise_weight": 0.0}),
    # With more epochs or a higher rate, its policy narrows before it has learned to walk.
    Preset({"task": "ant"}, {"epochs": 5, "learning_rate": 1e-4}),
    Preset({"task": "ant", "backend": "device"}, {"epochs": 4, "learning_rate": 3e-4}),
    # Motors are strong: with louder noise a body falls before it has learned anything (docs/imitation.md).
    *(
        Preset(
            {"task": task},
            {
                "lanes": 64, "steps": 64, "epochs": 4, "minibatches": 16, "learning_rate": 2e-4, "discount": 0.98,
                "action_log_std": -1.6, "anneal": True, "total_steps": total,
            },
        )
        for task, total in (("humanoid-ages", 8_600_000), ("atlas-carry", 6_000_000))
    ),
    # Quiet, as elsewhere: measured on the first alone. Three seeds of HalfCheetah did not tell it from louder noise.
    *(
        Preset({"task": task, "label": "s2pg-N"}, {"state_log_std": -4.5, "drift_cost": 1e-5})
        for task in ("humanoid-ages", "atlas-carry")
    ),
    *(
        Preset(
            {"task": task, "backend": "device"},
            {"lanes": 2048, "steps": 16, "minibatches": 32, "total_steps": 20_000_000},
        )
        for task in ("humanoid-ages", "atlas-carry")
    ),
    # Louder noise costs more than standing still earns, and then it stands (benchmarks/README.md, "cpg").
    Preset({"task": "ant", "kernel": "cpg"}, {"action_log_std": -1.5}),
    Preset(
        {"task": "ant", "backend": "gymnasium", "kernel": "cpg"},
        {"lanes": 16, "steps": 256, "minibatches": 16, "learning_rate": 3e-4},
    ),
)  # fmt: skip
