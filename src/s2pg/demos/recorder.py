"""Plays a policy and keeps what happened: whole episodes of tasks on the device and on the host.

Every lane plays a number of episodes that is fixed before, so that short ones are not preferred.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from s2pg.actor import Actor
from s2pg.demos.data import Demonstrations
from s2pg.envs.base import Env
from s2pg.envs.host import HostTask
from s2pg.errors import UserError
from s2pg.rollout import initial_state, transition
from s2pg.types import PREVIOUS_ACTION, Box, State, Timestep

HOST_STREAM = 2**32 - 2  # of episodes: neither those of training nor those of evaluation
HOST_LANES = 16  # environments of the host that are opened at once, at most
NOISE = 2**32 - 1  # folded into a key: a number that no split of it reaches
ROOM = 2**28  # bytes that a wave of episodes on the device may take


class Step(NamedTuple):
    """One step of all lanes; `action` is in the environment's own units, `alive` says which lanes count."""

    obs: Any
    next_obs: Any
    action: Any
    reward: Any
    terminated: Any
    first: Any
    faults: dict[str, Any]
    alive: Any


def record(
    env: Env | HostTask, actor: Actor, episodes: int, key: PRNGKeyArray, *, seed: int = 0, noise: Sequence[float] = ()
) -> Demonstrations:
    """Plays so many episodes; `key` draws them on the device, `seed` on the host.

    `noise` has standard deviations of normal noise on the actions, in policy units, which episodes take in turn: it
    leads an expert to where it seldom is. What is recorded is the action that was executed.
    """
    check(episodes, noise)
    if noise and not isinstance(env.spec.action, Box):
        raise UserError("noise on actions is for tasks whose actions are continuous")
    levels = np.resize(np.asarray(noise, np.float32), episodes) if any(noise) else None
    if isinstance(env, Env):
        steps, order = _on_device(env, actor, episodes, levels, key), np.arange(episodes)
    else:
        steps, order = _on_host(env, actor, episodes, levels, key, seed)
    return _demonstrations(
        steps, env.spec.dt, {} if levels is None else {"noise": levels[order].astype(float).round(6).tolist()}
    )


def check(episodes: int, noise: Sequence[float]) -> None:
    """Refuses numbers that nobody can play."""
    if episodes < 1:
        raise UserError(f"episodes must be 1 or more, not {episodes}")
    if any(not 0.0 <= level < np.inf for level in noise):
        raise UserError(f"noise must be 0 or more, not {min(noise)}")


def _demonstrations(steps: Step, dt: float, notes: dict[str, Any]) -> Demonstrations:
    """Rows [T, N] as those of one lane after the other, without what came after the last episode of each."""
    alive = np.swapaxes(steps.alive, 0, 1)
    rows: Step = jax.tree.map(lambda leaf: np.swapaxes(leaf, 0, 1)[alive], steps)
    faults = {name: int(flags.sum()) for name, flags in rows.faults.items() if flags.any()}
    seen = lambda obs: {name: view for name, view in obs.items() if name != PREVIOUS_ACTION}  # noqa: E731
    return Demonstrations(
        seen(rows.obs), seen(rows.next_obs), rows.action, rows.terminated, rows.first, dt=dt, reward=rows.reward,
        notes=notes | ({"faults": faults} if faults else {}),
    )  # fmt: skip


def _decide(
    actor: Actor, timestep: Timestep, z: State, keys: Array, space: Any, levels: Array | None
) -> tuple[Array, State]:
    """(actions in policy units, z') of all lanes."""
    rows = jax.vmap(transition, in_axes=(None, 0, 0, 0))(actor, timestep, z, keys)
    action = rows.decision.action
    if levels is not None:
        # Folding 1 into a key gives what splitting it does, and acting splits: noise must be drawn apart from that.
        fresh = jax.vmap(lambda key: jax.random.normal(jax.random.fold_in(key, NOISE), space.drawn))(keys)
        action = action + levels[:, None] * fresh
    return action, rows.next_z


