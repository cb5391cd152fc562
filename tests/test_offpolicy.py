"""Off-policy algorithms under every memory rule: one update of everything there is, who acts, and what is refused."""

import dataclasses
import functools
from types import FunctionType

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from s2pg.actor import Actor
from s2pg.algorithms import sac as sac_file
from s2pg.algorithms import td3 as td3_file
from s2pg.algorithms.base import Policy, TrainState
from s2pg.algorithms.offpolicy import judged, regression, unfold
from s2pg.algorithms.td3 import Networks
from s2pg.config import build, hyper, labels
from s2pg.critics import Critic
from s2pg.envs.recall import Recall
from s2pg.errors import UserError
from s2pg.loops.base import settled, warmup_actor
from s2pg.memory import UnrollRule
from s2pg.normalise import initial as no_statistics
from s2pg.normalise import merge
from s2pg.optimise import adam, step
from s2pg.rollout import collect, start
from s2pg.types import Decision, Spec, Transition
from test_sac import KEYS, Recomputed, kernel, quick, sac, two_segments
from test_td3 import td3
from toys import assert_close, largest, resolve, scripted, shaken, with_kernel

ENV = Recall(k=8, cue="real")
HYPER = {"lanes": 4, "steps": 2, "width": 16, "size": 8, "batch_size": 16, "capacity": 1000, "learning_starts": 100}
RATES = {"learning_rate": 1e-2, "target_rate": 0.25}
OWN = {
    "sac": {"alpha_learning_rate": 1e-2, "alpha_state_learning_rate": 1e-3},
    "td3": {"policy_delay": 1, "gradient_steps": 1},
    "ddpg": {},
    "lsiq": {},
}


def built(name, label, critic=None, **more):
    return resolve(name, ENV, memory=label, critic=critic, hyper=HYPER | RATES | OWN[name] | more)[1]


@functools.cache
def experience():
    """A warm-up and two steps more, as they might come from the environment, in random numbers: every weight then has
    something to learn from any batch. Episodes have eight steps."""
    rng, (steps, lanes) = np.random.default_rng(0), (27, 4)

    def numbers(*shape):
        return jnp.asarray(rng.uniform(-0.9, 0.9, (steps, lanes, *shape)), jnp.float32)

    seen, after = ({name: numbers(size) for name, size in ENV.spec.views.items()} for _ in range(2))
    step = jnp.broadcast_to(jnp.arange(steps)[:, None], (steps, lanes))
    return Transition(
        obs=seen, z=(), decision=Decision(numbers(1)), log_prob=Decision(numbers()), reward=numbers(),
        terminated=step % 8 == 7, truncated=step < 0, next_obs=after, next_z=(), first=step % 8 == 0,
    )  # fmt: skip


def ready(algorithm, seed=0):
    """(training state with a warm-up stored, fresh batch); internal states are noise."""

    batch, (init_key, *keys) = experience(), jax.random.split(jax.random.key(seed), 3)
    state = settled(algorithm.init(ENV.spec, (), key=init_key))  # not compiled as a whole: algorithms share its pieces
    draw = lambda leaf, key: jax.random.uniform(key, (*batch.reward.shape, *leaf.shape), minval=-0.9, maxval=0.9)  # noqa: E731
    z, next_z = (jax.tree.map(functools.partial(draw, key=k), state.policy.kernel.initial()) for k in keys)
    batch = batch._replace(z=z, next_z=next_z, decision=algorithm.memory.halves(batch.decision.action, next_z))
    warmup = algorithm.plan.warmup
    before, fresh = (jax.tree.map(lambda leaf, i=i: leaf[i], batch) for i in (slice(warmup), slice(warmup, None)))
    return algorithm.store(state, before), fresh


def every_leaf_differs(a, b):
    return all(jax.tree.leaves(jax.tree.map(lambda x, y: bool(np.any(x != y)), a, b)))


def critic_of(slow):
    return slow.critic if isinstance(slow, Networks) else slow


# One update of everything there is -----------------------------------------------------------------------------------

# What else there is of TD3 is the same code as here; DDPG is TD3, as the test below says.
CASES = [("sac", label, None) for label in ("s2pg", "bptt-8", "bptt-8-last", "oracle")]
CASES += [("sac", label, "policy") for label in ("bptt-8", "window-8")]
CASES += [("td3", label, None) for label in ("s2pg", "bptt-8", "none")]


