"""PPO: its loss on numbers worked out by hand, what each term may move, and one update of everything there is."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s2pg.algorithms import PPO
from s2pg.algorithms.base import normalised
from s2pg.algorithms.onpolicy import Learning, Networks, batch_values, evaluations, future, trust
from s2pg.algorithms.onpolicy import values as segment_values
from s2pg.critics import Critic, state_value
from s2pg.distributions import Categorical, Normal
from s2pg.errors import UserError
from s2pg.heads import StateNoise, plain_state_head, quieter
from s2pg.kernel import Kernel, Step
from s2pg.memory import CarryRule, DrawRule, NoisyState, PathwiseRule
from s2pg.optimise import adam, step
from s2pg.types import Decision, Transition
from toys import CONTINUOUS, DISCRETE, LABELS, assert_close, built, largest, two_batches


class Stub(Kernel):
    """Ignores what it sees: the class probabilities and the next state are parameters."""

    logits: jax.Array
    eta: jax.Array
    log_std: jax.Array

    def initial(self):
        return jnp.zeros(2)

    def embed(self, obs):
        return obs

    def advance(self, x, z):
        return self.eta

    def emit(self, x, eta):
        head = PathwiseRule().state_head(plain_state_head)(2, 1, jax.random.key(0))
        return Step(Categorical(self.logits), head(eta, eta))


class Memoryless(Stub):
    def initial(self):
        return ()

    def emit(self, x, eta):
        return Step(Categorical(self.logits), ())


class LinearCritic(Critic):
    """V = slope . z + level."""

    slope: jax.Array
    level: jax.Array
    reads: tuple[str, ...] = ()

    def initial(self):
        return ()

    def advance(self, obs, h):
        return ()

    def __call__(self, obs, h, features, decision):
        return (self.slope @ features if features.shape[0] else 0.0) + self.level


def nothing(*_):
    raise AssertionError("the tests hand in networks of their own")


def ppo(memory, **hyper):
    return PPO(memory, nothing, nothing, ("policy",), lanes=3, steps=1, **hyper)


def rows(action, old_probability, terminated, advantage, target, z=(), state=(), next_z=()):
    """Three samples of one step each."""
    column = lambda x: jnp.asarray(x, jnp.float32)[:, None]  # noqa: E731
    obs, never = {"policy": jnp.zeros((3, 1, 1))}, jnp.zeros((3, 1), bool)
    transition = Transition(
        obs, z, Decision(jnp.asarray(action)[:, None], state), Decision(jnp.log(column(old_probability))),
        column([0, 0, 0]), jnp.asarray(terminated)[:, None], never, obs, next_z, never,
    )  # fmt: skip
    return Learning(transition, column(advantage), column(target), ())


VALID = jnp.array([[True], [True], [False]])


def test_the_loss_is_the_one_worked_out_by_hand_and_leaves_padding_out():
    algorithm = ppo(CarryRule(), clip=0.2, discount=0.5, entropy_action=0.1, pathwise_weight=0.3)
    networks = Networks(
        Memoryless(jnp.log(jnp.array([1.0, 3.0])), jnp.zeros(2), jnp.zeros(2)), LinearCritic(jnp.zeros(2), jnp.ones(()))
    )
    # Ratios (3/4)/(1/2) = 1.5 and (1/4)/(1/2) = 0.5; the third row is padding.
    piece = rows([1, 0, 0], [0.5, 0.5, 0.01], [True, False, False], [1.0, -1.0, 50.0], [3.0, 0.0, 90.0])
    loss, metrics = algorithm.loss(networks, piece, VALID, jnp.asarray(0.3 / 2.0))
    surrogate = (min(1.5, 1.2) + min(-0.5, -0.8)) / 2
    value = 0.5 * (2.0**2 + 1.0**2) / 2
    entropy = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    future = (0 + 0.5 * 1.0) / 2 / 2.0  # nothing after a termination; divided by std(A)
    np.testing.assert_allclose(metrics["policy_loss"], -surrogate, rtol=1e-5)
    np.testing.assert_allclose(metrics["value_loss"], value, rtol=1e-5)
    np.testing.assert_allclose(metrics["entropy"], entropy, rtol=1e-5)
    np.testing.assert_allclose(metrics["kl"], (0.5 - np.log(1.5) - 0.5 - np.log(0.5)) / 2, rtol=1e-5)
    np.testing.assert_allclose(metrics["clipped"], 1.0)
    np.testing.assert_allclose(loss, -surrogate + value - 0.1 * entropy - 0.3 * future, rtol=1e-5)


def test_a_clipped_ratio_stops_pushing_and_one_on_the_wrong_side_does_not():
    algorithm = ppo(CarryRule(), clip=0.2)
    logits = jnp.log(jnp.array([1.0, 3.0]))

    def push(action, old, advantage):
        def loss(x):
            networks = Networks(Memoryless(x, jnp.zeros(2), jnp.zeros(2)), LinearCritic(jnp.zeros(2), jnp.zeros(())))
            piece = rows([action] * 3, [old] * 3, [True] * 3, [advantage] * 3, [0.0] * 3)
            return algorithm.loss(networks, piece, VALID, jnp.ones(()))[0]

        return float(jax.grad(loss)(logits)[action])

    assert push(1, 0.5, 1.0) == 0  # ratio 1.5, already more likely
    assert push(0, 0.5, -1.0) == 0  # ratio 0.5, already less likely
    assert push(1, 0.5, -1.0) > 0  # ratio 1.5 but bad: downhill makes it less likely
    assert push(0, 0.5, 1.0) < 0  # ratio 0.5 but good: more likely


@pytest.mark.parametrize("apart", [False, True])
def test_clipped_apart_one_half_goes_on_pushing_where_the_other_has_gone_far_enough(apart):
    algorithm = ppo(DrawRule(), clip=0.2, clip_apart=apart)
    stored = jnp.broadcast_to(ETA + 0.3, (3, 1, 2))
    now = Normal(ETA, jnp.full(2, DrawRule().state_log_std)).log_prob(ETA + 0.3)

    def loss(eta):
        networks = Networks(Stub(jnp.zeros(2), eta, jnp.zeros(2)), LinearCritic(jnp.zeros(2), jnp.zeros(())))
        piece = rows([0, 1, 0], [1 / 3] * 3, [True] * 3, [1.0] * 3, [0.0] * 3, jnp.zeros((3, 1, 2)), stored, stored)
        # Ratios (1/2)/(1/3) = 1.5 of the action and 0.9 of z', 1.35 of both.
        log_prob = piece.transition.log_prob._replace(state=jnp.full((3, 1), now - jnp.log(0.9)))
        piece = piece._replace(transition=piece.transition._replace(log_prob=log_prob))
        return algorithm.loss(networks, piece, VALID, jnp.ones(()))

    pushed, metrics = jax.grad(loss, has_aux=True)(ETA)
    np.testing.assert_allclose(metrics["policy_loss"], -(1.2 + 0.9) if apart else -1.2, rtol=1e-5)
    np.testing.assert_allclose(metrics["clipped"], 0.5 if apart else 1.0)
    np.testing.assert_allclose(metrics["kl"], 1.35 - 1 - np.log(1.35), rtol=1e-4)
    # d log N / d eta = (z' - eta) / sigma^2, times the ratio of z'.
    expected = -0.9 * 0.3 * np.exp(-2 * DrawRule().state_log_std) if apart else 0.0
    np.testing.assert_allclose(pushed, [expected] * 2, rtol=1e-4)


# The pathwise half ---------------------------------------------------------------------------------------------------

ETA, OLD, SLOPE = jnp.array([0.4, -0.2]), jnp.array([0.1, -0.2]), jnp.array([2.0, -3.0])


def pathwise_gradient(memory=None, terminated=(True, False, False), **hyper):
    memory = memory or PathwiseRule()
    algorithm = ppo(memory, discount=0.5, **hyper)
    networks = Networks(Stub(jnp.zeros(2), ETA, jnp.zeros(2)), LinearCritic(SLOPE, jnp.ones(())))
    stored = jnp.broadcast_to(OLD, (3, 1, 2))
    drawn = NoisyState(stored, 0.3 * jnp.ones((3, 1, 2))) if isinstance(memory, PathwiseRule) else stored + 0.3
    piece = rows([0, 1, 0], [0.5] * 3, terminated, [0.0] * 3, [7.0] * 3, jnp.zeros((3, 1, 2)), drawn, stored + 0.3)
    if not isinstance(memory, PathwiseRule):
        log_prob = Decision(piece.transition.log_prob.action, jnp.full((3, 1), -1.0))
        piece = piece._replace(transition=piece.transition._replace(log_prob=log_prob), advantage=-jnp.ones((3, 1)))
    slope = jnp.asarray(algorithm.pathwise_weight / 4.0)  # of a critic that is trusted, advantages of deviation 4
    return jax.grad(lambda n: algorithm.loss(n, piece, VALID, slope)[0])(networks)


def test_the_pathwise_half_follows_the_critic_into_the_future():
    grads = pathwise_gradient(pathwise_weight=0.3, drift_cost=0.01)
    # One of the two valid rows has ended: half of w gamma dV/dz' / std(A); drift: kappa 2 (eta - eta_old) / sigma^2.
    future = 0.5 * 0.3 * 0.5 * np.asarray(SLOPE) / 4.0
    drift = 0.01 * 2 * np.asarray(ETA - OLD) / np.exp(-1.5) ** 2
    np.testing.assert_allclose(grads.kernel.eta, -future + drift, rtol=1e-5)


@pytest.mark.parametrize(
    ("advantage", "target", "trusted"),
    [
        ([1.0, -1.0, 1.0, -1.0], [2.0, -2.0, 2.0, -2.0], 0.75),  # variances 1 and 4
        ([1.0, -1.0, 1.0, -1.0], [1.0, -1.0, 1.0, -1.0], 0.0),  # V is a constant
        ([3.0, -3.0, 3.0, -3.0], [1.0, -1.0, 1.0, -1.0], 0.0),  # worse than that
        ([5.0, 5.0, 5.0, 5.0], [7.0, 1.0, 7.0, 1.0], 1.0),  # off by the same everywhere: its slope is right
        ([0.0] * 4, [0.0] * 4, 0.0),  # nothing to know
    ],
)
def test_a_critic_is_trusted_as_far_as_it_explains_its_targets(advantage, target, trusted):
    learning = Learning((), jnp.array([advantage]), jnp.array([target]), ())
    np.testing.assert_allclose(trust(learning), trusted, atol=1e-6)


@pytest.mark.parametrize("name", ["ppo", "trpo"])
def test_the_future_weighs_as_much_as_the_critic_knows(name):
    learning = Learning((), jnp.array([[2.0, -2.0]]), jnp.array([[4.0, -4.0]]), ())  # deviation 2, three quarters known
    slope = lambda **hyper: built("s2pg-2", DISCRETE, name, pathwise_weight=0.6, **hyper).slope(learning)  # noqa: E731
    np.testing.assert_allclose(slope(), 0.75 * 0.6 / 2, rtol=1e-6)
    np.testing.assert_allclose(slope(critic_trust=False), 0.6 / 2, rtol=1e-6)


def test_a_critic_that_knows_nothing_carries_no_gradient(monkeypatch):
    def moved(knows, weight):
        monkeypatch.setattr("s2pg.algorithms.onpolicy.trust", lambda learning: jnp.asarray(knows))
        without, with_it = (
            updated("s2pg-pathwise", DISCRETE, pathwise_weight=w)[1].policy.kernel for w in (0.0, weight)
        )
        return largest(jax.tree.map(jnp.subtract, with_it, without))

    # Another weight each time: what is compiled already would not ask again.
    assert moved(0.0, weight=1.0) == 0 and moved(1.0, weight=2.0) > 0


def test_a_critic_that_remembers_by_itself_is_not_asked_what_another_memory_would_be_worth():
    def moved(label):
        given = {"critic_trust": False}
        kernels = (updated(label, DISCRETE, pathwise_weight=w, **given)[1].policy.kernel for w in (0.0, 1.0))
        return largest(jax.tree.map(jnp.subtract, *kernels))

    assert moved("s2pg-3") == 0 and moved("s2pg-pathwise") > 0


def test_a_terminated_step_has_no_future():
    grads = pathwise_gradient(terminated=(True, True, False), pathwise_weight=0.3, drift_cost=0.0)
    np.testing.assert_array_equal(grads.kernel.eta, [0.0, 0.0])


def test_the_pathwise_half_teaches_the_critic_nothing():
    with_it, without = (pathwise_gradient(pathwise_weight=w).critic for w in (1.0, 0.0))
    assert largest(without) > 0
    assert_close(with_it, without, rtol=0)


def test_under_score_the_pathwise_half_adds_exactly_nothing():
    with_it, without = (pathwise_gradient(DrawRule(), pathwise_weight=w) for w in (1.0, 0.0))
    assert largest(without.kernel.eta) > 0
    assert_close(with_it, without, rtol=0)


def test_for_an_unrolled_network_too_the_pathwise_half_adds_exactly_nothing():
    assert_close(
        *(updated("bptt-3", DISCRETE, **given)[1].policy.kernel for given in ({}, {"pathwise_weight": 1.0})), rtol=0
    )


# The update ----------------------------------------------------------------------------------------------------------

QUICK = {"epochs": 2, "minibatches": 2}


@functools.cache
def batches(label, env, critic=None):
    return two_batches(built(label, env, critic=critic), env)


@functools.cache
def updated(label, env, **hyper):
    """(state before, state after, metrics) of one update on the second batch."""
    algorithm = built(label, env, **QUICK | hyper)
    state, _, batch = batches(label, env)
    return state, *jax.jit(algorithm.update)(state, batch, (), jax.random.key(1))


def networks_of(state):
    return Networks(state.policy.kernel, state.learner.critic)


@jax.jit
def values_of(state, batch):
    """(V of the batch with the critic's memory, V of what follows) of a raw batch."""
    batch = normalised(state.policy.normaliser, batch)
    return batch_values(networks_of(state), state.learner.critic_memory, batch)


def learnings(state, batch, advantages):
    values, _ = values_of(state, batch)
    batch = normalised(state.policy.normaliser, batch)
    return [Learning(batch, each, values.value, values.h) for each in advantages]


def test_a_kl_stop_freezes_networks_and_optimiser_of_its_own_seed_alone():
    algorithm = built("s2pg", epochs=3, minibatches=2, kl_stop=1e-4, learning_rate=1e-2, entropy_action=0.0)
    state, _, batch = batches("s2pg", DISCRETE)
    # Without advantages the first seed's policy has no reason to move and never stops; the second one's does at once.
    shape = batch.reward.shape
    learning = learnings(state, batch, [jnp.zeros(shape), jax.random.normal(jax.random.key(0), shape)])
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), *learning)
    run = jax.jit(jax.vmap(algorithm.learn, (None, None, 0, None, None)))
    networks, optimiser, metrics = run(
        networks_of(state), state.learner.optimiser, both, state.updates, jax.random.key(2)
    )
    steps = np.asarray(optimiser[0][1][0].count)
    np.testing.assert_array_equal(steps, [6, 1])
    np.testing.assert_allclose(metrics["stopped"], [0, 5 / 6], rtol=1e-6)
    assert largest(jax.tree.map(lambda new, old: new[0] - old, networks.kernel, state.policy.kernel)) == 0
    # What it keeps is what a single minibatch makes of it: Adam's first step is at most the learning rate.
    moved = largest(jax.tree.map(lambda new, old: new[1] - old, networks.kernel, state.policy.kernel))
    assert 0 < moved < 1.01e-2


