"""The library's tasks as Gymnasium environments: `gymnasium.make("s2pg.envs.as_gymnasium:s2pg/Recall-v0")`.

Importing this module registers them. Gymnasium itself, since 1.0, imports no plugins on its own.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import gymnasium
import jax
import numpy as np
from gymnasium import spaces

from s2pg.envs.base import Env, EnvState
from s2pg.envs.tasks import make
from s2pg.errors import UserError
from s2pg.types import CRITIC, POLICY, Box, Timestep

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


@eqx.filter_jit
def _reset(env: Env, key: jax.Array) -> tuple[EnvState, Timestep]:
    return env.reset(key)


@eqx.filter_jit
def _advance(env: Env, state: EnvState, action: Any, key: jax.Array) -> tuple[EnvState, Timestep]:
    return env.advance(state, action, jax.random.fold_in(key, state.elapsed))


class GymEnv(gymnasium.Env):
    """A task on the device behind Gymnasium's interface, run on the CPU.

    It shows the policy view, and the critic view in `info`; `views="dict"` shows both. Actions are in the
    task's own units. `bound` is the largest magnitude that an entry of a view takes.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self,
        task: str,
        views: str = POLICY,
        render_mode: str | None = None,
        bound: float = np.inf,
        **options: Any,
    ):
        if views not in (POLICY, "dict"):
            raise UserError(f"views must be policy or dict, not '{views}'")
        env = make(task, **options)
        if not isinstance(env, Env):
            raise UserError(f"{task} is a Gymnasium environment already")
        self.task, self.render_mode, self._dict = env, render_mode, views == "dict"
        sizes = env.spec.views
        shown: dict[str, spaces.Space] = {name: spaces.Box(-bound, bound, (sizes[name],)) for name in (POLICY, CRITIC)}
        self.observation_space = spaces.Dict(shown) if self._dict else shown[POLICY]
        if isinstance(env.action, Box):
            low, high = (np.asarray(side, np.float32) for side in (env.action.low, env.action.high))
            self.action_space = spaces.Box(low, high)
        else:
            self.action_space = spaces.Discrete(env.action.n)
        self._cpu = jax.local_devices(backend="cpu")[0]
        self._state: EnvState

    def _observe(self, step: Timestep) -> tuple[Any, dict[str, Any]]:
        policy, critic = (np.array(step.obs[name], np.float32) for name in (POLICY, CRITIC))
        # `info` gets an array of its own: callers keep what they are given.
        return ({POLICY: policy, CRITIC: critic} if self._dict else policy), {CRITIC: critic.copy()}

    def _policy_units(self, action: Any) -> np.ndarray:
        """Undoes `Box.execute`."""
        if not isinstance(self.action_space, spaces.Box):
            return np.asarray(action, np.int32)
        low, high, action = self.action_space.low, self.action_space.high, np.asarray(action, np.float32)
        bounded = np.isfinite(low) & np.isfinite(high)
        low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
        return ((action - (low + high) / 2) / ((high - low) / 2)).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        with jax.default_device(self._cpu):
            self._key, key = jax.random.split(jax.random.key(int(self.np_random.integers(2**31))))
            self._state, step = _reset(self.task, key)
        return self._observe(step)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        with jax.default_device(self._cpu):
            self._state, step = _advance(self.task, self._state, self._policy_units(action), self._key)
        observation, info = self._observe(step)
        return observation, float(step.reward), bool(step.terminated), bool(step.truncated), info

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            return None
        return self.task.render(self._state)


register()