@pytest.mark.parametrize(("name", "label", "critic"), CASES, ids=lambda part: str(part or "default"))
def test_one_update_learns_and_leaves_alone_what_the_environment_said(name, label, critic):
    algorithm, traces = built(name, label, critic), []
    state, batch = ready(algorithm)

    def update(state, batch, key):
        traces.append(key)
        return algorithm.store(state, batch).replay, *algorithm.update(state, batch, (), key)

    update = quick(update)
    stored, after, metrics = update(state, batch, jax.random.key(1))
    _, twice, more_metrics = update(after, batch, jax.random.key(2))
    assert len(traces) == 1, "the second update is compiled anew"
    # Numbers.
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after, metrics, twice, more_metrics)))
    assert all(np.shape(value) == () for value in metrics.values())
    assert {"actor_loss", "critic_loss", "value", "actor_gradient"} <= metrics.keys()
    assert [int(each.updates) for each in (state, after, twice)] == [0, 1, 2]
    # Both networks learn in all their parts, by a first step of Adam's, and the slow copies follow.
    assert every_leaf_differs(after.policy.kernel, state.policy.kernel)
    assert every_leaf_differs(after.learner.critic, state.learner.critic)
    for new, old in ((after.policy.kernel, state.policy.kernel), (after.learner.critic, state.learner.critic)):
        assert 0.9e-2 < largest(jax.tree.map(jnp.subtract, new, old)) < 1.01e-2
    halfway = lambda slow, new: 0.75 * slow + 0.25 * new  # noqa: E731
    expected = jax.tree.map(halfway, critic_of(state.learner.target), after.learner.critic)
    assert_close(critic_of(after.learner.target), expected, rtol=0, atol=3e-7)
    if isinstance(after.learner.target, Networks):
        expected = jax.tree.map(halfway, state.policy.kernel, after.policy.kernel)
        assert_close(after.learner.target.kernel, expected, rtol=0, atol=3e-7)
    # Nothing in the buffer changes but the z' of rows that were sampled, and that under s2pg alone.
    for part in ("rows", "first", "head", "size"):
        np.testing.assert_array_equal(getattr(after.replay, part), getattr(stored, part))
    changed = [np.any(np.asarray(new != old), axis=-1) for new, old in
               zip(jax.tree.leaves(after.replay.next_z), jax.tree.leaves(stored.next_z), strict=True)]  # fmt: skip
    if label == "s2pg":
        assert 1 < changed[0].sum() <= algorithm.batch_size
        assert not changed[0][int(stored.size) :].any()
        assert np.abs(after.replay.next_z).max() <= 1
    else:
        assert not any(each.any() for each in changed)
    # Temperatures fall where there is more entropy than wanted and rise where there is less, each at its rate.
    if name == "sac":
        halves = {"action": (1e-2, -1.0)} | ({"state": (1e-3, -8.0)} if label == "s2pg" else {})
        for half, (rate, wanted) in halves.items():
            step = getattr(after.learner.temperature, half) - getattr(state.learner.temperature, half)
            np.testing.assert_allclose(step, -rate * np.sign(metrics[f"entropy_{half}"] - wanted), rtol=1e-2)
        assert len(jax.tree.leaves(after.learner.temperature)) == len(halves)


# bptt stores no states anew by default and never was in danger; it is here to stay so.
COPIES = [("sac", "s2pg"), ("sac", "s2pg-2"), ("sac", "bptt-2"), ("td3", "s2pg"), ("lsiq", "s2pg")]


