"""LS-IQ: targets on numbers, demonstrations as a second buffer with states of our own, and where Q ends."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from s2pg import replay
from s2pg.algorithms.expert import rolled
from s2pg.algorithms.lsiq import LSIQ
from s2pg.errors import UserError
from s2pg.types import POLICY

ENV = toys.CONTINUOUS
SMALL = {
    "size": 4,
    "width": 8,
    "lanes": 4,
    "batch_size": 8,
    "learning_starts": 40,
    "capacity": 200,
    "gradient_steps": 2,
}


def built(label="s2pg", **hyper) -> LSIQ:
    algorithm = toys.resolve("lsiq", ENV, memory=label, critic="critic", hyper={"size": 4, "width": 8} | SMALL | hyper)[
        1
    ]
    assert isinstance(algorithm, LSIQ)
    return algorithm


def halves(policy, expert):
    """[2, 1]: a row of the policy, and one of the expert's."""
    return jnp.array([[policy], [expert]])


def test_targets_on_numbers():
    """c = 1/2 and gamma = 0.9: rewards of 2 and -2, for ever 20 and -20."""
    algorithm = built(discount=0.9)
    assert algorithm.limit == pytest.approx(20.0)
    expert, alive, future = halves(False, True), halves(1.0, 1.0), halves(5.0, 5.0)
    np.testing.assert_allclose(algorithm.target(future, alive, expert), halves(-2.0 + 0.9 * 5.0, 20.0), rtol=1e-6)
    np.testing.assert_allclose(algorithm.target(future, 0.0 * alive, expert), halves(-20.0, 20.0), rtol=1e-6)
    sqil = built(discount=0.9, objective="sqil")
    np.testing.assert_allclose(sqil.target(future, alive, expert), halves(2.5, 2.0 + 4.5), rtol=1e-6)
    np.testing.assert_allclose(sqil.target(future, 0.0 * alive, expert), halves(-20.0, 20.0), rtol=1e-6)
    np.testing.assert_allclose(built().limit, 200.0)  # as published


@pytest.mark.parametrize(("objective", "slope"), [("lsiq", 0.45), ("sqil", 0.9)])
def test_what_the_next_state_is_worth_is_half_lost_under_a_fixed_target(objective, slope):
    """Where policy and expert do the same, Q becomes the mean of both targets. Its slope by V': gamma / 2, or gamma."""
    algorithm, expert, alive = built(discount=0.9, objective=objective), halves(False, True), halves(1.0, 1.0)
    learned = lambda future: jnp.mean(algorithm.target(halves(future, future), alive, expert))  # noqa: E731
    assert float(jax.grad(learned)(5.0)) == pytest.approx(slope)


@pytest.mark.parametrize("counted", [False, True])
def test_v_and_the_next_v_of_iq_count_the_same_entropies(counted, monkeypatch):
    """Both ask for the weights of entropies at one place, which hold that of z' or not."""
    weights = []
    algorithm = built(objective="iq", target_state_entropy=counted)
    kept = type(algorithm.inner).rewarded
    monkeypatch.setattr(type(algorithm.inner), "rewarded", lambda *given: weights.append(kept(*given)) or weights[-1])
    toys.one_update(algorithm, ENV, toys.scripted(ENV, 5))
    assert len(weights) == 2  # for V' and for V
    state = algorithm.inner.init(ENV.spec, (), key=jax.random.key(0))
    action, drawn = kept(algorithm.inner, state.learner)
    assert float(action) > 0.0 and (float(drawn) > 0.0) == counted


def test_what_the_expert_did_is_sampled_from_the_shared_data():
    algorithm, given = built(batch_size=64, learning_starts=64), toys.scripted(ENV, 5)
    state = algorithm.init(ENV.spec, given, key=jax.random.key(0))
    expert = replay.ExpertReplay(given, state.replay.remembered)
    found, batch = algorithm.inner.sample_batch(expert, state.policy, jax.random.key(1))
    assert set(found.time.tolist()) == set(range(15))  # all of five episodes of three steps
    np.testing.assert_array_equal(batch.action[:, 0], given.action[found.time])
    np.testing.assert_array_equal(batch.obs[POLICY][:, 0], given.obs[POLICY][found.time])
    np.testing.assert_array_equal(batch.next_obs[POLICY][:, 0], given.next_obs[POLICY][found.time])
    begins = np.asarray(found.time) % 3 == 0
    remembered = np.asarray(state.replay.remembered)[:, 0]
    np.testing.assert_array_equal(found.z[begins], np.zeros_like(found.z[begins]))
    np.testing.assert_array_equal(found.z[~begins], remembered[np.asarray(found.time)[~begins] - 1])


