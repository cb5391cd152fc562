"""The library's tasks as Gymnasium environments: `gymnasium.make("s2pg.envs.as_gymnasium:s2pg/Recall-v0")`.

Importing this module registers them. Gymnasium itself, since 1.0, imports no plugins on its own.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from s2pg.envs.base import Drawable, Env, EnvState
from s2pg.envs.ids import register
from s2pg.envs.spaces import to_gymnasium
from s2pg.envs.tasks import make
from s2pg.errors import UserError
from s2pg.types import CRITIC, POLICY, Timestep


@eqx.filter_jit
def _reset(env: Env, key: jax.Array) -> tuple[EnvState, Timestep]:
    return env.reset(key)


@eqx.filter_jit
def _advance(env: Env, state: EnvState, action: jax.Array, key: jax.Array) -> tuple[EnvState, Timestep]:
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
        self.action_space = to_gymnasium(env.action)
        self._cpu = jax.local_devices(backend="cpu")[0]
        self._state: EnvState

    def _observe(self, step: Timestep) -> tuple[Any, dict[str, Any]]:
        policy, critic = (np.array(step.obs[name], np.float32) for name in (POLICY, CRITIC))
        # `info` gets an array of its own: callers keep what they are given.
        return ({POLICY: policy, CRITIC: critic} if self._dict else policy), {CRITIC: critic.copy()}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed, options=options)
        with jax.default_device(self._cpu):
            self._key, key = jax.random.split(jax.random.key(int(self.np_random.integers(2**31))))
            self._state, step = _reset(self.task, key)
        return self._observe(step)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Makes one step with an action in the task's own units."""
        space = self.task.action
        units = space.policy_units(np.asarray(action, space.dtype), np)
        with jax.default_device(self._cpu):
            self._state, step = _advance(self.task, self._state, jnp.asarray(units), self._key)
        observation, info = self._observe(step)
        return observation, float(step.reward), bool(step.terminated), bool(step.truncated), info

    def render(self) -> np.ndarray | None:
        """Draws the task, if it was made to."""
        if self.render_mode is None:
            return None
        if not isinstance(self.task, Drawable):
            raise UserError(f"{type(self.task).__name__} draws no pictures")
        return self.task.render(self._state)


register()
