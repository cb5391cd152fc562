"""The training loop: what it writes, when it stops, and that it compiles once."""

import logging
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import s2pg
from s2pg.config import labels, presets
from s2pg.config.build import build as build_algorithm
from s2pg.config.presets import Situation
from s2pg.envs.base import Env
from s2pg.errors import DivergenceError, UserError
from s2pg.io.checkpoint import Checkpoints, load_arrays
from s2pg.io.sinks import read_metrics
from s2pg.loops import DeviceLoop
from s2pg.rollout import collect, start
from s2pg.runs import training
from s2pg.types import CRITIC, POLICY, Box, Discrete

TINY = {"lanes": 2, "steps": 8, "size": 4, "width": 4}
OFF_POLICY = {"learning_starts": 20, "batch_size": 4, "capacity": 80}


class Probe(Env):
    """Counts how often it is traced; its reward is NaN from step `poison` of an episode on."""

    traces: ClassVar[list[int]] = []
    horizon: int = eqx.field(static=True, default=100)
    poison: int = eqx.field(static=True, default=1000)
    continuous: bool = eqx.field(static=True, default=False)

    @property
    def action(self):
        return Box((-1.0,), (1.0,)) if self.continuous else Discrete(2)

    def begin(self, key):
        return jax.random.uniform(key)

    def move(self, inner, elapsed, action, key):
        self.traces.append(1)
        return inner, jnp.where(elapsed >= self.poison, jnp.nan, 1.0), jnp.zeros((), bool)

    def views(self, inner, elapsed):
        view = jnp.stack([inner, elapsed / self.horizon])
        return {POLICY: view, CRITIC: view}


def build(env, memory="s2pg", algorithm="ppo", **hyper):
    more = {"epochs": 1, "minibatches": 2} if algorithm == "ppo" else {}
    choice = labels.parse(memory)
    kernel = choice.label.kernel
    preset = presets.values(algorithm, Situation("probe", None, choice.label.pattern, kernel))
    full = presets.resolve(algorithm, preset, choice, kernel, env.spec, TINY | more | hyper, 64)
    return build_algorithm(algorithm, env.spec, choice, kernel, POLICY, full)


def train(env, out, chunks, seeds=(4, 7), chunk=2, report=lambda border: None, **hyper):
    algorithm = build(env, **hyper)
    plan = algorithm.plan
    steps = (plan.warmup + chunks * chunk * plan.steps) * plan.lanes
    return training.train(algorithm, env, seeds=seeds, steps=steps, out=out, chunk=chunk, episodes=2, report=report)


