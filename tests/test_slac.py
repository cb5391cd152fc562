"""SLAC: the model's lower bound on numbers and against an exact likelihood, episodes' borders, who sees what, runs."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import multivariate_normal

import s2pg
import test_resume as runs
import toys
from s2pg import replay
from s2pg.algorithms.latents import Gated, LatentModel, Segment, Sizes
from s2pg.algorithms.offpolicy import in_turns
from s2pg.algorithms.slac import LATENTS, SLAC, model_loss
from s2pg.cli import main
from s2pg.distributions import Normal
from s2pg.errors import UserError
from s2pg.loops import DeviceLoop
from s2pg.types import Decision, Transition

ENV = toys.CONTINUOUS  # recall of a number over 3 steps
MODEL = {"first_latents": 2, "second_latents": 3, "model_width": 8, "model_batch": 4, "pretraining": 3}
SMALL = {
    "size": 4,
    "width": 8,
    "lanes": 4,
    "steps": 1,
    "batch_size": 8,
    "learning_starts": 40,
    "capacity": 200,
    "anneal_updates": 0,
} | MODEL


def built(env=ENV, memory="window-3", **hyper) -> SLAC:
    algorithm = toys.resolve("slac", env, memory=memory, hyper=SMALL | hyper)[1]
    assert isinstance(algorithm, SLAC)
    return algorithm


def raw(std, level=1.0, least=1e-3):
    """The number from which a network makes this deviation."""
    return math.log(math.expm1((std - least) / level))


# The model on numbers ------------------------------------------------------------------------------------------------


def linear(key=0, obs=1, action=1, first=1, second=1, least_std=0.01, scale=0.0):
    """A model without hidden layers, all weights and biases normal with this scale."""
    model = LatentModel(Sizes(obs, action, first, second, ()), least_std, key=jax.random.key(key))
    flat, unflatten = jax.flatten_util.ravel_pytree(model)
    return unflatten(scale * jax.random.normal(jax.random.key(key + 1), flat.shape))


def with_bias(model, where, numbers):
    return eqx.tree_at(lambda m: where(m).body.layers[-1].bias, model, jnp.asarray(numbers, float))


def constant():
    """z1 ~ N(0, 1) and q = N(0.5, 0.5), x ~ N(0.2, 0.5), r ~ N(1, 2), whatever happens."""
    model = linear()
    model = with_bias(model, lambda m: m.first_prior, [0.0, raw(1.0)])
    model = with_bias(model, lambda m: m.first_posterior, [0.5, raw(0.5)])
    model = with_bias(model, lambda m: m.obs, [0.2])
    model = with_bias(model, lambda m: m.reward, [1.0])
    raws = [jnp.array([raw(std, least=0.01)]) for std in (0.5, 2.0)]
    return eqx.tree_at(lambda m: (m.obs.raw, m.reward.raw), model, raws)


def three_rows(padding=(0.0, 0.0, 0.0)):
    """A row of padding, then two rows of an episode: x = 0.2, 0.7, -0.8 and r = 1, 3."""
    obs, action, reward = padding
    return Segment(
        jnp.array([[obs], [0.2], [0.7], [-0.8]]), jnp.array([[action], [0.3], [-0.4]]), jnp.array([reward, 1.0, 3.0]),
        jnp.array([False, True, True]),
    )  # fmt: skip


def test_the_divergence_of_two_normals_by_hand():
    one, other = Normal(jnp.array([0.5, 1.0]), jnp.log(jnp.array([0.5, 2.0]))), Normal(jnp.zeros(2), jnp.zeros(2))
    # log(1 / 0.5) + (0.25 + 0.25) / 2 - 1/2, and log(1 / 2) + (4 + 1) / 2 - 1/2.
    assert float(one.kl(other)) == pytest.approx((math.log(2) - 0.25) + (2.0 - math.log(2)), rel=1e-5)


def test_the_bound_by_hand():
    bound = constant().bound(three_rows(), jax.random.key(0))
    level = 0.5 * math.log(2 * math.pi)
    # Three observations 0, 1 and 2 deviations off; two rewards 0 and 1 off.
    assert float(bound.obs) == pytest.approx(-(0.0 + 1.0 + 4.0) / 2 - 3 * (math.log(0.5) + level), rel=1e-4)
    assert float(bound.reward) == pytest.approx(-(0.0 + 1.0) / 2 - 2 * (math.log(2.0) + level), rel=1e-4)
    assert float(bound.divergence) == pytest.approx(3 * (math.log(2) - 0.25), rel=1e-4)
    assert float(bound.number) == 3.0
    assert float(bound.total) == pytest.approx(float(bound.obs + bound.reward - bound.divergence))


def test_the_loss_is_less_the_bound_for_each_observation():
    segments = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), three_rows())
    full = segments._replace(valid=segments.valid.at[1, 0].set(True))  # 3 observations and 4
    loss, told = model_loss(constant(), full, jax.random.key(0))
    bounds = [
        float(constant().bound(jax.tree.map(lambda leaf, i=i: leaf[i], full), jax.random.key(0)).total) for i in (0, 1)
    ]
    assert float(loss) == pytest.approx(-sum(bounds) / 7, rel=1e-5)
    assert float(told["divergence"]) == pytest.approx(math.log(2) - 0.25, rel=1e-4)


def test_gates_mix_what_was_and_what_is_new_by_hand():
    gated = Gated(1, 2, (), key=jax.random.key(0), level=0.1)
    layer = gated.body.layers[0]
    bias = jnp.array([math.log(3.0), math.log(3.0) - 3.0, 0.5, -0.5, raw(0.2, 0.1), raw(0.05, 0.1)])
    gated = eqx.tree_at(
        lambda g: g.body.layers[0], gated, eqx.tree_at(lambda x: (x.weight, x.bias), layer, (jnp.zeros((1, 6)), bias))
    )
    found = gated(jnp.array([2.0, -1.0]), jnp.ones(1))  # gates of 3/4: the units start with gates of 0 and 3 in front
    mean = [0.75 * 2.0 + 0.25 * math.tanh(0.5), -0.75 + 0.25 * math.tanh(-0.5)]
    np.testing.assert_allclose(found.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(jnp.exp(found.log_std), [0.2, 0.05], rtol=1e-4)


# Against an exact likelihood -----------------------------------------------------------------------------------------


def toy(second_std, reward_of_first):
    """A linear model: z2 halves at every step but for its noise, and its own start is 2; posteriors are arbitrary."""
    model = linear(key=3, first=2, second=1, scale=0.5)
    gated = model.second.body.layers[0]
    quiet = eqx.tree_at(
        lambda x: (x.weight, x.bias), gated, (0.0 * gated.weight, jnp.array([0.0, 0.0, raw(second_std, 0.1)]))
    )
    model = eqx.tree_at(lambda m: (m.second.body.layers[0], m.start), model, (quiet, jnp.array([2.0])))

    def steady(which, std):
        """Weights of a mean, and a deviation that depends on nothing."""
        nonlocal model
        layer = which(model).body.layers[0]
        size = layer.bias.shape[0] // 2
        moved = layer.weight.at[:, size:].set(0.0), layer.bias.at[size:].set(raw(std))
        model = eqx.tree_at(lambda m: (which(m).body.layers[0].weight, which(m).body.layers[0].bias), model, moved)

    steady(lambda m: m.first_prior, 0.8)
    steady(lambda m: m.first_posterior, 0.7)
    # Inputs of the reward: (z1, z2), a, (z1', z2').
    kept = jnp.asarray([reward_of_first] * 2 + [1.0, 1.0] + [reward_of_first] * 2 + [1.0])[:, None]
    weight = model.reward.body.layers[0].weight * kept
    return eqx.tree_at(lambda m: m.reward.body.layers[0].weight, model, weight)


ACTIONS = jnp.array([[0.5], [-1.0]])


def generated(model, noise):
    """(x_1, x_2, x_3, r_1, r_2) as the model makes them from standard normal noise, written out step by step."""
    noise = iter(noise)

    def drawn(normal):
        return normal.mean + jnp.exp(normal.log_std) * jnp.stack([next(noise) for _ in normal.mean])

    z, obs, second, action = [], [], model.start, jnp.zeros(1)
    for t in range(3):
        context = jnp.concatenate([second, action])
        first = drawn(model.first_prior(context))
        second = drawn(model.second(second, first, context))
        z.append(jnp.concatenate([first, second]))
        obs.append(drawn(model.obs(z[-1])))
        action = ACTIONS[min(t, 1)]
    rewards = [drawn(model.reward(z[t], ACTIONS[t], z[t + 1])) for t in range(2)]
    return jnp.concatenate([*obs, *rewards])


SIZE = 3 * (2 + 1 + 1) + 2  # z1, z2 and x of three steps, and two rewards


def likelihood(model):
    """The exact distribution of what the linear model makes: its mean, and A A^T for the map A from noise."""
    mean = generated(model, jnp.zeros(SIZE))
    slope = np.asarray(jax.jacobian(lambda noise: generated(model, noise))(jnp.zeros(SIZE)), np.float64)
    return multivariate_normal(np.asarray(mean, np.float64), slope @ slope.T)


def segments_of(model, number, seed=0):
    made = jax.vmap(lambda noise: generated(model, noise))(jax.random.normal(jax.random.key(seed), (number, SIZE)))
    every = lambda leaf: jnp.broadcast_to(leaf, (number, *leaf.shape))  # noqa: E731
    return made, Segment(made[:, :3, None], every(ACTIONS), made[:, 3:], every(jnp.ones(2, bool)))


def mean_bounds(model, segments, draws=200):
    """E_q of the bound of each segment."""
    one = jax.vmap(lambda segment, key: model.bound(segment, key).total, (None, 0))
    keys = jax.random.split(jax.random.key(9), draws)
    return jnp.mean(jax.jit(jax.vmap(one, (0, None)))(segments, keys), axis=1)


def test_the_bound_is_below_the_exact_likelihood_of_every_segment():
    model = toy(second_std=0.3, reward_of_first=1.0)
    made, segments = segments_of(model, 40)
    exact = likelihood(model).logpdf(np.asarray(made))
    assert np.all(np.asarray(mean_bounds(model, segments)) < exact - 0.1)


def test_the_bound_closes_when_the_posterior_has_learned():
    """Where z2 has no noise to speak of and rewards tell nothing of z1, the model can have the true posterior."""
    model = toy(second_std=2e-3, reward_of_first=0.0)
    made, segments = segments_of(model, 256)
    exact = likelihood(model).logpdf(np.asarray(made)).mean()
    before = float(jnp.mean(mean_bounds(model, segments, 20)))
    optimiser = optax.adam(optax.linear_schedule(0.03, 0.0, 1500))

    def loss(posterior, key):
        return model_loss(eqx.tree_at(lambda m: m.first_posterior, model, posterior), segments, key)[0]

    def learn(carry, key):
        posterior, state = carry
        moves, state = optimiser.update(jax.grad(loss)(posterior, key), state)
        return (optax.apply_updates(posterior, moves), state), None

    start = (model.first_posterior, optimiser.init(model.first_posterior))
    keys = jax.random.split(jax.random.key(2), 1500)
    posterior = jax.jit(lambda: jax.lax.scan(learn, start, keys)[0][0])()
    after = float(jnp.mean(mean_bounds(eqx.tree_at(lambda m: m.first_posterior, model, posterior), segments, 20)))
    assert before < exact - 0.5
    assert after == pytest.approx(exact, abs=0.05)


# Borders of episodes -------------------------------------------------------------------------------------------------


def test_padding_counts_nothing_and_moves_nothing():
    model = linear(key=5, first=2, second=3, scale=0.5)
    value = jax.value_and_grad(lambda model, segment: model.bound(segment, jax.random.key(1)).total)
    quiet, loud = (value(model, three_rows(padding)) for padding in ((0.0, 0.0, 0.0), (50.0, -7.0, 90.0)))
    toys.assert_close(quiet, loud, rtol=1e-6)
    z, other = (model.infer(three_rows(p), jax.random.key(1)).latents for p in ((0.0, 0.0, 0.0), (50.0, -7.0, 90.0)))
    np.testing.assert_array_equal(z[1:], other[1:])
    # Without the border it would count: the same rows as the inside of an episode.
    inside = three_rows((50.0, -7.0, 90.0))._replace(valid=jnp.ones(3, bool))
    assert np.abs(model.infer(inside, jax.random.key(1)).latents[1:] - other[1:]).min() > 1e-4


def test_no_segment_of_the_buffer_crosses_an_episode():
    """Episodes of 2, 4 and 3 rows; every number tells which episode it is of, that after the last row included."""
    algorithm = built(learning_starts=8, lanes=1)
    lengths, number = (2, 4, 3), jnp.repeat(jnp.arange(1.0, 4.0), jnp.array([2, 4, 3]))
    first = np.concatenate([[True] + [False] * (n - 1) for n in lengths])
    column = number[:, None, None]
    obs, after = ({"policy": jnp.concatenate([column, column], axis=-1)} for _ in range(2))
    nothing = jnp.zeros((9, 1))
    batch = Transition(
        obs, (), Decision(column / 10), Decision(nothing), column[..., 0], nothing > 1, nothing > 1, after, (),
        jnp.asarray(first)[:, None],
    )  # fmt: skip
    state = algorithm.init(ENV.spec, (), key=jax.random.key(0))
    stored = replay.add(state.replay, batch, ())
    found, given = jax.jit(algorithm.inner.sample_batch)(stored, state.policy, jax.random.key(1))
    segments = algorithm.segments(found, given)
    seen = np.append(segments.valid, np.ones((len(segments.valid), 1), bool), axis=1)
    for obs, action, reward, valid, known in zip(*map(np.asarray, segments), seen, strict=True):
        episode = obs[-1, 0]
        assert np.all(obs[known] == episode) and np.all(reward[valid] == episode)
        np.testing.assert_allclose(action[valid], episode / 10)
    assert not np.all(segments.valid) and np.any(np.all(segments.valid, axis=1))


# Who sees what, and who teaches whom ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained():
    """(algorithm, state) with some experience."""
    algorithm = built()
    state, *_ = toys.one_update(algorithm, ENV, ())
    return algorithm, state


def test_the_actor_reads_the_window_with_actions_and_no_latents():
    pendulum = s2pg.make("masked-pendulum")  # which shows the previous action
    algorithm = built(pendulum, "window-5")
    assert algorithm.inner.reads == ("policy", "previous_action") and algorithm.observed == ("policy",)
    policy = algorithm.init_policy(pendulum.spec, key=jax.random.key(0))
    sizes = pendulum.spec.views
    assert policy.kernel.initial().shape == (5, sizes["policy"] + sizes["previous_action"] + 1)
    # A policy of SAC with the same window is the same thing: there is no model in it.
    sac = toys.resolve(
        "sac", ENV, memory="window-3", hyper={name: SMALL[name] for name in SMALL.keys() - MODEL.keys()}
    )[1]
    assert jax.tree.structure(sac.init_policy(ENV.spec, key=jax.random.key(0))) == jax.tree.structure(
        built().init_policy(ENV.spec, key=jax.random.key(0))
    )


def test_critics_read_latents_alone_and_the_present_ones_know_nothing_of_the_future(trained):
    algorithm, state = trained
    assert algorithm.inner.critic.reads == (LATENTS,)
    assert state.learner.critic.body.layers[0].weight.shape[1] == 2 + 3 + 1  # of both critics: z1, z2 and a
    found, batch = algorithm.inner.sample_batch(state.replay, state.policy, jax.random.key(1))
    seen = algorithm.with_latents(state.learner.model, found, batch, jax.random.key(2))
    assert seen.obs.keys() == seen.next_obs.keys() == {LATENTS} and not seen.history
    later = jax.tree.map(lambda leaf: leaf.at[:, -1].add(1.0), batch.history)
    moved = algorithm.with_latents(state.learner.model, found, batch._replace(history=later), jax.random.key(2))
    np.testing.assert_array_equal(seen.obs[LATENTS], moved.obs[LATENTS])
    assert np.abs(seen.next_obs[LATENTS] - moved.next_obs[LATENTS])[..., :2].min() > 0


def test_critics_and_actor_teach_the_model_nothing(trained):
    algorithm, state = trained
    learn = jax.jit(algorithm.learn)
    critic = toys.shaken(state.learner.critic, jax.random.key(5))
    other = state._replace(learner=state.learner._replace(inner=state.learner.inner._replace(critic=critic)))
    (one, told), (two, others) = (learn(each, jax.random.key(6)) for each in (state, other))
    assert told["critic_loss"] != others["critic_loss"]
    assert eqx.tree_equal(one.learner.model, two.learner.model)
    assert not eqx.tree_equal(one.learner.model, state.learner.model)
    assert not eqx.tree_equal(one.learner.critic, state.learner.critic)
    assert not eqx.tree_equal(one.policy.kernel, state.policy.kernel)


@pytest.mark.parametrize("pretraining", [0, 3])
def test_the_model_learns_before_all_else_and_once(pretraining):
    algorithm = built(pretraining=pretraining, gradient_steps=2)
    state, moved, _ = toys.one_update(algorithm, ENV, ())

    def steps(state):
        return int(optax.tree.get(state.learner.optimiser, "count"))

    assert (steps(state), steps(moved)) == (0, pretraining + 2)
    assert int(moved.updates) == 2
    ahead, _ = jax.jit(
        lambda state: in_turns(algorithm.learn, algorithm.pretrain(state, jax.random.key(1)), 2, jax.random.key(2))
    )(moved)
    assert steps(ahead) == pretraining + 4
    early = jax.jit(algorithm.pretrain)(state, jax.random.key(3))
    assert eqx.tree_equal(early._replace(learner=early.learner.inner), state._replace(learner=state.learner.inner))
    assert eqx.tree_equal(early.learner.model, state.learner.model) == (pretraining == 0)


# Runs ----------------------------------------------------------------------------------------------------------------

ON_DEVICE = {
    "algorithm": "slac", "env": ("recall", {"k": 3, "cue": "real"}), "hyper": SMALL | {"steps": 4},
    "memory": "window-3", "steps": 40 + 16 * 6, "seeds": [0, 3], "episodes": 4,
}  # fmt: skip
ON_HOST = ON_DEVICE | {"env": ("gym:Pendulum-v1", {"horizon": 50}), "seeds": [5], "episodes": 2}


@pytest.mark.parametrize("setting", [ON_DEVICE, ON_HOST], ids=["device", "host"])
def test_a_resumed_run_equals_an_undisturbed_one_bit_for_bit(setting, tmp_path):
    """Both ways through the first update, in which the model is pretrained, and on from there."""
    whole = runs.train(tmp_path / "whole", setting, borders=3)
    runs.train(tmp_path / "run", setting, steps=40 + 16 * 2, borders=1)
    resumed = runs.train(tmp_path / "run", setting, borders=3, resume=True)
    runs.assert_same(whole, resumed)


@pytest.mark.slow
def test_a_seed_learns_alone_what_it_learns_beside_others(tmp_path):
    both = runs.train(tmp_path / "both", ON_DEVICE, borders=1)
    alone = runs.train(tmp_path / "alone", ON_DEVICE, seeds=[3], borders=1)
    found = [next(row for row in run.metrics if row["seed"] == 3) for run in (both, alone)]
    for name in ("model_loss", "divergence", "critic_loss", "actor_loss"):
        assert found[0][name] == pytest.approx(found[1][name], rel=1e-3)


def test_nothing_is_compiled_anew_after_the_first_chunk():
    made = DeviceLoop(built(), ENV, seeds=(0,), chunk=2, episodes=2)
    loop = made.warm_up(made.init())
    for _ in range(3):
        loop, _ = made.advance(loop)
    assert made._advance._cache_size() == 1


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([], "slac acts on a window of observations: use 'window-8' or the like, not 's2pg'"),
        (["--memory", "bptt-8"], "not 'bptt-8'"),
        (["--memory", "none"], "not 'none'"),
        (["--memory", "window-9"], "a window is longer than an episode, which has 8 steps"),
        (["--memory", "window-8", "--critic", "critic"], "critics that read its own latents: use --critic policy"),
        (["--memory", "window-8", "--hyper", "first_latents=0"], "'first_latents' must be 1 or more"),
        (["--memory", "window-8", "--hyper", "least_std=0"], "'least_std' must be above 0"),
        (["--memory", "window-8", "--hyper", "pretraining=-1"], "'pretraining' must be 0 or more"),
    ],
)  # fmt: skip
def test_mistakes_get_one_line(args, told, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "slac", "--task", "recall", "--set", "cue=real", *args]) == 2
    err = capsys.readouterr().err
    assert told in err and len(err.strip().splitlines()) == 1 and not list(tmp_path.iterdir())


def test_discrete_actions_are_refused():
    with pytest.raises(UserError, match="slac needs continuous actions"):
        toys.resolve("slac", toys.DISCRETE, memory="window-3", hyper={})
