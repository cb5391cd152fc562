"""Critics: V is Q of the empty decision, what each kind looks at, and memories of their own along a trajectory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s2pg.critics import (
    NOTHING,
    BranchedCritic,
    PlainCritic,
    Recipe,
    RecurrentCritic,
    histories,
    state_value,
    unroll,
)
from s2pg.types import Decision

VIEWS, FEATURES = {"policy": 2, "critic": 3}, 2
OBS = {"policy": jnp.array([0.5, -1.0]), "critic": jnp.array([1.0, 2.0, 3.0])}
Z, ACTION, NEXT_Z = jnp.array([0.3, -0.2]), jnp.array([0.7]), jnp.array([0.1, 0.9])


def plain(decision=NOTHING, reads_state=True):
    options = (("width", 4), ("reads_state", reads_state))
    return Recipe(PlainCritic, ("critic",), options)(VIEWS, FEATURES, decision, jax.random.key(0))


def recurrent(decision=NOTHING, reads_state=False, layers=1):
    options = (("width", 4), ("reads_state", reads_state), ("size", 3), ("layers", layers))
    return Recipe(RecurrentCritic, ("policy",), options)(VIEWS, FEATURES, decision, jax.random.key(0))


def test_v_is_q_of_the_empty_decision_a_perceptron_of_view_and_z():
    critic = plain()
    expected = critic.body(jnp.concatenate([OBS["critic"], Z]))[0]
    value, h = state_value(critic, OBS, Z, ())
    np.testing.assert_array_equal(value, expected)
    assert h == ()


def test_q_reads_the_decision_after_view_and_z():
    critic = plain(Decision(1, 2))
    seen = jnp.concatenate([OBS["critic"], Z, ACTION, NEXT_Z])
    np.testing.assert_array_equal(critic(OBS, (), Z, Decision(ACTION, NEXT_Z)), critic.body(seen)[0])


@pytest.mark.parametrize("make", [plain, recurrent])
@pytest.mark.parametrize("reads_state", [False, True])
def test_z_matters_where_a_critic_reads_it_and_nowhere_else(make, reads_state):
    critic = make(reads_state=reads_state)
    here, elsewhere = (state_value(critic, OBS, z, critic.initial())[0] for z in (Z, Z + 1.0))
    assert bool(here != elsewhere) is reads_state


def test_a_critic_with_a_memory_of_its_own_does_not_tell_what_another_z_is_worth():
    """Where the full state is hidden z tells of it too, so the slope misleads: docs/concept.md."""
    critics = plain(), recurrent(reads_state=True)
    slopes = [jax.grad(lambda z, of: state_value(of, OBS, z, of.initial())[0])(Z, critic) for critic in critics]
    assert jnp.any(slopes[0] != 0) and not jnp.any(slopes[1] != 0)


def test_a_critic_looks_at_its_own_views_alone():
    slopes = jax.grad(lambda obs: state_value(recurrent(), obs, Z, jnp.zeros(3))[0])(OBS)
    assert jnp.any(slopes["policy"] != 0) and not jnp.any(slopes["critic"] != 0)


def test_the_branched_critic_adds_up_memory_context_and_action():
    recipe = Recipe(BranchedCritic, ("critic",), (("width", 4),))
    critic = recipe(VIEWS, FEATURES, Decision(1, 2), jax.random.key(0))
    branches = [
        critic.memory(jnp.concatenate([Z, NEXT_Z])),
        critic.context(jnp.concatenate([OBS["critic"], ACTION])),
        critic.action(ACTION),
    ]
    merged = jax.nn.relu(critic.merge(jax.nn.relu(jnp.concatenate(branches))))
    np.testing.assert_allclose(critic(OBS, (), Z, Decision(ACTION, NEXT_Z)), critic.body(merged)[0], rtol=1e-6)


def trajectory(steps):
    keys = jax.random.split(jax.random.key(1), 2)
    return {name: jax.random.normal(key, (steps, VIEWS[name])) for key, name in zip(keys, VIEWS, strict=True)}


def test_a_memory_of_its_own_runs_along_a_trajectory_and_restarts_where_it_is_told():
    critic, obs = recurrent(), trajectory(4)
    stored = jnp.full((4, 3), 0.25)
    restart = jnp.array([False, False, True, False])
    found = unroll(critic, obs, jnp.zeros((4, FEATURES)), jnp.zeros(3), stored, restart)
    h = jnp.zeros(3)
    for t in range(4):
        h = stored[t] if restart[t] else h
        np.testing.assert_allclose(found.h[t], h, rtol=1e-6)
        now = {name: view[t] for name, view in obs.items()}
        h = critic.advance(now, h)
        np.testing.assert_allclose(found.next_h[t], h, rtol=1e-6)
        np.testing.assert_allclose(found.value[t], critic(now, h, Z, NOTHING), rtol=1e-5)


def test_padding_passes_a_memory_on():
    critic, obs = recurrent(), trajectory(3)
    whole = histories(critic, {name: view[1:] for name, view in obs.items()}, jnp.array([True, True]))
    padded = histories(critic, obs, jnp.array([False, True, True]))
    np.testing.assert_array_equal(padded[0], critic.initial())
    np.testing.assert_allclose(padded[1:], whole, rtol=1e-6)
    assert histories(plain(), obs, jnp.ones(3, bool)) == ()
