"""Evaluation: exactly n episodes, one per lane, side by side, on the device and on the host."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from s2pg.actor import Actor
from s2pg.envs.base import Env
from s2pg.envs.host import Lanes
from s2pg.rollout import start, transition
from s2pg.types import State, Timestep, Transition

BLOCK = 50  # steps at most between two looks at whether all episodes have ended


class Played(NamedTuple):
    """What came of whole episodes [..., episodes]: undiscounted returns, and after how many steps they ended."""

    returns: Any
    lengths: Any


def evaluate(env: Env, actor: Actor, episodes: int, key: PRNGKeyArray) -> Played:
    """Plays whole episodes. Deterministic if the actor does not explore: the mode of a and of z'."""
    return jax.tree.map(lambda leaf: leaf[0], compare(env, (actor,), episodes, key))


def compare(env: Env, actors: Sequence[Actor], episodes: int, key: PRNGKeyArray) -> Played:
    """The same for several actors, which play the same episodes.

    All lanes are stepped at once: a simulator takes hardly longer for twice as many. They are stepped in blocks, until
    the last episode has ended: robots that have not learned anything yet fall at once.
    """
    start_key, run_key = jax.random.split(key)
    carries = [start(env, actor, episodes, start_key, stagger=False) for actor in actors]
    together = lambda trees: jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *trees)  # noqa: E731

    def apart(tree: PyTree) -> list[PyTree]:
        return [
            jax.tree.map(lambda leaf, i=i: leaf[i * episodes : (i + 1) * episodes], tree) for i in range(len(actors))
        ]

    def step(carry: tuple, key: PRNGKeyArray) -> tuple[tuple, Played]:
        (env_state, timestep, zs), alive = carry
        act_key, env_key = jax.random.split(key)
        keys, over_lanes = jax.random.split(act_key, episodes), jax.vmap(transition, in_axes=(None, 0, 0, 0))
        rows = [over_lanes(*each, keys) for each in zip(actors, apart(timestep), zs, strict=True)]
        env_keys = together([jax.random.split(env_key, episodes)] * len(actors))
        env_state, after = jax.vmap(env.advance)(env_state, together([row.decision.action for row in rows]), env_keys)
        reward = jnp.where(alive, after.reward, 0.0)
        going = alive & ~(after.terminated | after.truncated)
        return ((env_state, after, [row.next_z for row in rows]), going), Played(reward, alive)

    keys, blocks = jax.random.split(run_key, env.horizon), -(-env.horizon // BLOCK)
    size = -(-env.horizon // blocks)  # equal blocks, for the last one not to be nearly empty

    def block(carry: tuple) -> tuple:
        inner, t, so_far = carry
        # The last block may reach past the horizon, where no episode goes on: what its keys are does not matter.
        inner, steps = jax.lax.scan(step, inner, keys[jnp.minimum(t + jnp.arange(size), env.horizon - 1)])
        return inner, t + size, jax.tree.map(lambda total, leaf: total + jnp.sum(leaf, axis=0), so_far, steps)

    inner = (together([c.env_state for c in carries]), together([c.timestep for c in carries]), [c.z for c in carries])
    many = len(actors) * episodes
    nothing = Played(jnp.zeros(many), jnp.zeros(many, int))

    def going_on(carry: tuple) -> Array:
        (_, alive), t, _ = carry
        return (t < env.horizon) & jnp.any(alive)

    _, _, played = jax.lax.while_loop(going_on, block, ((inner, jnp.ones(many, bool)), 0, nothing))
    return jax.tree.map(lambda leaf: leaf.reshape(len(actors), episodes), played)


class Film(NamedTuple):
    """One episode as it happened: its start, then [T] of environment and internal states after each decision."""

    start: PyTree

    env_state: PyTree
    z: State
    reward: Array
    length: int


def film(env: Env, actor: Actor, key: PRNGKeyArray) -> Film:
    """Plays one episode and keeps every state on the way."""
    start, (states, z, reward, done) = jax.device_get(_film(env, actor, key))
    return Film(start, states, z, reward, int(np.argmax(done)) + 1 if done.any() else env.horizon)


@eqx.filter_jit
def _film(env: Env, actor: Actor, key: PRNGKeyArray) -> tuple:
    start_key, run_key = jax.random.split(key)
    env_state, timestep = env.reset(start_key)

    def step(carry: tuple, key: PRNGKeyArray) -> tuple[tuple, tuple]:
        env_state, timestep, z = carry
        act_key, env_key = jax.random.split(key)
        row = transition(actor, timestep, z, act_key)
        moved, after = env.advance(env_state, row.decision.action, env_key)
        kept = (moved, row.next_z, after.reward, after.terminated | after.truncated)
        return (moved, after, row.next_z), kept

    _, kept = jax.lax.scan(step, (env_state, timestep, actor.initial()), jax.random.split(run_key, env.horizon))
    return env_state, kept


def play(
    lanes: Lanes,
    act: Callable[[Timestep, State, int], Transition],
    z: State,
    stream: int | None = None,
    watch: Callable[[Transition], None] = lambda row: None,
) -> Played:
    """Plays one episode in each lane [S, N] of a host's environments.

    `watch` sees every decision before it is taken, while the environments still stand where it was made.
    """
    timestep = lanes.reset(stream)
    returns, alive = np.zeros(timestep.reward.shape), np.ones(timestep.reward.shape, bool)
    lengths = np.zeros(alive.shape, int)
    for t in itertools.count():
        row = act(timestep, z, t)
        watch(row)
        timestep, z = lanes.step(jax.device_get(row.decision.action)), row.next_z
        returns += np.where(alive, timestep.reward, 0.0)
        lengths += alive
        alive &= ~timestep.first
        if not alive.any():
            break
    return Played(returns, lengths)