@pytest.mark.parametrize(("name", "label"), COPIES)
def test_an_update_with_one_row_and_one_gradient_step_copies_no_buffer(name, label):
    """Such a row XLA likes to put in twice: into the buffer, and wherever that is read."""
    algorithm = built(name, label, critic="critic", lanes=1, steps=1, batch_size=4, capacity=50_000)
    shared = scripted(ENV, 2) if name == "lsiq" else ()
    memory, seeds = getattr(algorithm, "inner", algorithm).memory, jax.random.split(jax.random.key(0), 2)

    def begin(key):
        state, row = settled(algorithm.init(ENV.spec, shared, key=key)), jax.tree.map(lambda x: x[:1, :1], experience())
        z = jax.tree.map(lambda leaf: leaf[None, None], state.policy.kernel.initial())
        return state, row._replace(z=z, next_z=z, decision=memory.halves(row.decision.action, z))

    def update(buffer, state, batch, key):
        return settled(algorithm.update(state._replace(replay=buffer), batch, shared, key))

    state, batch = jax.eval_shape(jax.vmap(begin), seeds)
    given = (state.replay, state._replace(replay=()), batch, seeds)
    analysis = jax.jit(jax.vmap(update), donate_argnums=0).lower(*given).compile().memory_analysis()
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state.replay))
    assert analysis.alias_size_in_bytes >= size
    assert analysis.temp_size_in_bytes < size / 10


def test_ddpg_is_td3_with_one_critic_no_delay_and_no_smoothing():
    same = {"critics": 1, "policy_delay": 1, "gradient_steps": 1, "smoothing_action": 0.0, "smoothing_state": 0.0}
    same |= {"smoothing_state_clip": 0.125}  # of a noise that there is not
    one, other = (built(name, "s2pg", state_log_std=-2.0, **own) for name, own in (("ddpg", {}), ("td3", same)))
    # The same in every setting ...
    settings = [{field.name: getattr(each, field.name) for field in dataclasses.fields(each)} for each in (one, other)]
    kernels = [each.pop("kernel") for each in settings]
    assert settings[0] == settings[1]
    assert (kernels[0].func, kernels[0].keywords) == (kernels[1].func, kernels[1].keywords)
    # ... and in everything it does.
    ddpg, td3_class = type(one), type(other)
    does = [name for name in dir(td3_class) if isinstance(getattr(td3_class, name), FunctionType | property)]
    own = [name for name in does if not name.startswith("_") and getattr(ddpg, name) is not getattr(td3_class, name)]
    assert "learn" in does and own == []


@pytest.mark.parametrize(("name", "refresh"), [("sac", 1.0), ("ddpg", 0.25)])
def test_what_is_written_back_is_what_the_policy_of_before_would_remember(name, refresh):
    """Without noise: z' of every sampled row goes to the mode at (o, z) of the kernel that the update started with."""
    algorithm = built(name, "s2pg", refresh_noise=False, refresh=refresh)
    state, batch = ready(algorithm)
    size = algorithm.plan.warmup + algorithm.steps

    def run(state, batch, key):
        before = algorithm.store(state, batch)
        after, _ = algorithm.update(state, batch, (), key)
        # A row's z is the z' of the row before, or zero where an episode begins.
        z = jnp.concatenate([jnp.zeros((1, algorithm.lanes, 8)), before.replay.next_z[: size - 1]])
        z = jnp.where(before.replay.first[:size, :, None], 0.0, z)
        obs = jnp.asarray(experience().obs["policy"])
        modes = jax.vmap(jax.vmap(lambda o, z: state.policy.kernel(o, z).state.mode()))(obs, z)
        return before.replay.next_z[:size], after.replay.next_z[:size], modes

    before, after, modes = map(np.asarray, quick(run)(state, batch, jax.random.key(1)))
    changed = (before != after).any(axis=-1)
    assert 1 < changed.sum() <= algorithm.batch_size
    np.testing.assert_allclose(after[changed], ((1 - refresh) * before + refresh * modes)[changed], atol=1e-5)


def test_heads_of_segments_are_kept_up_to_date_if_asked_for():
    algorithm = built("ddpg", "bptt-8", refresh_heads=1.0)
    run = quick(lambda state, batch, key: (algorithm.store(state, batch), algorithm.update(state, batch, (), key)[0]))
    stored, after = run(*ready(algorithm), jax.random.key(1))
    changed = np.any(np.asarray(after.replay.next_z != stored.replay.next_z), axis=-1)
    assert 1 < changed.sum() <= algorithm.batch_size
    np.testing.assert_array_equal(after.replay.rows, stored.replay.rows)


# What comes out of the buffer is what was lived through --------------------------------------------------------------