def test_without_a_kl_stop_every_minibatch_counts():
    _, after, metrics = updated("s2pg", DISCRETE)
    assert [int(part[1][0].count) for part in after.learner.optimiser] == [4, 4]
    assert float(metrics["stopped"]) == 0


def test_the_learning_rate_falls_to_nothing_over_the_updates_asked_for():
    optimiser = adam(0.1, max_norm=10.0, anneal_steps=4)
    network = {"w": jnp.zeros(1)}
    state, sizes = optimiser.init(network), []
    for _ in range(6):
        before = network
        network, state = step(optimiser, {"w": jnp.ones(1)}, state, network)
        sizes.append(float(before["w"][0] - network["w"][0]))
    np.testing.assert_allclose(sizes, [0.1, 0.075, 0.05, 0.025, 0.0, 0.0], atol=1e-5)


def test_the_noise_of_the_state_falls_with_the_learning_rate_and_then_stays():
    algorithm = built("s2pg-pathwise", **QUICK, anneal_updates=2, state_noise_fall=1.0)
    state, _, batch = two_batches(algorithm, DISCRETE)
    update, heads = jax.jit(algorithm.update), [state.policy.kernel.state_head]
    for _ in range(3):
        state, _ = update(state, batch, (), jax.random.key(0))
        heads.append(state.policy.kernel.state_head)
    for head, fall in zip(heads, (0.0, 0.5, 1.0, 1.0), strict=True):
        np.testing.assert_allclose(head.log_std, heads[0].log_std - fall, rtol=1e-6)