def _on_device(env: Env, actor: Actor, episodes: int, levels: np.ndarray | None, key: PRNGKeyArray) -> Step:
    spec = env.spec
    row = 4 * (2 * sum(spec.views.values()) + spec.action.size + 4)
    lanes = int(np.clip(ROOM // (row * env.horizon), 1, episodes))
    waves = -(-episodes // lanes)
    # As many in every wave, so that one program plays them all; those beyond the last are dropped.
    numbers = np.arange(waves * lanes).reshape(waves, lanes)
    levels = None if levels is None else np.resize(levels, numbers.shape)
    played = [
        jax.device_get(_wave(env, actor, numbers.size, jnp.asarray(own), _array(levels, i), key))
        for i, own in enumerate(numbers)
    ]
    steps: Step = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *played)
    return jax.tree.map(lambda leaf: leaf[:, :episodes], steps)


def _array(levels: np.ndarray | None, at: Any) -> Array | None:
    return None if levels is None else jnp.asarray(levels[at])


@eqx.filter_jit
def _wave(env: Env, actor: Actor, total: int, numbers: Array, levels: Array | None, key: PRNGKeyArray) -> Step:
    """Steps [T, N] of the episodes with these numbers, in one scan: those that `evaluate` plays with this key."""
    start_key, run_key = jax.random.split(key)
    each = lambda key: jax.random.split(key, total)[numbers]  # noqa: E731
    env_state, timestep = jax.vmap(env.reset)(each(jax.random.split(start_key)[0]))

    def step(carry: tuple, key: PRNGKeyArray) -> tuple[tuple, Step]:
        env_state, timestep, z, alive = carry
        act_key, env_key = jax.random.split(key)
        action, z = _decide(actor, timestep, z, each(act_key), env.action, levels)
        env_state, after = jax.vmap(env.advance)(env_state, action, each(env_key))
        executed = jax.vmap(env.action.execute)(action)
        kept = Step(
            timestep.obs,
            after.last_obs,
            executed,
            after.reward,
            after.terminated,
            timestep.first,
            after.faults(),
            alive,
        )
        return (env_state, after, z, alive & ~(after.terminated | after.truncated)), kept

    start: PyTree = (env_state, timestep, initial_state(actor, len(numbers)), jnp.ones(len(numbers), bool))
    return jax.lax.scan(step, start, jax.random.split(run_key, env.horizon))[1]


def _on_host(
    task: HostTask, actor: Actor, episodes: int, levels: np.ndarray | None, key: PRNGKeyArray, seed: int
) -> tuple[Step, np.ndarray]:
    """Steps [T, N], and which of the noise levels each episode had, lane by lane."""
    count, space = min(episodes, HOST_LANES), task.spec.action
    turns = [np.arange(lane, episodes, count) for lane in range(count)]  # which episodes each lane plays
    done, quota = np.zeros(count, int), np.array([len(own) for own in turns])
    steps = []
    lanes = task.lanes([seed], count, HOST_STREAM)
    try:
        timestep, z = _one_seed(lanes.reset()), initial_state(actor, count)
        for t in range(int(quota.max()) * task.spec.horizon):
            alive = done < quota
            now = [own[min(i, len(own) - 1)] for own, i in zip(turns, done, strict=True)]
            action, z = _act(actor, timestep, z, key, jnp.asarray(t), space, _array(levels, now))
            action = np.asarray(action)
            after = _one_seed(lanes.step(action[None]))
            steps.append(
                Step(
                    timestep.obs, after.last_obs, space.execute(action.astype(space.dtype), np), after.reward,
                    after.terminated, timestep.first, after.faults(), alive,
                )
            )  # fmt: skip
            done += alive & after.first
            timestep = after
            if (done == quota).all():
                break
        else:  # an environment that goes on beyond its own horizon
            raise UserError(f"an episode of {task.id} did not end within {task.spec.horizon} steps")
    finally:
        lanes.close()
    return jax.tree.map(lambda *leaves: np.stack(leaves), *steps), np.concatenate(turns)


def _one_seed(timestep: Timestep) -> Timestep:
    return jax.tree.map(lambda leaf: leaf[0], timestep)


@eqx.filter_jit
def _act(
    actor: Actor, timestep: Timestep, z: State, key: PRNGKeyArray, t: Array, space: Any, levels: Array | None
) -> tuple[Array, State]:
    keys = jax.random.split(jax.random.fold_in(key, t), timestep.first.shape[0])
    return _decide(actor, timestep, z, keys, space, levels)