class Compilations(logging.Handler):
    """How many functions JAX has compiled so far."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.seen = []

    def emit(self, record):
        if record.getMessage().startswith("Compiling"):
            self.seen.append(record.getMessage())


class Watch:
    """The borders of a run, with how much had been compiled and traced by each."""

    def __init__(self):
        self.borders, self.counts, self.handler = [], [], Compilations()

    def __enter__(self):
        logging.getLogger("jax").addHandler(self.handler)
        jax.config.update("jax_log_compiles", True)  # in all threads, as `jax.log_compiles` would not
        return self

    def __exit__(self, *error):
        jax.config.update("jax_log_compiles", False)
        logging.getLogger("jax").removeHandler(self.handler)

    def __call__(self, border):
        self.borders.append(border)
        self.counts.append((len(self.handler.seen), len(Probe.traces)))

    def assert_compiled_by_the_first_border(self, steps):
        assert [border.step for border in self.borders] == [0, 0, *steps]
        before, _, first, *later = self.counts
        assert first > before
        assert later == [first] * (len(steps) - 1), self.handler.seen[first[0] :]


# On the host, PPO uses fewer of the same functions; on the device it is the run below.
@pytest.mark.parametrize("task", ["device", "host"])
def test_everything_is_compiled_by_the_first_border(task, tmp_path):
    env = Probe(continuous=True) if task == "device" else s2pg.make("gym:Pendulum-v1", horizon=20)
    with Watch() as watch:
        train(env, tmp_path, 3, report=watch, algorithm="sac", memory="none", **OFF_POLICY)
    watch.assert_compiled_by_the_first_border([20 + 32 * i for i in range(1, 4)])


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    with Watch() as watch:
        return train(Probe(horizon=50), tmp_path_factory.mktemp("train"), 5, report=watch), watch


@pytest.fixture(scope="module")
def run(watched):
    return watched[0]


def test_so_is_it_under_ppo(watched):
    watched[1].assert_compiled_by_the_first_border([32 * i for i in range(1, 6)])


def test_a_run_reports_before_it_compiles_and_when_it_has(watched):
    told = [(border.compiled, bool(border.rows)) for border in watched[1].borders]
    assert told == [(False, False), (True, False), *[(True, True)] * 5]


def test_rows_carry_the_documented_names(run):
    rows = read_metrics(run / training.METRICS)
    assert [(row["step"], row["seed"]) for row in rows] == [(32 * i, seed) for i in range(1, 6) for seed in (4, 7)]
    named = {
        "step",
        "seed",
        "train_return",
        "eval_return",
        "eval_return_stochastic",
        "eval_length",
        "wall_s",
        "steps_per_s",
    }
    for row in rows:
        assert named < row.keys()
        assert (
            row["eval_return"] == row["eval_return_stochastic"] == row["eval_length"] == 50.0
        )  # whole episodes of reward 1
        assert row["wall_s"] > 0 and row["steps_per_s"] > 0
    # Chunks of 2 x 8 steps: the first episodes of all lanes end in the fourth.
    assert [row["train_return"] for row in rows if row["seed"] == 4] == [None] * 3 + [50.0] + [None]


def test_the_last_checkpoints_stay_and_policies_are_those_of_the_newest(run):
    files = Checkpoints(run / training.CHECKPOINTS)
    assert files.steps() == [96, 128, 160]
    state, meta = load_arrays(files.path(160))
    assert meta["chunks"] == 5
    for i, seed in enumerate((4, 7)):
        policy, meta = load_arrays(training.policy_file(run, seed))
        assert meta == {"seed": seed, "step": 160}
        for name, array in policy.items():
            np.testing.assert_array_equal(array, state[f"train/policy/{name}"][i])


def test_seeds_train_side_by_side_to_different_policies(run):
    one, other = (load_arrays(training.policy_file(run, seed))[0] for seed in (4, 7))
    same = [name for name in one if one[name].any() and np.array_equal(one[name], other[name])]
    assert not [name for name in same if name.startswith("kernel/") and "weight" in name]
    assert len(same) < len(one) / 2


def test_a_number_that_is_not_finite_stops_the_run_and_the_last_good_checkpoint_stays(tmp_path):
    env = Probe(poison=36)  # steps 33 to 40 are the fifth update, the first one of the third chunk
    with pytest.raises(DivergenceError, match=r"^a reward is not finite at update 5 in seed 4$"):
        train(env, tmp_path, 5, memory="none")
    assert [row["step"] for row in read_metrics(tmp_path / training.METRICS)] == [32, 32, 64, 64]
    found = Checkpoints(tmp_path / training.CHECKPOINTS).latest(
        DeviceLoop(build(env, "none"), env, (4, 7), 2, 2).shapes()
    )
    loop, meta, _ = found
    assert meta["chunks"] == 2 and (loop.update == 4).all()
    networks = loop.train.policy.kernel, loop.train.learner.critic
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(networks))


def test_exploding_parameters_are_noticed(tmp_path):
    with pytest.raises(DivergenceError, match=r"is not finite at update \d+ in seed 4$"):
        train(Probe(), tmp_path, 3, memory="none", learning_rate=1e38, max_grad_norm=1e38)


def test_the_first_update_that_went_wrong_is_named_with_its_seed():
    fine, bad = np.zeros((2, 3)), np.asarray([[0, 0, np.nan], [0, np.inf, 0]])
    measured = {"kl": fine, "value_loss": bad, "train_return": fine * np.nan}
    with pytest.raises(DivergenceError, match=r"^value_loss is not finite at update 12 in seed 9$"):
        training._check_finite(measured, (5, 9), 10)
    training._check_finite(measured | {"value_loss": fine}, (5, 9), 10)  # no episode need have ended


def test_a_loop_is_used_up_by_its_advance():
    env = Probe()
    looper = DeviceLoop(build(env, "none"), env, (0, 1), 1, 2)
    loop = looper.init()
    after, measured = looper.advance(loop)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(loop))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(after))
    assert measured["parameter_norm"].shape == (2, 1)
    again, _ = looper.advance(looper.init())  # the looper itself has lost nothing
    np.testing.assert_array_equal(after.carry.score, again.carry.score)


def test_episodes_cut_short_by_staggering_are_not_counted():
    env = s2pg.make("masked-pendulum", horizon=10)
    algorithm = build(env, lanes=8)
    actor = algorithm.actor(algorithm.init_policy(env.spec, key=jax.random.key(0)))
    carry = start(env, actor, 8, jax.random.key(1))
    age = np.asarray(carry.env_state.elapsed)
    assert len(set(age)) > 3
    _, batch, ended = jax.jit(lambda carry: collect(env, actor, carry, 20, jax.random.key(2)))(carry)
    reward, done = np.asarray(batch.reward), np.asarray(batch.truncated)
    for lane in range(8):
        first, *later = np.flatnonzero(done[:, lane])
        assert first == 9 - age[lane]
        assert np.isnan(ended.score[first, lane]) == (age[lane] > 0)
        for last in later:
            np.testing.assert_allclose(ended.score[last, lane], reward[last - 9 : last + 1, lane].sum(), rtol=1e-5)
    assert np.isfinite(np.asarray(ended.score)).sum() == done.sum() - (age > 0).sum()


def test_memory_that_runs_out_is_said_in_one_line(tmp_path, monkeypatch):
    def full(self, loop, fresh=False):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 99 bytes")

    monkeypatch.setattr(DeviceLoop, "prepare", full)
    with pytest.raises(UserError, match="no memory for 2 environments for each of 2 seeds: make 'lanes' smaller"):
        train(Probe(), tmp_path, chunks=1)
