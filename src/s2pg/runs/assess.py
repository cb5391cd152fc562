"""What a trained policy does: its returns over many episodes, and films of single ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from s2pg import evaluate
from s2pg.actor import Actor
from s2pg.envs.base import Drawable, Env
from s2pg.envs.host import HostTask, Lanes
from s2pg.errors import UserError
from s2pg.evaluate import Played
from s2pg.io.video import with_state
from s2pg.loops import stream
from s2pg.rollout import initial_state, transition
from s2pg.types import State, Timestep, Transition

# Streams of random numbers beside those of training: episodes that no policy was trained or selected on.
ASSESS, HOST_ASSESS = 3, 2**32 - 1

_evaluate = eqx.filter_jit(evaluate.evaluate)


def played(env: Env | HostTask, actor: Actor, episodes: int, seed: int = 0) -> Played:
    """Returns and lengths [episodes]; the same `seed` gives every policy the same episodes."""
    key = stream(jax.random.key(seed), ASSESS)
    if isinstance(env, Env):
        return jax.device_get(_evaluate(env, actor, episodes, key))
    return Played(*(part[0] for part in on_host(env.lanes([seed], episodes, HOST_ASSESS), actor, episodes, key)))


def pace(env: Env | HostTask, most: int = 25) -> tuple[int, int]:
    """(every how many steps to take a picture, how many of them to show in a second) for a film at life's own pace."""
    own = getattr(env, "fps", 20)
    every = max(1, round(own / most))
    return every, max(1, round(own / every))


def film(env: Env | HostTask, actor: Actor, seed: int = 0, every: int = 1) -> Iterator[np.ndarray]:
    """Pictures of one episode, the policy's internal state drawn beneath."""
    key = stream(jax.random.key(seed), ASSESS)
    shot = _film_device(env, actor, key, every) if isinstance(env, Env) else _film_host(env, actor, seed, key, every)
    pictures, states = shot
    for t, picture in zip(range(0, len(states), every), pictures, strict=True):
        # The strip is as wide as this episode is long, whatever the horizon: an early end leaves no blank.
        yield with_state(picture, states[t], states[:t], len(states))


def _film_device(env: Env, actor: Actor, key: PRNGKeyArray, every: int) -> tuple[Iterator[np.ndarray], list[State]]:
    if not isinstance(env, Drawable):
        raise UserError(f"{type(env).__name__} draws no pictures")
    shot = evaluate.film(env, actor, key)
    steps = [jax.tree.map(lambda leaf, t=t: np.asarray(leaf[t]), (shot.env_state, shot.z)) for t in range(shot.length)]
    steps = [(shot.start, jax.device_get(actor.initial())), *steps]
    return (env.render(state) for state, _ in steps[::every]), [z for _, z in steps]


def _film_host(
    env: HostTask, actor: Actor, seed: int, key: PRNGKeyArray, every: int
) -> tuple[Iterator[np.ndarray], list[State]]:
    lanes, pictures, states = env.lanes([seed], 1, HOST_ASSESS, render=True), [], []

    def watch(row: Transition) -> None:
        if len(states) % every == 0:
            pictures.append(lanes.render())
        states.append(jax.tree.map(lambda leaf: np.asarray(leaf[0, 0]), row.z))

    on_host(lanes, actor, 1, key, watch)
    return iter(pictures), states


def on_host(
    lanes: Lanes,
    actor: Actor,
    episodes: int,
    key: PRNGKeyArray,
    watch: Callable[[Transition], None] = lambda row: None,
) -> Played:
    """Plays whole episodes [1, episodes] in these lanes, which are closed; `watch` sees every step."""
    z = jax.tree.map(lambda leaf: leaf[None], initial_state(actor, episodes))
    try:
        return evaluate.play(
            lanes, lambda timestep, z, t: _act(actor, timestep, z, key, jnp.asarray(t)), z, watch=watch
        )
    finally:
        lanes.close()


@eqx.filter_jit
def _act(actor: Actor, timestep: Timestep, z: State, key: PRNGKeyArray, t: Array) -> Transition:
    """One decision in every lane [1, N]."""
    keys = jax.random.split(jax.random.fold_in(key, t), timestep.reward.shape)
    over_lanes = jax.vmap(transition, in_axes=(None, 0, 0, 0))
    return jax.vmap(over_lanes, in_axes=(None, 0, 0, 0))(actor, timestep, z, keys)


def scripted_return(env: Any, episodes: int, seed: int = 0) -> float:
    """The mean return of a task's scripted oracle, on the episodes that `played` plays with this seed."""
    start_key, _ = jax.random.split(stream(jax.random.key(seed), ASSESS))
    reset_key, _ = jax.random.split(start_key)

    def episode(key: PRNGKeyArray) -> Array:
        state, timestep = env.reset(key)

        def step(carry: tuple, key: PRNGKeyArray) -> tuple[tuple, Array]:
            state, alive = carry
            state, after = env.advance(state, env.scripted(state.inner), key)
            return (state, alive & ~(after.terminated | after.truncated)), jnp.where(alive, after.reward, 0.0)

        _, rewards = jax.lax.scan(step, (state, ~timestep.terminated), jax.random.split(key, env.horizon))
        return jnp.sum(rewards)

    return float(jnp.mean(jax.jit(jax.vmap(episode))(jax.random.split(reset_key, episodes))))
