"""Presets of SLAC, on top of those of SAC."""

from s2pg.config.presets.base import Preset

PRESETS = (
    # Critics read the latents of a model that explains what the policy sees.
    Preset({}, {"privileged": False}),
    Preset(
        {"task": "recall"},
        {
            "first_latents": 8, "second_latents": 32, "model_width": 64, "model_rate": 1e-3, "model_batch": 64,
            "pretraining": 5_000, "total_steps": 160_000,
        },
    ),
    # The model learns from the first policy's steps alone before actor and critics begin.
    Preset({"task": "robot"}, {"learning_starts": 10_000, "pretraining": 20_000}),
)  # fmt: skip
