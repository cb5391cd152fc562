"""Presets of REINFORCE."""

from s2pg.config.presets.base import Preset

PRESETS = (
    Preset({}, {"lanes": 256, "learning_rate": 1e-2, "total_steps": 500_000}),
    Preset({"task": "recall"}, {"size": 32, "width": 32}),
    Preset({"task": "robot"}, {"lanes": 16, "total_steps": 1_000_000}),
)
