"""The ids under which Gymnasium knows this library's tasks. Nothing of a task is imported to register them."""

from __future__ import annotations

from typing import Any

import gymnasium

IDS: dict[str, dict[str, Any]] = {
    "s2pg/PointMassGoal-v0": {"task": "pointmass-goal"},
    "s2pg/PointMassDoor-v0": {"task": "pointmass-door"},
    "s2pg/Recall-v0": {"task": "recall"},
    "s2pg/RecallReal-v0": {"task": "recall", "cue": "real"},
    "s2pg/MaskedPendulum-v0": {"task": "masked-pendulum"},
}
# Robots of the host have a class of their own: behind `GymEnv` they would be lanes around lanes.
ROBOT_IDS: dict[str, dict[str, Any]] = {
    "s2pg/HalfCheetahPOMDP-v0": {"robot": "halfcheetah"},
    "s2pg/HopperPOMDP-v0": {"robot": "hopper"},
    "s2pg/Walker2dPOMDP-v0": {"robot": "walker2d"},
    "s2pg/AntPOMDP-v0": {"robot": "ant"},
    "s2pg/HumanoidPOMDP-v0": {"robot": "humanoid"},
}


def register() -> None:
    """Tells Gymnasium of the ids above; more than once does no harm."""
    tasks = {id: ("s2pg.envs.as_gymnasium:GymEnv", {**kwargs, "bound": 1.0}) for id, kwargs in IDS.items()}
    robots = {id: ("s2pg.envs.mujoco.gym:RobotEnv", kwargs) for id, kwargs in ROBOT_IDS.items()}
    for id, (entry, kwargs) in (tasks | robots).items():
        if id not in gymnasium.registry:
            # No `max_episode_steps`: the task cuts its episodes itself, at the `horizon` it was made with.
            gymnasium.register(id, entry_point=entry, kwargs=kwargs)
