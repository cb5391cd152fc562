"""Distillation: a student learns what its teacher would do, wherever the student comes to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import s2pg
import toys
from s2pg.actor import Actor
from s2pg.errors import UserError
from s2pg.loops import DeviceLoop
from s2pg.runs.run import Run
from s2pg.types import CRITIC, Decision

ENV = toys.CONTINUOUS
SMALL = {"lanes": 32, "steps": 12, "size": 8, "width": 16}


class Scripted(Actor):
    """A teacher without parameters."""

    def __init__(self):
        self.kernel, self.normaliser, self.memory, self.reads = (), {}, (), ()
        self.explore = self.uniform = False


class Clock(Scripted):
    """Counts the steps of an episode and says how many there were."""

    def initial(self):
        return jnp.zeros(())

    def fresh(self, first, z):
        return jnp.where(first, 0.0, z)

    def __call__(self, obs, z, key):
        return Decision(z[None]), z + 1.0, Decision(jnp.zeros(()))


class Knowing(Scripted):
    """Reads the cue off the full state, without a memory."""

    def initial(self):
        return ()

    def fresh(self, first, z):
        return ()

    def __call__(self, obs, z, key):
        return Decision(obs[CRITIC][:1]), (), Decision(jnp.zeros(()))


def built(label, **hyper):
    return toys.resolve("distill", ENV, memory=label, hyper=SMALL | hyper)[1]


def test_the_memory_of_a_teacher_is_carried_from_batch_to_batch_and_begins_anew_with_episodes():
    algorithm = toys.resolve("distill", ENV, memory="none", hyper=toys.TINY)[1]
    ages = jnp.array([[2, 0], [0, 1], [1, 2], [2, 0]])  # of episodes, [T, N]; lane 0 begins in the middle of one
    batch = toys.two_batches(toys.built("none", ENV))[1]
    batch = jax.tree.map(lambda leaf: leaf[:4, :2], batch)._replace(first=ages == 0)
    z, actions = algorithm.lessons(Clock(), jnp.array([2.0, 7.0]), batch, jax.random.key(0))
    np.testing.assert_array_equal(actions[..., 0], ages)
    np.testing.assert_array_equal(z, [3.0, 1.0])


def test_the_loss_is_the_mean_negative_log_likelihood_of_what_the_teacher_does():
    """Of a fresh policy whose mode is 0: (a*)^2 / 2 + log(2 pi) / 2 for a deviation of 1."""
    algorithm = built("none", action_log_std=0.0, epochs=1, minibatches=1)
    state, _, metrics = toys.one_update(algorithm, ENV, Clock())
    told = np.array([0, 1, *(3 * [0, 1, 2]), 0])  # it comes in when an episode of 3 steps is one step old
    modes = algorithm.actor(state.policy, explore=False)(
        {name: jnp.zeros(size) for name, size in ENV.spec.views.items()}, (), jax.random.key(0)
    )[0].action
    assert float(jnp.abs(modes).max()) < 0.05
    by_hand = np.mean(told**2) / 2 + np.log(2 * np.pi) / 2
    np.testing.assert_allclose(metrics["clone_loss"], by_hand, rtol=1e-3)


def distilled(label, updates=200):
    """The mean squared error of a student's answers to the question of recall."""
    loop = DeviceLoop(built(label), ENV, (0,), updates, 256, Knowing())
    state, metrics = loop.advance(loop.init())
    assert float(metrics["clone_loss"][0, -1]) < float(metrics["clone_loss"][0, 0])
    return 1.0 - float(loop.evaluate(state)["eval_return"][0])


def test_a_memory_learns_from_a_teacher_that_needs_none_and_without_one_it_guesses():
    """The cue is uniform on [-1, 1]: who does not know it is off by 1/3."""
    assert distilled("bptt-3") < 0.05
    assert distilled("none") == pytest.approx(1 / 3, abs=0.1)


def test_draws_are_not_distilled():
    with pytest.raises(UserError, match="use 'bptt-N'"):
        built("s2pg")


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """A run of an oracle, with two seeds."""
    out = tmp_path_factory.mktemp("teacher") / "run"
    given = {"hyper": {"lanes": 8, "steps": 8}, "steps": 256, "borders": 2, "episodes": 4, "say": lambda line: None}
    return s2pg.train("ppo", s2pg.make("recall", k=3), memory="oracle", seeds=(0, 1), out=out, **given)


def student(out, teacher, task="recall", steps=256, resume=False, say=lambda line: None, **options):
    return s2pg.train(
        "distill", s2pg.make(task, **options), memory="bptt-3", demos=teacher, out=out, steps=steps, borders=1,
        episodes=4, hyper={"lanes": 8, "steps": 8, "anneal_updates": 0}, resume=resume, say=say,
    )  # fmt: skip


def test_a_run_teaches_and_its_student_goes_on_bit_for_bit(teacher, tmp_path):
    said = []
    whole = student(tmp_path / "whole", teacher.path, steps=512, k=3, say=said.append)
    assert any("the teacher is seed" in line for line in said)
    student(tmp_path / "parts", teacher.path, k=3)
    parts = student(tmp_path / "parts", teacher.path, steps=512, resume=True, k=3)
    states = [Run(each.path).policy().actor for each in (whole, parts)]
    assert isinstance(states[0], Actor)
    jax.tree.map(np.testing.assert_array_equal, *states)


def test_a_teacher_of_something_else_is_refused(teacher, tmp_path):
    with pytest.raises(UserError, match="was trained on recall and cannot teach masked-pendulum"):
        student(tmp_path / "a", teacher.path, "masked-pendulum")
    with pytest.raises(UserError, match="has other actions than this task"):
        student(tmp_path / "b", teacher.path, k=3, cue="real")
    with pytest.raises(UserError, match="distill learns from a teacher"):
        student(tmp_path / "c", None, k=3)
    with pytest.raises(UserError, match="no run"):
        student(tmp_path / "d", tmp_path, k=3)
    said = []
    student(tmp_path / "e", teacher.path, k=4, say=said.append)
    assert any("was trained with k=3, and this task has k=4" in line for line in said)
