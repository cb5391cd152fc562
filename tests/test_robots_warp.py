"""Robots in MuJoCo Warp, here on the CPU, where its kernels are the same: beside C MuJoCo, as one batch, and what
does not fit.

The first use of a kernel compiles it, for a minute in all: they are kept in Warp's own cache, under the user's.
"""

import importlib.util
from functools import cache
from types import SimpleNamespace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from s2pg.cli import main
from s2pg.envs import tasks
from s2pg.envs.base import Env
from s2pg.envs.mujoco import models, task, warp
from s2pg.envs.mujoco.device import DeviceRobot
from s2pg.envs.mujoco.mjx import mjx
from s2pg.envs.mujoco.options import RobotOptions
from s2pg.envs.mujoco.parity import BOUNDS, differences
from s2pg.envs.mujoco.robots import ROBOTS
from s2pg.envs.mujoco.warp import WarpSimulator
from s2pg.errors import UserError
from s2pg.io.sinks import read_metrics
from s2pg.loops import DeviceLoop
from s2pg.runs import experiment
from s2pg.runs.request import Request
from s2pg.runs.training import train
from s2pg.types import Box

installed = pytest.mark.skipif(not warp.installed(), reason="warp-lang is not installed")
SEEDS, LANES = 2, 3


@pytest.fixture(autouse=True)
def promotion():
    """MJX adds matrices and vectors, as the rest of the suite may not."""
    with jax.numpy_rank_promotion("allow"):
        yield


@cache
def robot(**options):
    return DeviceRobot("halfcheetah", RobotOptions(masses=0.3, variants=4, **options), "warp")


@installed
@pytest.mark.parametrize(
    "id",
    ["halfcheetah", *(pytest.param(id, marks=pytest.mark.slow) for id in BOUNDS if id != "halfcheetah")],
)
def test_a_step_in_warp_is_one_in_c(id):
    found = differences(id, "warp", 32)
    print(f"{id}: {found.report()}")
    assert not found.broken(BOUNDS[id]), found.report()


@installed
def test_seeds_and_lanes_step_as_one_batch_and_not_in_a_loop():
    env = robot()
    keys = jax.random.split(jax.random.key(0), (SEEDS, LANES))
    state, _ = jax.jit(jax.vmap(jax.vmap(env.reset)))(keys)
    actions = jax.random.uniform(jax.random.key(1), (SEEDS, LANES, 6), minval=-1.0, maxval=1.0)
    both = jax.vmap(jax.vmap(env.step))
    _, together = jax.jit(both)(state, actions, keys)
    flat = lambda tree: jax.tree.map(lambda leaf: leaf.reshape(SEEDS * LANES, *leaf.shape[2:]), tree)  # noqa: E731
    _, apart = jax.jit(jax.vmap(env.step))(*flat((state, actions)), flat(keys))
    jax.tree.map(np.testing.assert_array_equal, flat(together), apart)
    # Two calls of Warp, the last step and those before it, each of all environments.
    found = list(calls(jax.make_jaxpr(both)(state, actions, keys).jaxpr))
    assert len(found) == 2
    assert all((SEEDS * LANES, 9) in [value.aval.shape for value in each.invars] for each in found)


def calls(jaxpr):
    """Whatever leaves JAX, within loops as well."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "ffi_call":
            yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from calls(inner)


@installed
def test_a_buffer_for_many_begins_as_warp_would_make_it():
    simulator = robot().simulator
    sized = mjx().make_data(simulator.file, impl="warp", naconmax=5 * simulator.sizes[0], njmax=simulator.sizes[1])
    jax.tree.map(np.testing.assert_array_equal, warp._resized(simulator.blank, sized), sized)


@installed
def test_what_finds_no_room_is_told():
    tight, keys = robot(contacts=1, constraints=2), jax.random.split(jax.random.key(0), 4)
    # Low enough that several parts touch the ground.
    qpos, qvel = jnp.zeros((4, 9)).at[:, 1].set(-0.5), jnp.zeros((4, 9))
    inner = jax.vmap(tight.at)(qpos, qvel, jnp.zeros(4, int), keys)
    assert not inner.overflowed.any()
    after, _, _ = jax.jit(jax.vmap(tight.move))(inner, jnp.zeros(4, int), jnp.zeros((4, 6)), keys)
    assert after.overflowed.all()
    assert robot().simulator.sizes == (16, 70)  # as many as MJX counts in this model


class Crowded(NamedTuple):
    """A task's state in which there was no room for something."""

    overflowed: jax.Array


class Crowd(Env):
    """Loses contacts in every third step."""

    horizon: int = eqx.field(static=True, default=6)

    @property
    def action(self):
        return Box((-1.0,), (1.0,))

    def begin(self, key):
        return Crowded(jnp.zeros((), bool))

    def move(self, inner, elapsed, action, key):
        return Crowded(elapsed % 3 == 2), jnp.zeros(()), jnp.zeros((), bool)

    def views(self, inner, elapsed):
        return {"policy": jnp.ones(1), "critic": jnp.ones(1)}