def test_noise_that_is_learned_does_not_fall_by_itself():
    fixed, learned = (StateNoise(jnp.zeros(2), learned) for learned in (False, True))
    fixed, learned = quieter((fixed, learned), jnp.asarray(0.5))
    np.testing.assert_allclose((fixed.log_std, learned.log_std), [[-0.5] * 2, [0.0] * 2])


def test_noise_cannot_fall_over_no_updates():
    with pytest.raises(UserError, match="the noise falls over anneal_updates, which is 0"):
        built("s2pg-2", state_noise_fall=1.0)


def test_annealing_counts_the_steps_an_update_really_makes():
    algorithm = built("s2pg", epochs=2, minibatches=1000, anneal_updates=1)  # of 40 samples
    state, _, batch = batches("s2pg", DISCRETE)
    fresh = algorithm.init(DISCRETE.spec, (), key=jax.random.key(0))
    state = state._replace(learner=state.learner._replace(optimiser=fresh.learner.optimiser), updates=fresh.updates)
    update = jax.jit(algorithm.update)
    once, _ = update(state, batch, (), jax.random.key(1))
    twice, _ = update(once, batch, (), jax.random.key(2))
    assert largest(jax.tree.map(jnp.subtract, once.policy.kernel, state.policy.kernel)) > 0
    assert_close(twice.policy.kernel, once.policy.kernel, rtol=0)
    # The statistics come to rest with the networks, which could not follow them any more.
    assert largest(jax.tree.map(jnp.subtract, once.policy.normaliser, state.policy.normaliser)) > 0
    assert_close(twice.policy.normaliser, once.policy.normaliser, rtol=0)


