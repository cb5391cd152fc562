"""GAIL: what the discriminator learns, what it pays, and that the inner algorithm gets exactly that."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from s2pg import normalise
from s2pg.algorithms.adversarial import Adversarial, Past, begun, features
from s2pg.algorithms.base import Algorithm, Plan, Policy, TrainState
from s2pg.errors import UserError
from s2pg.types import CRITIC, POLICY, Box, Decision, Discrete, Expert, Transition

LOG2 = float(np.log(2.0))


class Line(eqx.Module):
    """A discriminator that is a straight line, so that everything can be worked out by hand."""

    weight: jax.Array
    offset: jax.Array

    def __call__(self, x):
        return jnp.dot(self.weight, x)[None] + self.offset


class Spy(Algorithm):
    """An inner algorithm that tells what it was paid."""

    plan = Plan(2, 3)

    def init_policy(self, spec, *, key):
        return Policy((), {})

    def init(self, spec, shared, *, key):
        return TrainState(Policy((), {}), (), (), jnp.zeros((), jnp.int32))

    def actor(self, policy, explore=True):
        raise NotImplementedError

    def store(self, state, batch):
        return state

    def update(self, state, batch, shared, key):
        return state._replace(updates=state.updates + 1), {"paid": batch.reward}


def line(weight, offset=0.0):
    return Line(jnp.asarray(weight), jnp.asarray(offset))


def expert(rows=4, action=True):
    """Rows of a task with a policy's view of 2 and a critic's of 1."""
    obs = {POLICY: jnp.arange(2.0 * rows).reshape(rows, 2), CRITIC: jnp.arange(1.0 * rows)[:, None]}
    ahead = {name: view + 10.0 for name, view in obs.items()}
    actions = jnp.full((rows, 1), 0.5) if action else jnp.zeros((rows, 0))
    return Expert(obs, ahead, actions, jnp.zeros(rows, bool), jnp.arange(rows) == 0)


def batch(shape=(3, 2)):
    """Experience whose rewards are 7."""
    count = shape[0] * shape[1]
    obs = {POLICY: jnp.zeros((*shape, 2)), CRITIC: jnp.arange(1.0 * count).reshape(*shape, 1)}
    ahead = {name: view + 10.0 for name, view in obs.items()}
    nothing, no = jnp.zeros(shape), jnp.zeros(shape, bool)
    decision = Decision(jnp.full((*shape, 1), 3.0))
    return Transition(obs, (), decision, (), nothing + 7.0, no, no, ahead, (), no)


def imitation(**hyper):
    return Adversarial(Spy(), judge_width=4, judge_batch=8, **hyper)


def initialised(algorithm, given=None):
    spec = toys.CONTINUOUS.spec  # one number between -1 and 1 as action
    return algorithm.init(spec, given or expert(), key=jax.random.key(0))


def test_cross_entropy_on_numbers():
    algorithm = imitation(judge_penalty=0.0)
    loss = algorithm.loss(line([1.0]), jnp.zeros((2, 1)), jnp.zeros((3, 1)))
    np.testing.assert_allclose(loss, 2 * LOG2, rtol=1e-6)
    # Logits of log 3 for the expert and - log 3 for the policy: it is right with a chance of 3/4 in both.
    sure = algorithm.loss(line([1.0]), jnp.full((2, 1), np.log(3.0)), jnp.full((3, 1), -np.log(3.0)))
    np.testing.assert_allclose(sure, -2 * np.log(0.75), rtol=1e-6)


def test_entropy_and_slope_on_numbers():
    rows = jnp.full((2, 2), 0.0)
    with_entropy = imitation(judge_penalty=0.0, judge_entropy=0.1).loss(line([1.0, 0.0]), rows, rows)
    np.testing.assert_allclose(with_entropy, 2 * LOG2 - 0.1 * LOG2, rtol=1e-6)
    # The slope of the logit is (3, 4), whose square is 25.
    penalised = imitation(judge_penalty=2.0).loss(line([3.0, 4.0]), rows, rows)
    np.testing.assert_allclose(penalised, 2 * LOG2 + 50.0, rtol=1e-6)
    skewed = jnp.full((2, 1), np.log(3.0))
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    with_entropy = imitation(judge_penalty=0.0, judge_entropy=1.0).loss(line([1.0]), skewed, -skewed)
    np.testing.assert_allclose(with_entropy, -2 * np.log(0.75) - entropy, atol=1e-6)


def test_least_squares_on_numbers():
    algorithm = imitation(judge_loss="squares", judge_penalty=0.0)
    loss = algorithm.loss(line([1.0]), jnp.array([[1.0], [3.0]]), jnp.array([[-1.0], [0.0]]))
    np.testing.assert_allclose(loss, (0 + 4) / 2 + (0 + 1) / 2, rtol=1e-6)
    np.testing.assert_allclose(algorithm.reward(jnp.array([1.0, 0.0, -1.0, 5.0])), [1.0, 0.75, 0.0, 0.0], atol=1e-7)


def test_reward_on_numbers():
    """- log(1 - D) with D = 1/2, 3/4 and 1/4."""
    logits = jnp.array([0.0, np.log(3.0), -np.log(3.0)])
    np.testing.assert_allclose(imitation().reward(logits), [LOG2, np.log(4.0), np.log(4.0 / 3.0)], rtol=1e-6)


def test_inputs_are_what_was_executed():
    row = jax.tree.map(lambda leaf: leaf[2], expert())._replace(action=jnp.array([3.0]))  # out of bounds
    box = Box((-1.0,), (1.0,))
    np.testing.assert_allclose(features("action", CRITIC, box, row), [2.0, 1.0])
    np.testing.assert_allclose(features("next", CRITIC, box, row), [2.0, 12.0])
    np.testing.assert_allclose(features("state", POLICY, box, row), [4.0, 5.0])
    classes = row._replace(action=jnp.array(2))
    np.testing.assert_allclose(features("action", CRITIC, Discrete(3), classes), [2.0, 0.0, 0.0, 1.0])


@pytest.mark.parametrize("inputs", ["action", "next", "state"])
def test_the_inner_algorithm_is_paid_by_the_discriminator_alone(inputs):
    algorithm = imitation(judge_inputs=inputs, task_weight=0.0)
    state, seen = initialised(algorithm), batch()
    after, metrics = algorithm.update(state, seen, expert(), jax.random.key(1))
    learner = after.learner
    rows = Expert(seen.obs, seen.next_obs, seen.decision.action, seen.terminated, seen.first)
    each = jax.vmap(jax.vmap(lambda row: features(inputs, CRITIC, learner.space, row)))
    x = (np.asarray(each(rows)) - learner.scale.mean[None, None]) / np.maximum(learner.scale.deviation, 1e-3)[
        None, None
    ]
    logits = jax.vmap(jax.vmap(learner.judge))(jnp.clip(x, -10, 10))[..., 0]
    np.testing.assert_allclose(metrics["paid"], jax.nn.softplus(logits), rtol=1e-5)
    _, with_task = imitation(judge_inputs=inputs, task_weight=0.5).update(state, seen, expert(), jax.random.key(1))
    np.testing.assert_allclose(with_task["paid"], metrics["paid"] + 3.5, rtol=1e-5)


def test_statistics_of_the_policy_begin_with_its_first_batch():
    """The first batch has 0 ... 5 as states: their mean is 2.5, their deviation 1.708."""
    algorithm = imitation(judge_inputs="state", judge_scale="policy")
    state, seen = initialised(algorithm), batch()
    empty = state._replace(policy=Policy((), normalise.initial({POLICY: 2, CRITIC: 1})))
    after, metrics = algorithm.update(empty, seen, expert(), jax.random.key(1))

    def paid(mean, deviation):
        x = (np.arange(6.0).reshape(3, 2, 1) - mean) / deviation
        return jax.nn.softplus(jax.vmap(jax.vmap(after.learner.judge))(jnp.asarray(x))[..., 0])

    np.testing.assert_allclose(metrics["paid"], paid(2.5, np.std(np.arange(6.0))), rtol=1e-4)
    known = begun({CRITIC: normalise.Stats(jnp.array(4.0), jnp.array([1.0]), jnp.array([16.0]))}, seen.obs)
    np.testing.assert_allclose(normalise.normalise(known, {CRITIC: jnp.array([5.0])})[CRITIC], [2.0], rtol=1e-5)


def test_a_view_without_privilege_serves_where_demonstrations_have_no_other():
    given = expert()
    given = given._replace(obs={POLICY: given.obs[POLICY]}, next_obs={POLICY: given.next_obs[POLICY]})
    state = initialised(imitation(judge_inputs="state"), given)
    assert state.learner.judge.layers[0].weight.shape[0] == 2


def test_two_gaussians_are_told_apart_by_their_ratio():
    """log N(x; 1, 1) - log N(x; 0, 1) = x - 1/2."""
    algorithm = Adversarial(
        Spy(),
        judge_width=16,
        judge_rate=3e-3,
        judge_steps=1500,
        judge_batch=512,
        judge_penalty=0.0,
        judge_inputs="state",
    )
    real = 1.0 + jax.random.normal(jax.random.key(1), (20_000, 1))
    fake = jax.random.normal(jax.random.key(2), (20_000, 1))
    given = expert(20_000)._replace(obs={CRITIC: real}, next_obs={CRITIC: real})
    own = initialised(algorithm, given).learner
    draw = lambda key: jax.random.choice(key, real, (512,))  # noqa: E731
    judge, _ = jax.jit(lambda own, key: algorithm._teach(own, draw, fake, key))(own, jax.random.key(3))
    at = jnp.linspace(-1.5, 2.5, 9)[:, None]
    np.testing.assert_allclose(jax.vmap(judge)(at)[:, 0], at[:, 0] - 0.5, atol=0.25)


def test_the_discriminator_rests_between_its_turns():
    algorithm = imitation(judge_every=2)
    state = initialised(algorithm)
    one, _ = algorithm.update(state, batch(), expert(), jax.random.key(1))
    two, _ = algorithm.update(one, batch(), expert(), jax.random.key(2))
    same = lambda a, b: eqx.tree_equal(a.learner.judge, b.learner.judge)  # noqa: E731
    assert not same(state, one)
    assert same(one, two)


def test_the_past_is_a_ring():
    algorithm = imitation(judge_past=16)
    state = initialised(algorithm)
    assert state.learner.past.rows.shape == (16, 2)
    for number in range(9):
        state, _ = algorithm.update(state, batch(), expert(), jax.random.key(number))
    past: Past = state.learner.past
    assert int(past.written) == 18
    for number in range(9, 20):
        state, _ = algorithm.update(state, batch(), expert(), jax.random.key(number))
    assert int(state.learner.past.written) == 40 - 16  # it stays small, and stays full
    assert bool(jnp.all(jnp.any(past.rows != 0, axis=1)))  # rows of the policy everywhere


def test_actions_that_nobody_saw_are_refused():
    with pytest.raises(UserError, match="needs demonstrations with actions"):
        initialised(imitation(judge_inputs="action"), expert(action=False))
    initialised(imitation(judge_inputs="next"), expert(action=False))


@pytest.mark.parametrize(
    ("name", "label"),
    [
        *(("gail", label) for label in ("s2pg", "bptt-3")),
        *(pytest.param("gail", label, marks=pytest.mark.slow) for label in ("s2pg-3", "window-3", "oracle")),
        pytest.param("gail-trpo", "s2pg", marks=pytest.mark.slow),
    ],
)
def test_every_memory_rule_can_be_taught(name, label):
    env = toys.CONTINUOUS
    algorithm = toys.built(label, env, name, critic="critic", judge_inputs="action", judge_width=4, judge_batch=8)
    given = toys.scripted(env, 4)
    state, moved, metrics = toys.one_update(algorithm, env, given)
    assert all(np.isfinite(float(value)) for value in metrics.values())
    assert 0.0 <= float(metrics["judge_right_expert"]) <= 1.0
    assert not eqx.tree_equal(state.policy.kernel, moved.policy.kernel)


def test_statistics_of_the_policy_go_neither_with_the_past_nor_without_any():
    with pytest.raises(UserError, match="judge_past keeps rows as they were scaled"):
        imitation(judge_scale="policy", judge_past=8)
    with pytest.raises(UserError, match="needs statistics of the policy"):
        toys.built("none", toys.CONTINUOUS, "gail", judge_scale="policy", normalise_obs=False)