def test_steps_without_room_are_counted_and_told(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "describe", lambda env: ("crowd", {}))
    _, built = experiment.resolve(
        Request("ppo", "", hyper={"lanes": 4, "steps": 6, "minibatches": 1, "epochs": 1}), Crowd()
    )
    said = []
    train(built, Crowd(), seeds=(0, 1), steps=24, out=tmp_path, chunk=1, episodes=1, say=said.append)
    told = "16 steps of environments had no room for all contacts: raise 'contacts' or 'constraints'"  # 2 x 4 x 2
    assert said == [told]
    assert [row["overflowed"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [8, 8]


@installed
def test_training_steps_all_seeds_and_has_kernels_compiled_before_it_is_timed(monkeypatch):
    env, prepared, prepare = robot(horizon=3), [], WarpSimulator.prepare
    monkeypatch.setattr(WarpSimulator, "prepare", lambda self: prepared.append(prepare(self)))
    _, built = experiment.resolve(
        Request("ppo", "", hyper={"lanes": 4, "steps": 4, "minibatches": 1, "epochs": 1}), env
    )
    loop = DeviceLoop(built, env, (0, 1), chunk=1, episodes=2)
    state = loop.init()
    loop.prepare(state)
    assert len(prepared) == 1
    state, measured = loop.advance(state)
    _, again = loop.advance(state)
    assert {"diverged", "overflowed"} <= set(measured) and np.isfinite(again["policy_loss"]).all()
    assert np.isfinite(measured["train_return"]).all()  # episodes of three steps have ended


@installed
@pytest.mark.parametrize("steep", [20.0, 61.0, 85.0])
def test_a_capsule_on_the_ground_has_the_contact_frames_of_c(steep):
    height = 0.3 * np.sin(np.radians(steep)) + 0.09  # one end in the ground
    xml = f"""<mujoco><worldbody><geom type="plane" size="5 5 1"/><body pos="0 0 {height}">
      <freejoint/><geom type="capsule" size="0.1 0.3" euler="0 {90 - steep} 30"/></body></worldbody></mujoco>"""
    package = models.mujoco()
    model = package.MjModel.from_xml_string(xml)
    data = package.MjData(model)
    package.mj_forward(model, data)
    assert data.ncon == 1
    warp.frames_as_in_c()
    put, blank = mjx().put_model(model, impl="warp"), mjx().make_data(model, impl="warp", naconmax=8, njmax=32)
    found = jax.jit(mjx().forward)(put, blank)._impl
    assert int(found.nacon[0]) == 1
    np.testing.assert_allclose(found.contact__dist[0], data.contact.dist[0], atol=1e-5)
    np.testing.assert_allclose(np.abs(np.ravel(found.contact__frame[0])), np.abs(data.contact.frame[0]), atol=1e-5)


@installed
def test_what_warp_does_not_support_is_named():
    model = models.load(ROBOTS["hopper"].xml)
    model.opt.solver = models.mujoco().mjtSolver.mjSOL_PGS
    with pytest.raises(UserError, match=r"^M[^\n]* cannot run hopper \([^\n]*PGS[^\n]*\): take backend=gymnasium$"):
        WarpSimulator("hopper", model, RobotOptions())


# Which backend runs --------------------------------------------------------------------------------------------------


def no_warp(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "warp" else find(name, *rest))


def test_without_warp_or_without_cuda_one_line_says_what_to_install(monkeypatch, capsys):
    assert main(["train", "ppo", "--task", "ant", "--set", "backend=warp"]) == 2
    err = capsys.readouterr().err
    assert len(err.strip().splitlines()) == 1
    if warp.installed():
        assert "backend=warp needs a CUDA device, and JAX finds none: pip install" in err
    no_warp(monkeypatch)
    with pytest.raises(UserError, match=r"^backend=warp needs warp-lang: pip install 's2pg\[warp\]'[^\n]*$"):
        tasks.make("ant", backend="warp")


@pytest.mark.parametrize(
    ("cuda", "there", "backend"), [(True, True, "warp"), (True, False, "mjx"), (False, True, "gymnasium")]
)
def test_the_fastest_backend_that_can_run_is_taken_and_told(monkeypatch, cuda, there, backend):
    monkeypatch.setattr(warp, "on_cuda", lambda: cuda)
    monkeypatch.setattr(warp, "installed", lambda: there)
    monkeypatch.setattr(warp, "_package", lambda: SimpleNamespace(is_cuda_available=lambda: True))
    monkeypatch.setattr(task.jax, "default_backend", lambda: "gpu" if cuda else "cpu")
    assert task.best() == backend
    line = task.told_backend("ant", backend)
    assert line.startswith(f"ant runs on backend={backend}")
    assert ("pip install" in line) == (cuda and not there)


def test_a_warp_that_cannot_run_leaves_the_choice_to_mjx(monkeypatch):
    monkeypatch.setattr(warp, "on_cuda", lambda: True)
    monkeypatch.setattr(warp, "installed", lambda: True)
    monkeypatch.setattr(task.jax, "default_backend", lambda: "gpu")
    for broken in (lambda: SimpleNamespace(is_cuda_available=lambda: False), SimpleNamespace):
        monkeypatch.setattr(warp, "_package", broken)
        assert task.best() == "mjx"
        with pytest.raises(UserError, match=r"^backend=warp finds no CUDA driver[^\n]*$"):
            warp.require()


def test_mjx_runs_without_warp(monkeypatch):
    """Whoever has no warp-lang has MJX all the same."""
    no_warp(monkeypatch)
    assert tasks.make("hopper", backend="mjx").options["backend"] == "mjx"
