"""Behaviour cloning: the likelihood of an expert's actions, through a memory that watches whole episodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from s2pg.errors import UserError
from s2pg.loops import DeviceLoop

ENV = toys.CONTINUOUS


def built(label, **hyper):
    _, algorithm = toys.resolve("bc", ENV, memory=label, hyper={"size": 8, "width": 16} | hyper)
    return algorithm


def test_the_loss_is_the_mean_negative_log_likelihood():
    """Of a fresh policy without memory, whose mode is 0 and whose deviation is that of the start."""
    algorithm, given = built("none", action_log_std=0.0, batch_size=6), toys.scripted(ENV, 2)
    state, _, metrics = toys.one_update(algorithm, ENV, given)
    modes = jax.vmap(lambda obs: algorithm.actor(state.policy, explore=False)(obs, (), jax.random.key(0))[0].action)(
        given.obs
    )
    by_hand = np.mean(0.5 * np.sum((np.asarray(given.action) - modes) ** 2, axis=1)) + 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(metrics["clone_loss"], by_hand, rtol=1e-4)


def cloned(label, updates=150):
    """The mean squared error of a clone's answers to the question of recall."""
    algorithm, given = built(label, epochs=2, batch_size=96), toys.scripted(ENV, 128)
    loop = DeviceLoop(algorithm, ENV, (0,), updates, 256, given)
    state, metrics = loop.advance(loop.init())
    assert float(metrics["clone_loss"][0, -1]) < float(metrics["clone_loss"][0, 0])
    return 1.0 - float(loop.evaluate(state)["eval_return"][0])


def test_a_memory_is_cloned_and_a_clone_without_one_guesses():
    """The cue is uniform on [-1, 1]: who does not know it is off by 1/3."""
    assert cloned("bptt-3") < 0.05
    assert cloned("none") == pytest.approx(1 / 3, abs=0.1)


@pytest.mark.parametrize("label", ["s2pg", "s2pg-pathwise", "s2pg-3"])
def test_draws_are_not_cloned(label):
    with pytest.raises(UserError, match="use 'bptt-N'"):
        built(label)


def test_actions_are_needed():
    given = toys.scripted(ENV, 2)._replace(action=jnp.zeros((6, 0)))
    with pytest.raises(UserError, match="bc needs demonstrations with actions"):
        built("none").init(ENV.spec, given, key=jax.random.key(0))
