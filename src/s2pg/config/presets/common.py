"""Presets that hold under every algorithm."""

from s2pg.config.presets.base import Preset

PRESETS = (
    # It learns from dV/dz', so its critic has to know what is worth remembering.
    Preset({"label": "s2pg-pathwise"}, {"privileged": True}),
    Preset({"kernel": "cpg"}, {"state_log_std": -4.0}),  # in half turns: 3 degrees a step leave a rhythm one
)