@functools.cache
def lived():
    """(algorithm, training state that remembers, what it remembers), collected by the policy itself."""
    algorithm = built("sac", "bptt-3", normalise_obs=False)

    def run(key):
        keys = jax.random.split(key, 4)
        state = algorithm.init(ENV.spec, (), key=keys[0])
        state = with_kernel(state, shaken(state.policy.kernel, keys[1], 0.3))
        actor = algorithm.actor(state.policy)
        _, batch, _ = collect(ENV, actor, start(ENV, actor, algorithm.lanes, keys[2]), algorithm.plan.warmup, keys[3])
        return algorithm.store(state, batch), batch

    return algorithm, *quick(run)(jax.random.key(0))


def test_replayed_samples_meet_the_states_and_decisions_of_when_they_were_lived_through():
    """Under other rules too: see the tests of unfolding."""
    algorithm, state, batch = lived()
    # Episodes of recall terminate; here they are as if time had run out, which must not stop the bootstrap.
    cut = batch._replace(terminated=jnp.zeros_like(batch.terminated), truncated=batch.terminated)
    graded = algorithm.memory.spans.graded

    def run(state, batch, cut, key):
        found, drawn = algorithm.sample_batch(state.replay, state.policy, key)
        unfolded = unfold(algorithm.memory, state.policy.kernel, drawn, None)
        empty = state.replay
        empty = eqx.tree_at(lambda r: (r.head, r.size), empty, (jnp.zeros_like(empty.head), jnp.zeros_like(empty.size)))
        stored = algorithm.store(state._replace(replay=empty), cut).replay
        _, drawn_cut = algorithm.sample_batch(stored, state.policy, key)
        time = found.time[:, None] - jnp.arange(graded)[::-1][None]
        rows = jax.tree.map(lambda leaf: leaf[time, found.lane[:, None]], batch)
        every = lambda function: jax.vmap(jax.vmap(function))  # noqa: E731
        kernel = state.policy.kernel
        read = lambda obs, z: kernel(obs["policy"], z).action.mode()  # noqa: E731
        actions = every(read)(rows.obs, rows.z), every(read)(rows.next_obs, rows.next_z)
        features = every(kernel.features)
        seen = features(rows.z), features(rows.next_z), features(unfolded.z), features(unfolded.next_z)
        modes = every(lambda step: step.action.mode())(unfolded.now), every(lambda s: s.action.mode())(unfolded.ahead)
        return drawn, drawn_cut, rows, actions, modes, seen

    drawn, drawn_cut, rows, actions, modes, seen = quick(run)(state, batch, cut, jax.random.key(5))
    mask = np.asarray(drawn.mask)
    assert mask[:, -1].all() and (mask.mean() > 0.8)
    held = [(drawn.reward, rows.reward), (drawn.action, rows.decision.action), (drawn.alive, 1.0 - rows.terminated)]
    held += [(drawn.obs[name], rows.obs[name]) for name in ("policy", "critic")]
    held += [(drawn.next_obs[name], rows.next_obs[name]) for name in ("policy", "critic")]
    for got, expected in held:
        np.testing.assert_array_equal(np.asarray(got)[mask], np.asarray(expected)[mask])
    for got, expected in [*zip(modes, actions, strict=True), (seen[2], seen[0]), (seen[3], seen[1])]:
        np.testing.assert_allclose(np.asarray(got)[mask], np.asarray(expected)[mask], atol=1e-5)
    # Ends are among them; truncated, they bootstrap, from the observation before the reset.
    ends = np.asarray(rows.terminated).astype(bool) & mask
    assert ends.any() and not np.asarray(drawn.alive)[ends].any()
    np.testing.assert_array_equal(drawn_cut.alive, 1.0)
    np.testing.assert_array_equal(np.asarray(drawn_cut.next_obs["critic"])[ends][:, 1], 1.0)  # elapsed / k