def test_a_seed_keeps_no_copy_of_the_demonstrations():
    """Twice as many rows cost it one internal state of 4 numbers each, and nothing where states are not stored."""

    def room(label, episodes):
        given = toys.scripted(ENV, episodes)
        state = jax.eval_shape(lambda key: built(label).init(ENV.spec, given, key=key), jax.random.key(0))
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))

    assert room("s2pg", 200) - room("s2pg", 100) == 100 * 3 * 4 * 4
    assert room("none", 200) == room("none", 100)


def test_the_policy_watches_from_the_start_of_each_episode():
    algorithm, given = built(), toys.scripted(ENV, 2)
    state = algorithm.init(ENV.spec, given, key=jax.random.key(0))
    actor = algorithm.actor(state.policy, explore=False)
    before, z = rolled(actor, given, jax.random.key(1))
    kernel = state.policy.kernel

    def mode(obs, before):
        return kernel(obs, before).state.mode()

    first = mode(given.obs[POLICY][0], kernel.initial())
    np.testing.assert_allclose(z[0], first, rtol=1e-5)
    np.testing.assert_allclose(before[1], first, rtol=1e-5)
    np.testing.assert_array_equal(before[3], kernel.initial())
    np.testing.assert_allclose(z[1], mode(given.obs[POLICY][1], first), rtol=1e-5)
    np.testing.assert_allclose(z[3], mode(given.obs[POLICY][3], kernel.initial()), rtol=1e-5)


@pytest.mark.parametrize(
    "label",
    ["s2pg", "bptt-2", *(pytest.param(each, marks=pytest.mark.slow) for each in ("s2pg-2", "window-2", "none"))],
)
def test_every_memory_rule_can_be_taught(label):
    state, moved, metrics = toys.one_update(built(label), ENV, toys.scripted(ENV, 5))
    assert all(np.isfinite(float(value)) for value in metrics.values())
    assert not eqx.tree_equal(state.policy.kernel, moved.policy.kernel)
    before, after = state.replay, moved.replay
    if label.startswith(("s2pg", "bptt")):  # what our policy would remember of the expert's episodes is computed anew
        assert not np.array_equal(before.remembered, after.remembered)
    if label.startswith("s2pg"):
        assert not np.array_equal(before.own.next_z, after.own.next_z)


@pytest.mark.parametrize("objective", ["lsiq", pytest.param("sqil", marks=pytest.mark.slow), "iq"])
def test_an_expert_that_is_told_apart_is_worth_its_target(objective):
    """The policy does not learn, so that the expert's decisions stay others than its own."""
    algorithm = built("none", objective=objective, discount=0.5, critic_first=10_000, critic_learning_rate=3e-3)
    given = toys.scripted(ENV, 64)
    given = given._replace(action=jnp.ones_like(given.action))  # a policy is seldom so far out

    def learn(state, key):
        return algorithm.learn(state, given, key)

    state, *_ = toys.one_update(algorithm, ENV, given)
    state, metrics = jax.jit(lambda state, keys: jax.lax.scan(learn, state, keys))(
        state, jax.random.split(jax.random.key(1), 3000)
    )
    expert, own = (float(np.mean(metrics[name][-200:])) for name in ("expert_value", "value"))
    # c = 1/2, gamma = 1/2: Q_max = 4. The other two bootstrap from what the policy would do next, which is worth less.
    if objective == "lsiq":
        assert expert == pytest.approx(4.0, abs=0.5)
        assert own < 0.0
    assert expert > own + 1.0


def test_what_it_cannot_learn_from_is_refused():
    given = toys.scripted(ENV, 2)
    with pytest.raises(UserError, match="lsiq needs demonstrations with actions"):
        built().init(ENV.spec, given._replace(action=jnp.zeros((6, 0))), key=jax.random.key(0))
    with pytest.raises(UserError, match="discount must be below 1"):
        built(discount=1.0).init(ENV.spec, given, key=jax.random.key(0))
