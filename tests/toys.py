"""What several test files share: tiny algorithms, and batches that begin in the middle of episodes."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from s2pg.algorithms.base import normalised
from s2pg.algorithms.base import samples as rule_samples
from s2pg.envs.recall import Recall
from s2pg.normalise import merge
from s2pg.rollout import collect, start
from s2pg.runs import experiment
from s2pg.runs.request import Request
from s2pg.types import Expert

LABELS = ["s2pg", "s2pg-pathwise", "s2pg-3", "bptt-3", "bptt-3-last", "bptt-8", "window-3", "none", "oracle"]
DISCRETE, CONTINUOUS = Recall(k=3), Recall(k=3, cue="real")
TINY = {"lanes": 5, "steps": 8, "size": 4, "width": 8}


def resolve(algorithm, env, **asked):
    """(experiment, algorithm) of a request for a task that is made already."""
    return experiment.resolve(Request(algorithm, "", **asked), env)


def built(label, env=DISCRETE, algorithm="ppo", critic=None, **hyper):
    return resolve(algorithm, env, memory=label, critic=critic, hyper=TINY | hyper)[1]


def shaken(network, key, size=0.5):
    """Random parameters everywhere: fresh networks have zero biases and action heads that ignore the rest."""
    flat, restored = ravel_pytree(network)
    return restored(flat + size * jax.random.normal(key, flat.shape, flat.dtype))  # one draw: each takes a second


def with_kernel(state, kernel):
    return state._replace(policy=state.policy._replace(kernel=kernel))


def two_batches(algorithm, env=DISCRETE, seed=0):
    """(training state, first batch, second batch), raw. The second one begins within episodes (8 steps, 3 each),
    and its observations are normalised by the statistics of the first."""

    def run(key):
        keys = jax.random.split(key, 6)
        state = algorithm.init(env.spec, (), key=keys[0])
        state = with_kernel(state, shaken(state.policy.kernel, keys[1]))
        if hasattr(state.learner, "critic"):
            critic = shaken(state.learner.critic, keys[2])
            state = state._replace(learner=state.learner._replace(critic=critic))
        carry = start(env, algorithm.actor(state.policy), algorithm.lanes, keys[3])
        carry, one, _ = collect(env, algorithm.actor(state.policy), carry, algorithm.steps, keys[4])
        stats = merge(state.policy.normaliser, one.obs)
        state = state._replace(policy=state.policy._replace(normaliser=stats))
        _, two, _ = collect(env, algorithm.actor(state.policy), carry, algorithm.steps, keys[5])
        return state, one, two

    return jax.jit(run)(jax.random.key(seed))


def samples(algorithm, batch, segments=None):
    """The training samples of a normalised batch [T, N], with their validity."""
    time, lane, valid = segments or algorithm.memory.segments(*batch.reward.shape)
    return jax.tree.map(lambda leaf: leaf[time, lane], batch), jnp.asarray(valid)


def evaluation(algorithm, state, batch):
    """The whole raw batch under the memory rule, as an update sees it: (rows, evaluation), [samples, n]."""

    def run(state, batch):
        rows, valid = samples(algorithm, normalised(state.policy.normaliser, batch))
        seen = rule_samples(rows, algorithm.reads, valid)
        return rows, jax.vmap(algorithm.memory.evaluate, (None, 0))(state.policy.kernel, seen)

    return jax.jit(run)(state, batch)


def largest(tree):
    return max((float(np.abs(leaf).max()) for leaf in jax.tree.leaves(tree) if leaf.size), default=0.0)


def assert_close(a, b, **tolerance):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **tolerance), a, b)


def scripted(env, episodes, seed=0):
    """Demonstrations of a task's scripted oracle: an `Expert` of whole episodes."""

    def episode(key):
        reset_key, step_key = jax.random.split(key)

        def move(carry, key):
            state, seen, over = carry
            action = env.scripted(state.inner)
            after, step = env.advance(state, action, key)
            row = Expert(seen, step.obs, action, step.terminated, state.elapsed == 0)
            return (after, step.obs, over | step.terminated | step.truncated), (row, over)

        state, step = env.reset(reset_key)
        _, rows = jax.lax.scan(move, (state, step.obs, jnp.zeros((), bool)), jax.random.split(step_key, env.horizon))
        return rows

    rows, over = jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(seed), episodes))
    kept = ~over.reshape(-1)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[kept], rows)


def one_update(algorithm, env, shared, seed=0):
    """(state before, state after, metrics) of a first update on experience of its own."""

    def run(key):
        keys = jax.random.split(key, 4)
        state, plan = algorithm.init(env.spec, shared, key=keys[0]), algorithm.plan
        carry = start(env, algorithm.actor(state.policy), plan.lanes, keys[1])
        carry, warm, _ = collect(env, algorithm.actor(state.policy), carry, max(plan.warmup, 1), keys[2])
        state = algorithm.store(state, warm) if plan.warmup else state
        carry, batch, _ = collect(env, algorithm.actor(state.policy), carry, plan.steps, keys[3])
        return state, *algorithm.update(state, batch, shared, key)

    return jax.jit(run)(jax.random.key(seed))