def test_statistics_are_applied_to_what_comes_out_and_not_to_what_is_kept():
    algorithm, state, batch = lived()
    stats = merge(no_statistics({"policy": 2, "critic": 2}), batch.obs)
    draw = quick(lambda policy: algorithm.sample_batch(state.replay, policy, jax.random.key(0))[1])
    raw, scaled = draw(state.policy), draw(state.policy._replace(normaliser=stats))
    for name in ("policy", "critic"):
        seen = np.asarray(batch.obs[name]).reshape(-1, 2)
        for before, after in ((raw.obs, scaled.obs), (raw.next_obs, scaled.next_obs)):
            expected = np.clip((np.asarray(before[name]) - seen.mean(0)) / np.sqrt(seen.var(0) + 1e-6), -10, 10)
            np.testing.assert_allclose(after[name], expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(scaled.samples.obs[:, 0], scaled.obs["policy"][:, 0], rtol=1e-6)


# Critics -------------------------------------------------------------------------------------------------------------


class Digits(Critic):
    """Remembers 10 h + s, and values that."""

    scale: jax.Array
    reads: tuple[str, ...] = eqx.field(static=True, default=("critic",))

    def initial(self):
        return jnp.zeros(())

    def advance(self, obs, h):
        return 10 * h + obs["critic"][0]

    def __call__(self, obs, h, features, decision):
        return self.scale * h


@pytest.mark.parametrize("make", [sac, td3])
def test_a_critic_with_a_memory_of_its_own_takes_in_the_segment_and_no_padding(make):
    algorithm, batch = make(UnrollRule(2)), two_segments()
    critic = Digits(jnp.array([1.0, 3.0]))
    if make is sac:
        learner = sac_file.Learner(critic, critic, Decision(jnp.asarray(-100.0)), ())  # no bonus for entropy
    else:
        learner = td3_file.Learner(critic, Networks(kernel(Recomputed), critic), Networks((), ()))
    state = TrainState(Policy(kernel(Recomputed), {}), learner, (), jnp.zeros((), jnp.int32))

    def run(state, batch):
        policy = state.policy.kernel
        unfolded = unfold(algorithm.memory, policy, batch, KEYS[0])
        z, decision = unfolded.z, Decision(batch.action)
        loss = regression(state.learner.critic, policy, batch, z, decision, jnp.zeros((2, 2)))
        if make is sac:
            target = algorithm.target(state, batch, unfolded, KEYS[1])
            return loss, target, algorithm.actor_loss(policy, state, batch, *KEYS[:2])[0]
        latest = jax.tree.map(lambda leaf: leaf[:, -1], unfolded.next_z)
        target = algorithm.target(state.learner.target, batch, latest, KEYS[1])
        return loss, target, algorithm.actor_loss(policy, state, batch)

    loss, target, actor = quick(run)(state, batch)
    # s = (padding, 3, 0.7) and (-1, 2, 1): memories 3, then 30.7; -1, -8, then -79. The second critic says thrice that.
    np.testing.assert_allclose(loss, 0.5 * (1 + 9) * (3**2 + 1**2 + 8**2) / 3, rtol=1e-5)
    np.testing.assert_allclose(target[1], [2 + 0.9 * 3 * -8, 3 + 0.9 * 3 * -79], rtol=1e-5)
    np.testing.assert_allclose(target[0, 1], 1.0, rtol=1e-5)
    np.testing.assert_allclose(actor, -(3 + 3 * -1 + 3 * -8) / 3, rtol=1e-5)  # the lower of both


def test_the_actor_judges_by_the_lowest_the_mean_or_the_first_critic():
    values = jnp.array([[[3.0], [-1.0]], [[2.0], [4.0]], [[7.0], [0.0]]])  # three critics, two samples
    for how, expected in {"min": [2.0, -1.0], "mean": [4.0, 1.0], "first": [3.0, -1.0]}.items():
        np.testing.assert_allclose(judged(values, how)[:, 0], expected, rtol=1e-6)


@pytest.mark.parametrize("network", ["plain", "branched"])
def test_a_critic_of_drawn_states_looks_at_everything_it_is_given(network):
    views, z = {"policy": 2, "critic": 3, "previous_action": 1}, jnp.linspace(-0.5, 0.5, 4)
    asked = hyper.defaults("sac", "gru") | {"lanes": 1, "steps": 1, "width": 16, "q_network": network}
    recipe = build.build("sac", Spec(views, ENV.spec.action, 8), labels.parse("s2pg"), "gru", "critic", asked).critic
    obs = {name: jnp.linspace(0.1, 1.0, size) for name, size in views.items()}

    def slopes(key):
        critic = recipe(views, 4, Decision(1, 4), key)
        given = critic, obs, z, Decision(jnp.array([0.3]), -z)
        return jax.grad(lambda critic, obs, z, decision: critic(obs, (), z, decision), (0, 1, 2, 3))(*given)

    of_critic, of_obs, of_z, of_decision = quick(slopes)(jax.random.key(0))
    assert all(largest(leaf) > 0 for leaf in jax.tree.leaves((of_critic, of_z, of_decision)))
    assert [name for name, slope in of_obs.items() if largest(slope) > 0] == ["critic", "previous_action"]


def test_only_what_somebody_reads_is_stored():
    expected = {
        ("s2pg", "critic"): {"policy", "critic"},
        ("s2pg", "policy"): {"policy"},
        ("none", "policy"): {"policy"},
    }
    for (label, critic), views in (expected | {("oracle", "policy"): {"critic"}}).items():
        algorithm = built("sac", label, critic)
        shapes = eqx.filter_eval_shape(lambda key, a=algorithm: a.init(ENV.spec, (), key=key), jax.random.key(0))
        assert {name for name, _ in shapes.replay.views} == views
        assert shapes.replay.rows.shape[:2] == (250, 4)  # `capacity` counts the rows of all lanes


# Who acts ------------------------------------------------------------------------------------------------------------


def decide(actor: Actor, number=1):
    """Decisions at one context under different keys."""
    obs = {"policy": jnp.array([0.4, 1.0]), "critic": jnp.array([0.4, 0.0])}
    z = jnp.linspace(-0.8, 0.8, 8)
    keys = jax.random.split(jax.random.key(9), number)
    decide = jax.vmap(actor, (None, None, 0))
    return quick(lambda keys: (decide(obs, z, keys), actor.kernel(obs["policy"], z)))(keys)


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_evaluation_acts_with_the_modes_of_a_and_z(name):
    algorithm, policy = acting(name)
    (decision, next_z, _), step = decide(algorithm.actor(policy, explore=False), 3)
    for each in range(3):
        np.testing.assert_allclose(decision.action[each], step.action.mode(), rtol=1e-5)
        np.testing.assert_allclose(next_z[each], step.state.mode(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(decision.state, next_z)
    assert np.abs(decision.action).max() < 1 and np.abs(next_z).max() <= 1
    (decision, next_z, _), _ = decide(algorithm.actor(policy), 3)
    assert len(np.unique(decision.action)) == 3 and len(np.unique(next_z)) == next_z.size


@functools.cache
def acting(name, **more):
    algorithm = built(name, "s2pg", uniform_warmup=True, **more)

    key = jax.random.key(0)
    policy = algorithm.init_policy(ENV.spec, key=key)
    return algorithm, policy._replace(kernel=shaken(policy.kernel, key, 0.3))


def test_noise_of_a_deterministic_policy_has_the_sizes_asked_for():
    sizes = {"action_log_std": float(np.log(0.02)), "state_log_std": float(np.log(0.01))}
    algorithm, policy = acting("td3", **sizes)
    (decision, _, _), step = decide(algorithm.actor(policy), 4000)
    inside = np.abs(step.action.mode()) < 0.9, np.abs(step.state.mode()) < 0.9
    assert inside[0].all() and inside[1].any(), "bounds would cut the noise"
    np.testing.assert_allclose(np.std(decision.action - step.action.mode()[None], axis=0), 0.02, rtol=0.06)
    noise = np.asarray(decision.state - step.state.mode()[None])[:, inside[1]]
    np.testing.assert_allclose(np.std(noise, axis=0), 0.01, rtol=0.06)


def test_a_uniform_warm_up_acts_at_random_and_leaves_the_state_to_the_policy():
    algorithm, policy = acting("sac")
    (decision, next_z, _), _ = decide(warmup_actor(algorithm, policy), 4000)
    (_, policys, _), _ = decide(algorithm.actor(policy), 4000)
    action = np.asarray(decision.action)
    assert action.shape == (4000, 1) and np.abs(action).max() <= 1
    assert scipy.stats.kstest(action[:, 0], scipy.stats.uniform(-1, 2).cdf).pvalue > 1e-3
    for one, other in zip(next_z.T, policys.T, strict=True):  # other draws, of the same distribution
        assert scipy.stats.ks_2samp(one, other).pvalue > 1e-4
    np.testing.assert_array_equal(decision.state, next_z)
    correlation = np.corrcoef(np.concatenate([action, next_z], axis=1).T)[0, 1:]
    assert np.abs(correlation).max() < 4 / np.sqrt(4000)


def test_without_a_uniform_warm_up_the_policy_acts_from_the_start():
    algorithm = built("sac", "s2pg", uniform_warmup=False)
    _, policy = acting("sac")
    found, expected = decide(warmup_actor(algorithm, policy), 3), decide(algorithm.actor(policy), 3)
    assert_close(found[0], expected[0], rtol=0)
    assert algorithm.plan.warmup == 25  # steps of each of four lanes: 100


# What is refused -----------------------------------------------------------------------------------------------------

REFUSED = {
    "discrete actions": ("s2pg", Recall(k=8), {}, ["continuous", "discrete", "ppo"]),
    "a batch larger than the warm-up": ("s2pg", ENV, {"batch_size": 101},
                                        ["101", "100", "'learning_starts'", "'batch_size'"]),
    "a warm-up larger than the buffer": ("none", ENV, {"capacity": 99}, ["99", "'learning_starts' 100"]),
    "a segment longer than an episode": ("bptt-9", ENV, {}, ["bptt-9", "8 steps"]),
    "a buffer shorter than a segment": ("bptt-8", ENV, {"capacity": 100, "lanes": 20},
                                        ["'capacity'", "5 rows", "bptt-8", "needs 9"]),
    "the pathwise estimator": ("s2pg-pathwise", ENV, {}, ["'s2pg-pathwise'", "ppo", "'s2pg'"]),
    "gradient steps that leave a delay open": ("s2pg", ENV, {"gradient_steps": 3},
                                               ["'gradient_steps'", "'policy_delay', 2"]),
    "an unknown network": ("s2pg", ENV, {"q_network": "brached"}, ["q_network", "brached", "branched"]),
    "an unknown way to judge": ("s2pg", ENV, {"actor_value": "max"}, ["actor_value", "max", "mean"]),
    "an unknown hyper-parameter": ("s2pg", ENV, {"taget_rate": 0.1}, ["taget_rate", "target_rate"]),
    "a rate above one": ("s2pg", ENV, {"target_rate": 1.5}, ["'target_rate'", "1.5"]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "what"), [(name, what) for name in OWN for what in REFUSED if name == "td3" or "delay" not in what]
)
def test_what_cannot_work_is_refused_in_one_line_that_says_what_to_change(name, what):
    label, env, asked, words = REFUSED[what]
    with pytest.raises(UserError) as error:
        resolve(name, env, memory=label, hyper=HYPER | asked)
    message = str(error.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


# Learning rates over time --------------------------------------------------------------------------------------------


def rates(**schedule) -> list[float]:
    """How far Adam moves a number under a constant gradient, step by step: its rate."""
    optimiser, x = adam(0.1, 0.0, **schedule), jnp.zeros(())
    state, moved = optimiser.init(x), []
    for _ in range(6):
        new, state = step(optimiser, jnp.ones(()), state, x)
        moved.append(float(x - new))
        x = new
    return moved


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({}, [0.1] * 6),
        ({"anneal_steps": 4}, [0.1, 0.075, 0.05, 0.025, 0, 0]),
        ({"rest": 2}, [0, 0, 0.1, 0.1, 0.1, 0.1]),
        ({"anneal_steps": 4, "rest": 2}, [0, 0, 0.05, 0.025, 0, 0]),
    ],
)
def test_learning_rates_fall_and_rest_as_asked(schedule, expected):
    np.testing.assert_allclose(rates(**schedule), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_after_an_annealed_run_networks_and_statistics_stay_as_they_are(name):
    algorithm = built(name, "none", anneal_updates=1, normalise_obs=True)
    state, batch = ready(algorithm)
    update = quick(algorithm.update)
    after, _ = update(state, batch, (), jax.random.key(1))
    later, _ = update(after, batch, (), jax.random.key(2))
    assert_close((after.policy, after.learner.critic), (later.policy, later.learner.critic))
    assert largest(jax.tree.map(lambda a, b: a - b, after.policy.kernel, state.policy.kernel)) > 0
