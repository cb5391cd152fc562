"""Lanes spread over several devices: the same numbers as on one, each device with its share, runs that change over.

Most of this needs four devices. Where there are fewer, the first test runs the others again with four that are all the
CPU, which JAX has to be told before it starts.
"""

import contextlib
import functools
import json
import os
import re
import subprocess
import sys
from typing import ClassVar, NamedTuple

import jax
import numpy as np
import pytest

import s2pg
from s2pg.cli.main import main
from s2pg.envs.mujoco.device import SIMULATORS
from s2pg.envs.recall import Recall
from s2pg.errors import UserError
from s2pg.loops import DeviceLoop, Loop, layout
from s2pg.runs import training
from toys import CONTINUOUS, DISCRETE, resolve

FEW = len(jax.local_devices()) < 4
four = pytest.mark.skipif(FEW, reason="runs in a process with four devices")
NETWORKS = {"size": 4, "width": 4, "lanes": 8, "steps": 6}
PPO = ("ppo", DISCRETE, NETWORKS | {"epochs": 2, "minibatches": 2})
# Four devices cannot share a batch of 6 evenly, which is no mistake.
SAC = ("sac", CONTINUOUS, NETWORKS | {"learning_starts": 40, "batch_size": 6, "capacity": 200, "anneal_updates": 0})
SETTINGS = {"ppo-s2pg": (*PPO, "s2pg"), "ppo-bptt-4": (*PPO, "bptt-4"), "sac-s2pg": (*SAC, "s2pg")}
every = pytest.mark.parametrize("setting", list(SETTINGS))
# They share a whole batch at once, or whole episodes.
SETTINGS["trpo-s2pg"] = ("trpo", DISCRETE, NETWORKS, "s2pg")
SETTINGS["reinforce-s2pg"] = ("reinforce", DISCRETE, {"size": 4, "width": 4, "lanes": 8}, "s2pg")


