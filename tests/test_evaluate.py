"""Evaluation on the device: whole episodes, and no step after the last of them has ended."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import s2pg
from s2pg.envs.base import Env
from s2pg.evaluate import BLOCK, compare, evaluate
from s2pg.types import CRITIC, POLICY, Discrete
from toys import resolve

STEPS = []  # one entry for each step of all lanes


class Fuse(Env):
    """Shows how long it burns, at most `longest` steps, and pays 1 for each; actions mean nothing."""

    longest: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True, default=2 * BLOCK + BLOCK // 2)

    @property
    def action(self):
        return Discrete(2)

    def begin(self, key):
        return jax.random.randint(key, (), 1, self.longest + 1)

    def move(self, inner, elapsed, action, key):
        jax.debug.callback(lambda: STEPS.append(1))
        return inner, jnp.ones(()), elapsed + 1 >= inner

    def views(self, inner, elapsed):
        view = jnp.stack([inner, elapsed]).astype(jnp.float32)
        return {POLICY: view, CRITIC: view}


def actor(env, explore=False):
    hyper = {"lanes": 2, "steps": 3, "size": 4, "width": 4, "minibatches": 2}
    algorithm = resolve("ppo", s2pg.make("recall", k=4), hyper=hyper)[1]
    return algorithm.actor(algorithm.init_policy(env.spec, key=jax.random.key(0)), explore)


def played(longest, episodes=4, seeds=2):
    """(task, what came of it for some seeds under vmap, how many steps were made)."""
    env, keys = Fuse(longest), jax.random.split(jax.random.key(1), seeds)
    acting = actor(env)
    STEPS.clear()
    found = jax.jit(jax.vmap(lambda key: evaluate(env, acting, episodes, key)))(keys)
    jax.effects_barrier()
    return env, found, len(STEPS)


@pytest.mark.parametrize(("longest", "blocks"), [(7, 1), (BLOCK + 5, 2)])
def test_it_ends_with_the_last_episode_of_the_slowest_seed(longest, blocks):
    _, found, steps = played(longest, episodes=16)
    assert steps == blocks * BLOCK
    np.testing.assert_array_equal(found.returns, found.lengths)
    assert (blocks - 1) * BLOCK < np.asarray(found.lengths).max() <= longest
    assert len(np.unique(found.lengths)) > 3


def test_episodes_that_are_cut_last_to_the_horizon_that_no_block_ends_at():
    env, found, _ = played(10**6)
    assert env.horizon % BLOCK
    np.testing.assert_array_equal(found.lengths, np.full((2, 4), env.horizon))
    np.testing.assert_array_equal(found.returns, np.full((2, 4), env.horizon))


def test_actors_that_are_compared_play_the_same_episodes_each_to_its_end():
    env = Fuse(BLOCK + 5)
    found = compare(env, [actor(env), actor(env, explore=True)], 8, jax.random.key(1))
    np.testing.assert_array_equal(found.lengths[0], found.lengths[1])
    assert len(np.unique(found.lengths)) > 3