@pytest.mark.parametrize("env", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
def test_an_entropy_bonus_raises_entropy(env):
    algorithm = built("none", env, epochs=20, minibatches=1, entropy_action=0.1, learning_rate=1e-2)
    state, _, batch = batches("none", env)
    # Without advantages nothing else moves the policy.
    (learning,) = learnings(state, batch, [jnp.zeros(batch.reward.shape)])
    learn = jax.jit(algorithm.learn)
    networks, *_ = learn(networks_of(state), state.learner.optimiser, learning, state.updates, jax.random.key(0))

    @jax.jit
    def entropy(kernel):
        each = jax.vmap(jax.vmap(lambda obs: kernel(obs, ()).action.entropy()))
        return each(learning.transition.obs["policy"]).mean()

    assert float(entropy(networks.kernel)) > float(entropy(state.policy.kernel)) + 0.01


@pytest.mark.parametrize(("label", "critic"), [("s2pg", None), ("bptt-3", None), ("none", "critic")])
def test_the_value_loss_falls(label, critic):
    algorithm = built(label, critic=critic, epochs=1, minibatches=1, learning_rate=3e-3)
    state, _, batch = batches(label, DISCRETE, critic)

    def body(state, key):
        after, metrics = algorithm.update(state, batch, (), key)
        # Same data, same statistics, same memory at its start: the critic alone learns.
        learner = after.learner._replace(critic_memory=state.learner.critic_memory)
        return state._replace(learner=learner), metrics["value_loss"]

    _, losses = jax.jit(lambda: jax.lax.scan(body, state, jax.random.split(jax.random.key(0), 60)))()
    assert losses[-1] < 0.7 * losses[0]


def test_a_recurrent_critic_sees_what_it_would_see_step_by_step_over_batches():
    state, one, two = batches("bptt-3", DISCRETE)
    critic, lanes = state.learner.critic, one.reward.shape[1]
    got, got_next = [], []
    for batch in (one, two):
        values, ahead = values_of(state, batch)
        state = state._replace(learner=state.learner._replace(critic_memory=values.next_h[-1]))
        got.append(values.value)
        got_next.append(ahead)
    expected, expected_next, h = [], [], jnp.zeros((lanes, critic.initial().shape[0]))
    features = state.policy.kernel.features
    call = jax.jit(jax.vmap(lambda obs, z, h: state_value(critic, obs, features(z), h)))
    for batch, t in itertools.product((one, two), range(one.reward.shape[0])):
        row = jax.tree.map(lambda leaf, t=t: leaf[t], normalised(state.policy.normaliser, batch))
        value, h = call(row.obs, row.z, jnp.where(row.first[:, None], 0.0, h))
        expected.append(value)
        expected_next.append(call(row.next_obs, row.next_z, h)[0])
    np.testing.assert_allclose(np.concatenate(got), expected, atol=1e-5)
    np.testing.assert_allclose(np.concatenate(got_next), expected_next, atol=1e-5)


@pytest.mark.parametrize("env", [DISCRETE, CONTINUOUS], ids=["bit", "real"])
def test_what_follows_a_segment_is_valued_as_the_advantages_were(env):
    algorithm, (state, _, raw) = built("s2pg-3", env), batches("s2pg-3", env)
    networks, batch = networks_of(state), normalised(state.policy.normaliser, raw)
    found, next_value = batch_values(networks, state.learner.critic_memory, batch)
    assert jax.tree.leaves(found.h) and (batch.terminated | batch.truncated)[:-1].any()
    time, lane, valid = map(jnp.asarray, algorithm.memory.segments(*batch.reward.shape))
    whole = Learning(batch, found.value, found.value, found.h)
    piece = jax.tree.map(lambda leaf: leaf[time, lane], whole)
    now = evaluations(algorithm.memory, networks.kernel, piece.transition, algorithm.reads, valid)
    again = segment_values(networks, now.z, piece, valid)
    np.testing.assert_allclose(again.value[valid], found.value[time, lane][valid], atol=1e-5)
    ahead = future(networks, now.next_z, again.next_h, piece.transition, discount=0.5)
    expected = 0.5 * jnp.where(batch.terminated, 0.0, next_value)[time, lane]
    np.testing.assert_allclose(ahead[valid], expected[valid], atol=1e-5)


def test_an_update_hands_the_critics_memory_on_and_merges_statistics_after_learning():
    state, after, _ = updated("bptt-3", DISCRETE)
    _, _, batch = batches("bptt-3", DISCRETE)
    values, _ = values_of(state, batch)
    np.testing.assert_allclose(after.learner.critic_memory, values.next_h[-1], atol=1e-5)
    before, merged = (each.policy.normaliser["policy"].number for each in (state, after))
    assert float(merged) == float(before) + batch.reward.size


NAMED = lambda part: part if isinstance(part, str) else part.cue  # noqa: E731
# A segment as long as the batch runs through the same lines as a shorter one, the oracle through those of `none`.
MOVED = [*((label, DISCRETE) for label in LABELS if label not in ("bptt-8", "oracle")), ("s2pg", CONTINUOUS)]


@pytest.mark.parametrize(("label", "env"), MOVED, ids=NAMED)
def test_one_update_of_ppo_moves_both_networks(label, env):
    state, after, metrics = updated(label, env)
    for new, old in zip(networks_of(after), networks_of(state), strict=True):
        assert largest(jax.tree.map(jnp.subtract, new, old)) > 0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after, metrics)))


CASES = [
    *(("reinforce", label, DISCRETE) for label in ("s2pg", "bptt-3-last", "none")),
    *(("gpomdp", label, DISCRETE) for label in ("s2pg", "bptt-3")),
    ("gpomdp", "s2pg", CONTINUOUS),
]


@pytest.mark.parametrize(("name", "label", "env"), CASES, ids=NAMED)
def test_one_update_of_an_episodic_algorithm_moves_the_kernel(name, label, env):
    algorithm = built(label, env, algorithm=name)
    state, _, batch = batches(label, env)
    state = state._replace(learner=algorithm.optimiser.init(state.policy.kernel))
    after, metrics = jax.jit(algorithm.update)(state, batch, (), jax.random.key(1))
    assert largest(jax.tree.map(jnp.subtract, after.policy.kernel, state.policy.kernel)) > 0
    assert int(after.updates) == int(state.updates) + 1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after, metrics)))
