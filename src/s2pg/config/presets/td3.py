"""Presets of TD3."""

import math

from s2pg.config.presets.base import Preset
from s2pg.config.presets.offpolicy import AWAKE, DETERMINISTIC, LONG_MEMORY, RECALL, SHARED

PRESETS = (
    *SHARED,
    *DETERMINISTIC,
    Preset({}, {"lanes": 1, "steps": 2, "size": 32, "width": 128, "state_log_std": math.log(0.1)}),
    Preset(
        {"task": "recall"},
        RECALL | {"state_log_std": -3.0, "smoothing_state": 0.025, "smoothing_state_clip": 0.0625},
    ),
    Preset({"task": "robot"}, LONG_MEMORY | AWAKE | {"smoothing_state": 0.015, "smoothing_state_clip": 0.0375}),
)
