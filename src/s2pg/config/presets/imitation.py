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
# The authors' constants: they learn later than the defaults do (docs/imitation.md).
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
# Supervised learning at a rate that falls: a tenth of the steps that PPO takes should do.
DISTILL = (
    Preset({}, {"lanes": 128, "steps": 32, "anneal": True, "total_steps": 400_000}),
    Preset({"task": "recall"}, {"size": 32, "width": 32, "total_steps": 100_000}),
    Preset({"task": "masked-pendulum"}, {"lanes": 64, "steps": 64}),
    *(
        # Few environments and many passes: with 512 and 4, a student of pointmass-goal had 40 where it has 122 now.
        Preset({"task": task}, {"lanes": 64, "steps": 64, "epochs": 8, "minibatches": 4, "total_steps": 1_600_000})
        for task in ("pointmass-goal", "pointmass-door")
    ),
    Preset({"task": "gym:"}, {"lanes": 8, "steps": 128, "learning_rate": 3e-4, "total_steps": 100_000}),
    Preset({"task": "robot"}, {"lanes": 8, "steps": 128, "size": 128, "width": 128}),
    Preset(
        {"task": "robot", "backend": "device"},
        {"lanes": 1024, "steps": 32, "minibatches": 32, "total_steps": 4_000_000},
    ),
)
# The expert's rows are never replaced, so what an unrolled policy would remember of them has to be written anew, or the
# critics would know them by a memory that nobody has any more.
LSIQ = (
    Preset({}, {"critics": 1, "refresh_heads": 1.0}),
    # Values begin too high and have to sink first: with the usual discount and targets that takes 20,000 gradient steps
    # for a factor of e (benchmarks/README.md, "LS-IQ on HalfCheetah").
    Preset({"task": "robot"}, {"critics": 2, "discount": 0.97, "target_rate": 0.02, "normalise_obs": True}),
    Preset({"task": "robot", "backend": "device"}, {"gradient_steps": 32, "total_steps": 400_000}),
)
