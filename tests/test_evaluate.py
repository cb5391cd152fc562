"""Evaluation on the device: whole episodes, and no step after the last of them has ended."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import s2pg
from s2pg.envs.base import Env
from s2pg.evaluate import BLOCK, compare, evaluate
from s2pg.rollout import collect, start
from s2pg.types import CRITIC, POLICY, Discrete
from toys import resolve, shaken

STEPS = []  # one entry for each step of all lanes
HORIZON = 2 * BLOCK + BLOCK // 2
SIZE = -(-HORIZON // 3)  # of three blocks, which reach one step past it


class Fuse(Env):
    """Shows how long it burns, at most `longest` steps, and pays what the step's key says; actions mean nothing."""

    longest: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True, default=HORIZON)

    @property
    def action(self):
        return Discrete(2)

    def begin(self, key):
        return jax.random.randint(key, (), 1, self.longest + 1)

    def move(self, inner, elapsed, action, key):
        jax.debug.callback(lambda: STEPS.append(1))
        return inner, jax.random.uniform(key), elapsed + 1 >= inner

    def views(self, inner, elapsed):
        view = jnp.stack([inner, elapsed]).astype(jnp.float32)
        return {POLICY: view, CRITIC: view}


def actor(env, explore=False):
    hyper = {"lanes": 2, "steps": 3, "size": 4, "width": 4, "minibatches": 2}
    algorithm = resolve("ppo", s2pg.make("recall", k=4), hyper=hyper)[1]
    return algorithm.actor(algorithm.init_policy(env.spec, key=jax.random.key(0)), explore)


def played(env, episodes=16, seeds=2):
    """(what came of it for some seeds under vmap, how many steps were made, the keys of the seeds)."""
    keys, acting = jax.random.split(jax.random.key(1), seeds), actor(env)
    STEPS.clear()
    found = jax.jit(jax.vmap(lambda key: evaluate(env, acting, episodes, key)))(keys)
    jax.effects_barrier()
    return found, len(STEPS), keys


def by_hand(env, episodes, key):
    """(returns, lengths), step by step to the horizon, with the keys that evaluation takes."""
    start_key, run_key = jax.random.split(key)
    state, alive = start(env, actor(env), episodes, start_key, stagger=False).env_state, np.ones(episodes, bool)
    returns, lengths, advance = np.zeros(episodes), np.zeros(episodes, int), jax.jit(jax.vmap(env.advance))
    for step_key in jax.random.split(run_key, env.horizon):
        keys = jax.random.split(jax.random.split(step_key)[1], episodes)
        state, after = advance(state, jnp.zeros(episodes, int), keys)
        returns, lengths = returns + alive * np.asarray(after.reward), lengths + alive
        alive &= ~np.asarray(after.terminated | after.truncated)
    return returns, lengths


@pytest.mark.parametrize(("longest", "blocks"), [(7, 1), (SIZE + 5, 2), (10**6, 3)])
def test_it_ends_with_the_last_episode_and_what_is_played_is_as_by_hand(longest, blocks):
    env = Fuse(longest)
    found, steps, keys = played(env)
    assert steps == blocks * SIZE
    for returns, lengths, key in zip(found.returns, found.lengths, keys, strict=True):
        expected = by_hand(env, 16, key)
        np.testing.assert_allclose(returns, expected[0], rtol=1e-5)
        np.testing.assert_array_equal(lengths, expected[1])
    assert (blocks - 1) * SIZE < found.lengths.max() <= min(longest, HORIZON)


def test_a_policy_keeps_its_memory_from_block_to_block():
    """Long episodes are as those collected in one go: nothing is drawn but where they begin, every action counts."""
    env, keys = s2pg.make("masked-pendulum"), jax.random.split(jax.random.key(3))
    algorithm = resolve("ppo", env, hyper={"lanes": 2, "steps": 3, "size": 4, "width": 4, "minibatches": 2})[1]
    policy = algorithm.init_policy(env.spec, key=jax.random.key(0))
    acting = algorithm.actor(policy._replace(kernel=shaken(policy.kernel, jax.random.key(4))), explore=False)
    found = evaluate(env, acting, 4, keys[0])
    carry = start(env, acting, 4, jax.random.split(keys[0])[0], stagger=False)
    _, batch, _ = collect(env, acting, carry, env.horizon, keys[1])
    assert env.horizon > BLOCK and np.array_equal(found.lengths, np.full(4, env.horizon))
    np.testing.assert_allclose(found.returns, batch.reward.sum(axis=0), rtol=1e-4)


def test_a_horizon_within_a_block_costs_no_step_more():
    env = Fuse(10**6, horizon=BLOCK // 5)
    found, steps, _ = played(env, episodes=3)
    assert steps == env.horizon
    np.testing.assert_array_equal(found.lengths, np.full((2, 3), env.horizon))


def test_actors_that_are_compared_play_the_same_episodes_each_to_its_end():
    env, key = Fuse(SIZE + 5), jax.random.key(1)
    found = compare(env, [actor(env), actor(env, explore=True)], 8, key)
    for returns, lengths in zip(found.returns, found.lengths, strict=True):
        expected = by_hand(env, 8, key)
        np.testing.assert_allclose(returns, expected[0], rtol=1e-5)
        np.testing.assert_array_equal(lengths, expected[1])