@pytest.mark.skipif(not FEW, reason="the other tests run right here")
def test_with_four_devices_all_of_this_holds():
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", __file__]
    run = subprocess.run(
        command, env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert run.returncode == 0 and re.search(r"\d\d passed, 1 skipped", run.stdout), run.stdout


def close(a, b, tolerance):
    """Two trees, up to the order of summation; what is no float exactly."""

    def compare(path, x, y):
        name = jax.tree_util.keystr(path)
        assert x.dtype == y.dtype and x.shape == y.shape, name
        exact = not np.issubdtype(x.dtype, np.floating)
        np.testing.assert_allclose(x, y, rtol=0.0, atol=0.0 if exact else tolerance, err_msg=name)

    bits = lambda tree: jax.device_get(jax.tree.map(key_bits, tree))  # noqa: E731
    jax.tree_util.tree_map_with_path(compare, bits(a), bits(b))


def key_bits(leaf):
    return jax.random.key_data(leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


class Looped(NamedTuple):
    """Three chunks of one update: where they came to, and how many programs were compiled in each."""

    made: DeviceLoop
    loop: Loop
    metrics: dict
    played: dict
    compiled: list


@contextlib.contextmanager
def counting():
    """A list that grows by one with every program that is compiled, or found among those kept on disk."""
    found, event = [], "/jax/core/compile/backend_compile_duration"
    count = lambda name, seconds, **rest: found.append(name) if name == event else None  # noqa: E731
    jax.monitoring.register_event_duration_secs_listener(count)
    yield found
    jax.monitoring.unregister_event_duration_listener(count)


def made_for(setting, devices):
    name, env, hyper, memory = SETTINGS[setting]
    algorithm = resolve(name, env, memory=memory, hyper=hyper)[1]
    return DeviceLoop(algorithm, env, (0, 1), 1, 3, devices=devices)


@functools.cache
def looped(setting, devices):
    """Compiled as it is in the runs below."""
    made = made_for(setting, devices)
    loop, compiled = made.warm_up(made.init()), []
    for _ in range(3):
        with counting() as programs:
            loop, metrics = made.advance(loop)
        compiled.append(len(programs))
    return Looped(made, loop, metrics, made.evaluate(loop), compiled)


@four
@every
def test_numbers_are_those_of_one_device_up_to_the_order_of_summation(setting):
    alone, together = looped(setting, 1), looped(setting, 4)
    close(alone[1:4], together[1:4], 1e-5)


@four
@every
def test_each_device_holds_its_share_of_the_lanes_and_all_of_the_rest(setting):
    loop = looped(setting, 4).loop
    carry, rest = jax.tree.leaves(loop.carry), jax.tree.leaves(loop._replace(carry=()))
    assert len(carry) > 5 and len(rest) > 10
    for leaf in carry:
        pieces = {shard.device: shard.index[1].indices(8) for shard in leaf.addressable_shards}
        assert sorted(pieces.values()) == [(0, 2, 1), (2, 4, 1), (4, 6, 1), (6, 8, 1)] and len(pieces) == 4
    assert all(leaf.is_fully_replicated and len(leaf.devices()) == 4 for leaf in rest)


@four
@every
def test_every_chunk_runs_what_the_first_one_compiled(setting):
    first, *later = looped(setting, 4).compiled
    assert first >= 1 and later == [0, 0]


@four
def test_a_chunk_loaded_from_a_checkpoint_is_no_other_case(tmp_path):
    made, loop = looped("sac-s2pg", 4)[:2]
    training.checkpoint.save(tmp_path / "loop.npz", loop, {})
    loaded, _ = training.checkpoint.load(tmp_path / "loop.npz", made.shapes())
    same_place = lambda a, b: a.sharding.is_equivalent_to(b.sharding, a.ndim)  # noqa: E731
    assert all(jax.tree.leaves(jax.tree.map(same_place, loop, loaded)))
    with counting() as programs:
        made.advance(loaded)
    assert not programs


@four
@every
def test_devices_share_the_work_of_collecting_and_of_learning(setting):
    (alone, _), (each, program) = (work(looped(setting, devices).made) for devices in (1, 4))
    assert each < 0.5 * alone
    # What travels is the batch, never the replay buffer: each device has a copy of that.
    shapes = re.findall(r"\[([\d,]+)\]\S* all-gather\(", program)
    moved = [np.prod([int(size) for size in shape.split(",")]) for shape in shapes]
    assert moved and max(moved) <= 2 * 6 * 8 * 4  # seeds, steps, lanes, and the widest part of a row


def work(made):
    """How many operations a device does in a chunk, and the program."""
    compiled = made._advance.lower(made.shapes(), made.shared).compile()
    return compiled.cost_analysis()["flops"], compiled.as_text()


@four
@pytest.mark.parametrize("setting", ["trpo-s2pg", "reinforce-s2pg"])
def test_whole_batches_and_whole_episodes_are_shared(setting):
    """One update: steps that conjugate gradients have not finished make more of rounding each time."""
    made = {devices: made_for(setting, devices) for devices in (1, 4)}
    alone, together = (each.advance(each.warm_up(each.init())) for each in made.values())
    close(alone, together, 1e-5)
    assert work(made[4])[0] < 0.7 * work(made[1])[0]  # 0.93 where TRPO does not share its batch


@four
def test_random_numbers_do_not_depend_on_where_they_are_drawn():
    mesh = jax.sharding.Mesh(np.asarray(jax.local_devices()[:4]), ("lanes",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("lanes"))
    draw = lambda key: jax.vmap(jax.random.normal)(jax.random.split(key, 8))  # noqa: E731
    drawn = jax.jit(draw, out_shardings=spread)(jax.random.key(5))
    assert len(drawn.addressable_shards) == 4
    np.testing.assert_array_equal(drawn, jax.jit(draw)(jax.random.key(5)))


# Runs


def train(setting, out, chunks, devices, **changes):
    name, env, hyper, memory = SETTINGS[setting]
    steps = hyper.get("learning_starts", 0) + 8 * 6 * chunks
    return s2pg.train(
        name, env, memory=memory, hyper=hyper, seeds=(0, 1), steps=steps, borders=chunks, episodes=3, out=out,
        devices=devices, say=lambda line: None, **changes,
    )  # fmt: skip


def rows(run):
    timed = ("wall_s", "steps_per_s")
    kept = [{name: value for name, value in row.items() if name not in timed} for row in run.metrics]
    return [{name: np.nan if value is None else value for name, value in row.items()} for row in kept]


@four
@pytest.mark.parametrize(("setting", "first", "then"), [("ppo-s2pg", 4, 1), ("sac-s2pg", 1, 4)])
def test_a_run_goes_on_with_another_number_of_devices(setting, first, then, tmp_path):
    train(setting, tmp_path / "run", 2, first)
    run = train(setting, tmp_path / "run", 4, then, resume=True)
    whole = train(setting, tmp_path / "whole", 4, 1)
    found, expected = rows(run), rows(whole)
    assert len(found) == len(expected) == 2 * 4
    for row, other in zip(found, expected, strict=True):
        assert row.keys() == other.keys()
        np.testing.assert_allclose(list(row.values()), [other[name] for name in row], rtol=1e-4, atol=1e-5)
    config = json.loads((tmp_path / "run" / training.CONFIG).read_text())
    assert config["hardware"]["devices_used"] == then  # written anew, since there are more steps
    assert run.experiment == whole.experiment


@four
def test_with_as_many_devices_it_goes_on_bit_for_bit(tmp_path):
    train("sac-s2pg", tmp_path / "run", 2, 4)
    run, whole = (train("sac-s2pg", tmp_path / name, 3, 4, resume=True) for name in ("run", "whole"))
    found, expected = rows(run), rows(whole)
    assert len(found) == 2 * 3
    for row, other in zip(found, expected, strict=True):
        np.testing.assert_equal(row, other)  # where both are NaN they are equal
    for seed in (0, 1):
        files = [training.policy_file(each.path, seed).read_bytes() for each in (run, whole)]
        assert files[0] == files[1]


# What is refused, in one line and before anything is written


class OneBatch(Recall):
    """A task whose lanes cannot be cut."""

    divides: ClassVar[bool] = False


class OneBatchOfWarp(OneBatch):
    """One that a simulator steps, and another could."""

    backend: ClassVar[str] = "warp"


def refused(env, devices, out, lanes=8):
    with pytest.raises(UserError) as told:
        s2pg.train("ppo", env, hyper={"lanes": lanes}, devices=devices, out=out, steps=1000)
    assert not out.exists() and "\n" not in str(told.value)
    return str(told.value)


@pytest.mark.parametrize("devices", [0, -2, True])
def test_there_is_at_least_one_device(devices, tmp_path):
    told = refused(DISCRETE, devices, tmp_path / "run")
    assert told == f"devices must be a whole number of 1 or more, not {devices}"


def test_no_more_devices_are_used_than_there_are(tmp_path):
    there = jax.local_devices()
    told = refused(DISCRETE, 1024, tmp_path / "run")
    assert told == f"there are no 1024 devices: JAX sees {len(there)} here, of kind {there[0].device_kind}"


@four
@pytest.mark.parametrize(("lanes", "near"), [(1, 4), (5, 4), (7, 8), (30, 32)])
def test_lanes_must_be_a_multiple(lanes, near, tmp_path):
    told = refused(DISCRETE, 4, tmp_path / "run", lanes)
    assert told == f"{lanes} lanes cannot be shared equally by 4 devices: --hyper lanes={near} can"


def test_tasks_of_the_host_have_no_lanes_on_devices(tmp_path):
    for task in (s2pg.make("gym:Pendulum-v1"), s2pg.make("hopper", backend="gymnasium")):
        told = refused(task, 2, tmp_path / "run")
        assert told == "this task is stepped by the host, which has no lanes on devices: --devices must be 1"


def test_lanes_that_are_stepped_in_one_batch_stay_on_one_device():
    assert [name for name, simulator in SIMULATORS.items() if not simulator.divides] == ["warp"]
    told = "^this task steps all its lanes on one device: --devices must be 1"
    for task, other in ((OneBatch, ""), (OneBatchOfWarp, ", or backend=mjx")):
        with pytest.raises(UserError, match=f"{told}{other}$"):
            layout.check(2, task(k=3), lanes=8)


def test_the_command_line_takes_a_number_of_devices(tmp_path, capsys):
    given = ["train", "ppo", "--task", "recall", "--out", str(tmp_path / "run"), "--devices"]
    assert main([*given, "0"]) == 2
    assert capsys.readouterr().err == "s2pg: devices must be a whole number of 1 or more, not 0\n"
    assert not (tmp_path / "run").exists()
