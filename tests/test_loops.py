"""Both loops under an algorithm with a replay buffer: warm-up, who acts when, and what is copied."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import s2pg
from s2pg.actor import Actor
from s2pg.algorithms.base import Plan, Policy, PolicyAlgorithm, TrainState, Traits, build_kernel, plain_heads
from s2pg.envs.base import Env
from s2pg.errors import UserError
from s2pg.io.checkpoint import Checkpoints, load_arrays
from s2pg.io.sinks import read_metrics
from s2pg.loops import EVALUATE, INIT, TRAIN, WARMUP, DeviceLoop, HostLoop
from s2pg.loops.base import warmup_pieces
from s2pg.normalise import initial, merge
from s2pg.runs import training
from s2pg.runs.assess import ASSESS
from s2pg.types import CRITIC, POLICY, Discrete
from toys import resolve

HORIZON = 50


class Clock(Env):
    """Shows the time; actions mean nothing."""

    horizon: int = eqx.field(static=True, default=HORIZON)

    @property
    def action(self):
        return Discrete(2)

    def begin(self, key):
        return jax.random.uniform(key)

    def move(self, inner, elapsed, action, key):
        return inner, 1.0 * action, jnp.zeros((), bool)

    def views(self, inner, elapsed):
        view = jnp.stack([inner, 1.0 * elapsed])
        return {POLICY: view, CRITIC: view}


class HostClock(gymnasium.Env):
    """The same on the host."""

    def __init__(self):
        self.observation_space, self.action_space = spaces.Box(-np.inf, np.inf, (2,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.view = np.asarray([self.np_random.uniform(), 0.0], np.float32)
        return self.view.copy(), {}

    def step(self, action):
        self.view[1] += 1.0
        return self.view.copy(), float(action), False, False, {}


gymnasium.register("test/Clock-v0", entry_point=HostClock, disable_env_checker=True, max_episode_steps=HORIZON)
TASKS = {"device": Clock(), "host": s2pg.make("gym:test/Clock-v0")}
KINDS = {"device": DeviceLoop, "host": HostLoop}
both = pytest.mark.parametrize("where", ["device", "host"])


class Stubborn(Actor):
    """Where it should act at random it takes action 1 instead, which no policy of two actions does for long."""

    def __call__(self, obs, z, key):
        policy = Actor(self.kernel, self.normaliser, self.memory, self.reads, self.explore)
        decision, next_z, log_prob = policy(obs, z, key)
        action = jnp.ones_like(decision.action) if self.uniform else decision.action
        return decision._replace(action=action), next_z, log_prob


class Toy(PolicyAlgorithm):
    """Stores everything in a ring and learns nothing of it: an update shakes the kernel."""

    capacity: int = eqx.field(static=True, default=20)
    warm: int = eqx.field(static=True, default=7)
    thoughts: int = eqx.field(static=True, default=0)  # what an update does besides, for it to last

    traits = Traits(replays=True)

    @property
    def plan(self):
        return Plan(self.lanes, self.steps, self.warm, uniform_warmup=True, may_lag=True)

    def actor(self, policy, explore=True):
        return Stubborn(policy.kernel, policy.normaliser, self.memory, self.reads, explore)

    def init_policy(self, spec, *, key):
        kernel = build_kernel(self.kernel, spec, self.reads, plain_heads(self.memory, spec, -0.5), key)
        return Policy(kernel, initial({name: spec.views[name] for name in self.reads}))

    def init(self, spec, shared, *, key):
        replay = {
            "obs": jnp.zeros((self.capacity, self.lanes, 2)),
            "action": jnp.zeros((self.capacity, self.lanes), jnp.int32),
            "count": jnp.zeros((), jnp.int32),
        }
        return TrainState(self.init_policy(spec, key=key), jnp.zeros(3), replay, jnp.zeros((), jnp.int32))

    def store(self, state, batch):
        ring = state.replay
        where = (ring["count"] + jnp.arange(batch.reward.shape[0])) % self.capacity
        ring = {
            "obs": ring["obs"].at[where].set(batch.obs[POLICY]),
            "action": ring["action"].at[where].set(batch.decision.action.astype(jnp.int32)),
            "count": ring["count"] + batch.reward.shape[0],
        }
        policy = state.policy._replace(normaliser=merge(state.policy.normaliser, batch.obs))
        return state._replace(replay=ring, policy=policy)

    def update(self, state, batch, shared, key):
        state = self.store(state, batch)
        drawn = state.replay["obs"][jax.random.randint(key, (), 0, self.capacity)]
        size = 0.01 * jnp.tanh(jnp.mean(drawn))
        size = jax.lax.fori_loop(0, self.thoughts, lambda _, size: jnp.sin(size), size)
        shake = size * jax.random.normal(key, ())
        policy = state.policy._replace(kernel=jax.tree.map(lambda leaf: leaf + shake, state.policy.kernel))
        return state._replace(policy=policy, updates=state.updates + 1), {"loss": size}


def rows_seen(policy):
    """How many observations the statistics of a policy count: tells which update it is from."""
    return np.asarray(policy.normaliser[POLICY].number)


@functools.cache
def ppo(size=4):
    hyper = {"lanes": 2, "steps": 3, "size": size, "width": size, "minibatches": 2}
    return resolve("ppo", TASKS["host"], hyper=hyper)[1]


@functools.cache
def toy(size=4, **changes):
    model = ppo(size)
    parts = {name: getattr(model, name) for name in ("memory", "kernel", "critic", "reads", "lanes", "steps")}
    return Toy(**parts | changes)


@pytest.fixture(scope="module")
def looper():
    """Makes loopers, one for all tests that ask for the same: what it has compiled stays."""

    @functools.cache
    def make(where, seeds=(0, 1), chunk=2, algorithm=None, **changes):
        opened.append(KINDS[where](algorithm or toy(**changes), TASKS[where], seeds, chunk, 2))
        return opened[-1]

    opened = []
    yield make
    for made in opened:
        made.close()


def same(a, b):
    """Two trees, bit for bit."""
    left, right = ([_bits(leaf) for leaf in jax.tree.leaves(tree)] for tree in (a, b))
    return jax.tree.structure(a) == jax.tree.structure(b) and left == right


def _bits(leaf):
    leaf = np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)
    return leaf.dtype, leaf.shape, leaf.tobytes()


# Warm-up


@pytest.mark.parametrize(("warm", "pieces"), [(0, []), (1, [1]), (3, [3]), (7, [3, 3, 1])])
def test_the_warm_up_is_cut_into_batches_like_those_of_updates(warm, pieces):
    assert warmup_pieces(Plan(lanes=2, steps=3, warmup=warm)) == pieces


# Two pieces of the 3 steps of an update with one left over, and less than one of them.
@pytest.mark.parametrize(("where", "warm"), [("device", 7), ("host", 7), ("device", 1)])
def test_the_warm_up_stores_every_step_in_order_and_who_acts_is_the_algorithms_choice(looper, where, warm):
    made = looper(where, warm=warm)
    loop = made.init()
    first = np.asarray(loop.carry.timestep.obs[POLICY])
    loop = made.warm_up(loop)
    ring = jax.device_get(loop.train.replay)
    assert ring["count"].tolist() == [warm, warm]
    for lane in range(2):
        np.testing.assert_array_equal(ring["obs"][:, :warm, lane, 1], [np.arange(warm)] * 2)  # the time
        np.testing.assert_array_equal(ring["obs"][:, 0, lane, 0], first[:, lane, 0])
    assert (ring["action"][:, :warm] == 1).all() and not ring["obs"][:, warm:].any()
    assert (np.asarray(loop.update) == 0).all() and (np.asarray(loop.train.updates) == 0).all()
    np.testing.assert_array_equal(loop.carry.score, warm * np.ones((2, 2)))  # episodes go on, not anew
    np.testing.assert_array_equal(rows_seen(loop.train.policy), [2 * warm] * 2)


@both
def test_learning_goes_on_where_the_warm_up_ended(looper, where):
    made = looper(where)
    loop, _ = made.advance(made.warm_up(made.init()))
    ring = jax.device_get(loop.train.replay)
    assert ring["count"].tolist() == [13, 13]  # 7 steps of warm-up, 2 updates of 3
    np.testing.assert_array_equal(ring["obs"][:, :13, :, 1], np.tile(np.arange(13.0)[None, :, None], (2, 1, 2)))
    learned = ring["action"][:, 7:13]
    assert 0 < learned.mean() < 1


@both
def test_seeds_draw_different_numbers_in_the_warm_up(looper, where):
    made = looper(where)
    z = jax.tree.leaves(made.warm_up(made.init()).carry.z)  # s2pg draws its internal states
    assert z and not any(np.isclose(leaf[0], leaf[1]).any() for leaf in z)


def test_no_two_uses_of_random_numbers_share_a_stream():
    assert len({INIT, TRAIN, EVALUATE, WARMUP, ASSESS}) == 5


@both
def test_without_a_warm_up_nothing_happens(looper, where):
    made = looper(where, warm=0)
    loop = made.init()
    assert same(made.warm_up(loop), loop)


# Who acts


def acting_updates(made, loop, updates):
    """How many updates the policy had seen by which each step was made."""
    seen, act, begun = [], made._act[True], rows_seen(loop.train.policy)[0]

    def spy(policy, *rest):
        assert isinstance(policy, Policy)  # nothing that acting does not need
        seen.append(int(rows_seen(policy)[0] - begun) // 6)
        return act(policy, *rest)

    made._act[True] = spy
    for _ in range(updates):
        loop, _ = made._update(loop)
    made._act[True] = act
    return seen, loop


def test_off_policy_the_host_acts_exactly_one_update_behind(looper):
    made = looper("host")
    seen, loop = acting_updates(made, made.warm_up(made.init()), 4)
    assert seen == [0] * 3 + [0] * 3 + [1] * 3 + [2] * 3
    assert (rows_seen(loop.acting) == 2 * 7 + 6 * 3).all() and (loop.train.updates == 4).all()


def test_on_policy_nobody_lags(looper):
    made = looper("host", algorithm=ppo())
    loop = made.init()
    assert loop.acting == ()
    assert acting_updates(made, loop, 3)[0] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


ONE_THREAD = len(os.sched_getaffinity(0)) < 2 or os.environ.get("NPROC") == "1"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core does one thing at a time")
@pytest.mark.skipif(not ONE_THREAD, reason="the next test runs right here")
def test_with_threads_for_both_an_update_is_under_way_while_the_next_steps_are_taken():
    test = f"{__file__}::test_an_update_is_under_way_while_the_next_steps_are_taken"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", test]
    run = subprocess.run(
        command, env=os.environ | {"NPROC": "2", "XLA_FLAGS": ""}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0 and "1 passed" in run.stdout, run.stdout


@pytest.mark.skipif(ONE_THREAD, reason="one thread does one thing at a time")
def test_an_update_is_under_way_while_the_next_steps_are_taken(looper):
    # Not tiny: what is small enough is computed at once, whatever else is under way.
    made = looper("host", seeds=(0,), thoughts=30_000_000, size=64)
    learn, complete = made._learn, []

    def spy(replay, train, *rest):
        complete.append(all(leaf.is_ready() for leaf in jax.tree.leaves(train.policy.kernel)))
        return learn(replay, train, *rest)

    made._learn = spy  # sees the result of the update before, when the batch after it is there
    loop = jax.block_until_ready(made.warm_up(made.init()))
    for _ in range(4):
        loop, _ = made._update(loop)
    assert complete == [True, False, False, False]


def test_evaluation_is_by_the_newest_policy(looper):
    made = looper("host")
    loop, _ = made.advance(made.warm_up(made.init()))
    newest = made.evaluate(loop)
    lagging = made.evaluate(loop._replace(acting=()))
    assert same(newest, lagging)


# What is copied, and what is compiled


def test_the_host_writes_the_buffer_in_place_and_keeps_the_policy_it_acts_with(looper):
    made = looper("host", capacity=5_000)
    loop = made.warm_up(made.init())
    place = loop.train.replay["obs"].unsafe_buffer_pointer()
    for _ in range(3):
        before = loop
        loop, _ = made._update(loop)
        assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before.train.replay))
        assert loop.train.replay["obs"].unsafe_buffer_pointer() == place
        kept = jax.tree.leaves((before.train.policy, before.acting, loop.acting))
        assert not any(leaf.is_deleted() for leaf in kept)


def workspace(compiled, replay):
    """(bytes that a compiled function needs beside its arguments and results, bytes of the buffer)."""
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(replay))
    analysis = compiled.memory_analysis()
    assert analysis.alias_size_in_bytes >= size
    return analysis.temp_size_in_bytes, size


def test_the_device_needs_no_second_buffer(looper):
    made = looper("device", capacity=5_000, chunk=3)
    loop = made.shapes()
    for lowered in (made._advance.lower(loop, made.shared), made._warm_up.lower(loop)):
        temporary, size = workspace(lowered.compile(), loop.train.replay)
        assert temporary < size / 4


def test_nor_does_the_update_on_the_host(looper):
    made = looper("host", capacity=5_000)
    loop = made.shapes()
    timestep = loop.carry.timestep
    row = jax.eval_shape(made._act[True], loop.acting, timestep, loop.carry.z, loop.key, 0)
    row = row._replace(obs=timestep.obs, next_obs=timestep.obs)
    given = (loop.train.replay, loop.train._replace(replay=()), loop.key, loop.update)
    compiled = made._learn.lower(*given, [row] * 3, [timestep] * 3, made.shared).compile()
    temporary, size = workspace(compiled, loop.train.replay)
    assert temporary < size / 4


def test_the_host_compiles_each_function_once(looper):
    made = looper("host", chunk=3)
    loop = made.warm_up(made.init())
    for _ in range(2):
        loop, _ = made.advance(loop)
    loop, _ = made.unpack(made.pack(loop))
    made.advance(loop)
    counts = [made._act[True], made._act_warmup, made._learn, made._key]
    assert [function._cache_size() for function in counts] == [1] * 4
    assert made._store._cache_size() == 2  # whole pieces, and the one left over


# Runs


def train(where, out, chunks, resume=False, **changes):
    """Chunks of 2 updates of 2 x 3 steps, after 2 x 7 of warm-up."""
    algorithm = toy(**changes)
    return training.train(
        algorithm, TASKS[where], seeds=(0, 1), steps=14 + 12 * chunks, out=out, chunk=2, episodes=2, resume=resume
    )


def newest(out):
    files = Checkpoints(out / training.CHECKPOINTS)
    step = files.steps()[-1]
    return load_arrays(files.path(step))[0], load_arrays(files.bulk_path(step))[0]


@both
def test_a_resumed_run_equals_an_undisturbed_one_bit_for_bit(where, tmp_path):
    train(where, tmp_path / "whole", 4)
    train(where, tmp_path / "run", 2)
    train(where, tmp_path / "run", 4, resume=True)
    (left, replay), (right, other) = newest(tmp_path / "whole"), newest(tmp_path / "run")
    assert same(left, right) and same(replay, other)
    assert replay["count"].tolist() == [31, 31]
    rows = [read_metrics(tmp_path / name / training.METRICS) for name in ("whole", "run")]
    for row in (*rows[0], *rows[1]):
        del row["wall_s"], row["steps_per_s"]
    assert rows[0] == rows[1]
    if where == "host":  # the lag went with it
        assert left["loop/acting/normaliser/policy/number"].tolist() == [2 * 7 + 6 * 7] * 2
        assert left["loop/train/policy/normaliser/policy/number"].tolist() == [2 * 7 + 6 * 8] * 2


@both
def test_steps_of_the_warm_up_count(where, tmp_path):
    borders = []
    algorithm = toy()
    training.train(
        algorithm, TASKS[where], seeds=(0, 1), steps=14 + 13, out=tmp_path, chunk=2, episodes=2, report=borders.append
    )
    assert [(border.step, border.steps) for border in borders] == [(0, 38), (0, 38), (26, 38), (38, 38)]
    assert [row["step"] for row in read_metrics(tmp_path / training.METRICS)] == [26, 26, 38, 38]
    assert Checkpoints(tmp_path / training.CHECKPOINTS).steps() == [26, 38]


def test_the_borders_divide_the_steps_that_learn():
    assert training.updates_per_chunk(toy().plan, 14 + 6 * 50 * 4) == 4
    assert training.updates_per_chunk(toy(warm=0).plan, 6 * 50 * 4) == 4
    assert training.updates_per_chunk(toy().plan, 5) == 1


def test_a_run_that_is_all_warm_up_is_refused_before_anything_is_built(tmp_path):
    for steps in (1, 14):
        with pytest.raises(UserError, match=f"^{steps} steps are all warm-up \\(learning_starts\\): train for more$"):
            training.train(toy(), TASKS["device"], seeds=(0,), steps=steps, out=tmp_path / "run")
    with pytest.raises(UserError, match=r"^5,000 steps are all"):
        training.train(toy(warm=2500), TASKS["device"], seeds=(0,), steps=5000, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@both
def test_the_bytes_of_a_buffer_are_known_before_there_is_one(looper, where):
    algorithm = toy()
    replay = looper(where).init().train.replay
    assert 2 * training.replay_bytes(algorithm, TASKS[where].spec) == sum(leaf.nbytes for leaf in replay.values())
    assert training.replay_bytes(ppo(), TASKS[where].spec) == 0


def test_a_buffer_that_does_not_fit_is_refused_before_anything_is_built(tmp_path, monkeypatch):
    training.check_room(5 * 2**30, 5, 5 * 2**30)
    with pytest.raises(
        UserError, match=r"^the replay buffer of 5 seeds would take 37\.3 GiB, and there is room for 23\.4 GiB: m"
    ):
        training.check_room(int(37.3 * 2**30), 5, int(23.4 * 2**30))
    with pytest.raises(UserError, match="of 1 seed would"):
        training.check_room(2, 1, 1)
    assert training.device_memory() > 2**28
    room = 1 + 3 * training.replay_bytes(toy(), TASKS["device"].spec) / training.ROOM
    monkeypatch.setattr(training, "device_memory", lambda: room)
    training.check(toy(), TASKS["device"].spec, (0, 1, 2), 100)
    with pytest.raises(UserError, match=r"of 4 seeds .* make 'capacity' smaller$"):
        training.train(toy(), TASKS["device"], seeds=(0, 1, 2, 3), steps=100, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# Acting on one device while another learns


def on_two_devices():
    """The same run with and without a device to act on: what `HostLoop` does beside an accelerator."""
    learns, acts = jax.devices()
    ends = []
    for near in (None, acts):
        made = HostLoop(toy(), TASKS["host"], (0, 1), 2, 2, near=near)
        loop, _ = made.advance(made.warm_up(made.init()))
        loop, exact = made.unpack(jax.tree.map(lambda leaf: leaf, made.pack(loop)))
        loop, metrics = made.advance(loop)
        ends.append(jax.device_get((metrics, made.evaluate(loop), loop.train, loop.carry, loop.acting)))
        assert exact
        assert all(leaf.devices() == {near or learns} for leaf in jax.tree.leaves(loop.carry.z))
        assert all(leaf.devices() == {learns} for leaf in jax.tree.leaves((loop.train, loop.acting)))
        assert made._act[True]._cache_size() == made._learn._cache_size() == 1
        made.close()
    assert same(*ends)


def test_acting_on_a_device_of_its_own_changes_nothing():
    here = Path(__file__)
    code = f"import conftest, {here.stem}; {here.stem}.on_two_devices()"
    given = os.environ | {"JAX_NUM_CPU_DEVICES": "2", "PYTHONPATH": str(here.parent)}
    subprocess.run([sys.executable, "-c", code], check=True, env=given, cwd=here.parent)
