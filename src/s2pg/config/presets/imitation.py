"""Presets of imitation, on top of those of the algorithm that is wrapped."""

from s2pg.config.presets.base import Preset

# The critic is privileged, as the discriminator is: what earns a reward has to be seen to be foretold.
GAIL = (
    Preset({}, {"privileged": True}),
    *(
        preset
        for task in ("humanoid-ages", "atlas-carry")
        for preset in (
            Preset({"task": task}, {"anneal": False}),
            # A batch is eight times as large there, and as many steps of the discriminator go with it.
            Preset({"task": task, "backend": "device"}, {"judge_steps": 8, "total_steps": 50_000_000}),
        )
    ),
)
# The authors' constants. Their discriminator tells nearly all rows apart at once, which leaves little to learn from.
PAPER = (
    *GAIL,
    Preset(
        {},
        {
            "judge_inputs": "action", "judge_rate": 3e-4, "judge_steps": 1, "judge_every": 3, "judge_batch": 2000,
            "judge_penalty": 0.0, "judge_entropy": 1e-3, "judge_scale": "policy",
        },
    ),
)  # fmt: skip
# A step of the environment for each update: what is learned from are the demonstrations.
BC = (Preset({}, {"lanes": 1, "steps": 1, "total_steps": 200}),)
# The expert's rows are never replaced, so what an unrolled policy would remember of them has to be written anew, or the
# critics would know them by a memory that nobody has any more.
LSIQ = (Preset({}, {"critics": 1, "refresh_heads": 1.0}),)
