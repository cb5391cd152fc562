"""A run that was stopped, however and whenever, goes on as if nothing had happened."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import s2pg
from s2pg.algorithms import ALGORITHMS, Algorithm
from s2pg.errors import UserError
from s2pg.io import trackers
from s2pg.io.checkpoint import Checkpoints, fingerprint, load_arrays
from s2pg.loops import HostLoop
from s2pg.runs import assess, training
from s2pg.runs.experiment import read_config
from s2pg.runs.training import Interruption
from toys import resolve

HYPER = {"size": 4, "width": 4, "epochs": 1, "minibatches": 2}
RECALL = {
    "env": ("recall", {"k": 4}), "hyper": HYPER | {"lanes": 4, "steps": 8}, "steps": 32 * 24, "seeds": [0, 3],
    "episodes": 4,
}  # fmt: skip
# Episodes of 50 steps against batches of 32: open ones cross every border.
PENDULUM = {
    "env": ("gym:Pendulum-v1", {"horizon": 50}), "hyper": HYPER | {"lanes": 2, "steps": 32}, "steps": 64 * 18,
    "seeds": [5], "episodes": 2,
}  # fmt: skip
# Off policy, with a buffer that has come round by the end.
REPLAY = {"size": 4, "width": 4, "lanes": 2, "learning_starts": 40, "batch_size": 8, "capacity": 200}
SAC = {
    "algorithm": "sac", "env": ("recall", {"k": 3, "cue": "real"}), "hyper": REPLAY | {"steps": 4},
    "steps": 40 + 8 * 24, "seeds": [0, 3], "episodes": 4,
}  # fmt: skip
HOST_SAC = SAC | {"env": PENDULUM["env"], "hyper": REPLAY | {"steps": 16}, "steps": 40 + 32 * 12, "episodes": 2}
PLAIN_SAC = HOST_SAC | {"memory": "none"}  # which compiles in less time
CHILD = """
import json, sys
import s2pg
from s2pg.configure import compilation_cache
compilation_cache()
given = json.loads(sys.argv[1])
task, options = given.pop("env")
s2pg.train(given.pop("algorithm", "ppo"), s2pg.make(task, **options), **given)
"""


def train(out, setting, **changes):
    given = setting | changes
    task, options = given.pop("env")
    return s2pg.train(given.pop("algorithm", "ppo"), s2pg.make(task, **options), out=out, **given)


def child(out, setting, **changes):
    return subprocess.Popen([sys.executable, "-c", CHILD, json.dumps(setting | {"out": str(out)} | changes)])


def rows_of(out):
    file = out / training.METRICS
    return file.read_bytes().count(b"\n") if file.exists() else 0


def stopped(out, setting, rows, delay):
    """Starts or resumes the run in a process of its own and ends it `delay` seconds after it has so many rows."""
    process = child(out, setting, resume=True)
    while rows_of(out) < rows and process.poll() is None:
        time.sleep(0.002)
    time.sleep(delay)
    process.kill()
    return process.wait(timeout=60)


def assert_same(a, b):
    """Metrics but for time, every byte of the policies, every bit of the last checkpoint and its replay buffer."""
    timeless = [
        [{name: value for name, value in row.items() if name not in ("wall_s", "steps_per_s")} for row in run.metrics]
        for run in (a, b)
    ]
    assert timeless[0] == timeless[1]
    for seed in a.experiment.seeds:
        files = [training.policy_file(run.path, seed).read_bytes() for run in (a, b)]
        assert files[0] == files[1]
    folders = [Checkpoints(run.path / training.CHECKPOINTS) for run in (a, b)]
    steps = folders[0].steps()
    assert steps == folders[1].steps()
    buffers = [[step for step in steps if folder.bulk_path(step).exists()] for folder in folders]
    assert buffers[0] == buffers[1] == ([steps[-1]] if a.experiment.algorithm in ("sac", "slac") else [])
    assert_same_arrays(*(folder.path(steps[-1]) for folder in folders))
    if buffers[0]:
        assert_same_arrays(*(folder.bulk_path(steps[-1]) for folder in folders))


def assert_same_arrays(one, other):
    (left, meta), (right, others) = load_arrays(one), load_arrays(other)
    assert meta["chunks"] == others["chunks"] and left.keys() == right.keys()
    for name, array in left.items():
        found = right[name]
        assert (array.dtype, array.shape, array.tobytes()) == (found.dtype, found.shape, found.tobytes())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbed."""
    return train(tmp_path_factory.mktemp("whole") / "run", RECALL)


@pytest.fixture
def copy(whole, tmp_path):
    return s2pg.Run(shutil.copytree(whole.path, tmp_path / "copy"))


def test_a_killed_run_resumes_bit_for_bit_on_the_device(whole, tmp_path):
    assert stopped(tmp_path / "run", RECALL, rows=10, delay=random.Random(1).uniform(0.0, 0.05)) == -9
    lines = []
    run = train(tmp_path / "run", RECALL, steps=None, resume=True, say=lines.append)  # None: the run's own
    assert_same(run, whole)
    assert len(lines) == 1 and "took over from process" in lines[0]
    walls = [row["wall_s"] for row in run.metrics if row["seed"] == 0]
    assert walls == sorted(walls)  # time goes on too


@pytest.fixture(scope="module")
def whole_sac(tmp_path_factory):
    """The same with a replay buffer, on the host."""
    return train(tmp_path_factory.mktemp("sac") / "run", PLAIN_SAC)


def test_so_does_one_with_a_replay_buffer_on_the_host(whole_sac, tmp_path):
    lines = []
    assert stopped(tmp_path / "run", PLAIN_SAC, rows=5, delay=random.Random(2).uniform(0.0, 0.2)) == -9
    assert_same(train(tmp_path / "run", PLAIN_SAC, resume=True, say=lines.append), whole_sac)
    assert len(lines) == 1 and "took over from process" in lines[0]


def test_a_run_whose_buffer_is_gone_says_so(whole_sac, tmp_path):
    out = shutil.copytree(whole_sac.path, tmp_path / "run")
    files = Checkpoints(out / training.CHECKPOINTS)
    *_, before, newest = files.steps()
    files.path(newest).unlink()
    with pytest.raises(
        UserError, match=rf"0{before}\.npz has no replay buffer, which only the newest one keeps: start afresh"
    ):
        train(out, PLAIN_SAC, resume=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "spacing", "longest"),
    [(RECALL, 8, 0.06), (PENDULUM, 3, 0.3), (SAC, 8, 0.1), (HOST_SAC, 4, 0.3)],
    ids=["recall", "gym:Pendulum-v1", "sac-recall", "sac-gym:Pendulum-v1"],
)
def test_a_run_killed_at_five_random_moments_equals_an_undisturbed_one(tmp_path, setting, spacing, longest):
    draw = random.Random(3)
    for name, moments in (("whole", []), ("run", range(5))):
        for number in moments:
            # The first one while it starts, the others somewhere within or between two borders.
            rows = number * spacing + draw.randrange(2) if number else 0
            delay = draw.uniform(0.0, longest) if number else draw.uniform(1.0, 4.0)
            assert stopped(tmp_path / name, setting, rows, delay) == -9
            print(f"killed {delay:.3f} s after row {rows}: {rows_of(tmp_path / name)} rows")
        assert child(tmp_path / name, setting, resume=True).wait(timeout=120) == 0
    assert_same(s2pg.Run(tmp_path / "run"), s2pg.Run(tmp_path / "whole"))


def test_ctrl_c_stops_at_the_next_border_and_a_second_one_at_once(whole, tmp_path):
    def interrupt(times):
        def report(border):
            if border.step == 32 * 5:
                for _ in range(times):
                    signal.raise_signal(signal.SIGINT)

        return report

    before = signal.getsignal(signal.SIGINT)
    for times, error in ((1, Interruption), (2, KeyboardInterrupt)):
        out, lines = tmp_path / str(times), []
        with pytest.raises(error):
            train(out, RECALL, report=interrupt(times), say=lines.append)
        assert lines == ["stopping at the next checkpoint; Ctrl-C again stops at once"]
        assert signal.getsignal(signal.SIGINT) is before
        assert rows_of(out) == 5 * 2
    assert_same(train(out, RECALL, resume=True), whole)


def test_resume_starts_afresh_where_a_killed_process_left_nothing_but_a_torn_file(whole, tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    (out / ".config.json.123.partial").write_text("{")
    assert_same(train(out, RECALL, resume=True), whole)
    assert not list(out.rglob(".*.partial"))


def test_more_steps_give_the_longer_run(whole, tmp_path, monkeypatch):
    hidden = []

    class Board(trackers.Tracker):
        def __init__(self, folder, resumed):
            hidden.append(resumed)

        def write(self, rows):
            hidden.append(rows[0]["step"])

        def close(self):
            hidden.append("closed")

        @classmethod
        def check(cls):
            pass

    monkeypatch.setitem(trackers.TRACKERS, "board", Board)
    train(tmp_path / "run", RECALL, steps=32 * 5, log=["board"])
    del hidden[1:-1]
    run = train(tmp_path / "run", RECALL, resume=True, log=["board"])
    assert_same(run, whole)
    assert run.experiment == whole.experiment
    first, then, resumed, *_, last = hidden
    assert (first, then, resumed, last) == (None, "closed", 32 * 5, "closed")
    assert hidden[3] > 32 * 5  # the last row before the break is not written again


def test_a_complete_run_is_left_alone_but_what_a_kill_spoilt_is_mended(whole, copy):
    """Killed after the last checkpoint, before the policies, or while a row was written that no checkpoint counts."""
    training.policy_file(copy.path, 0).unlink()
    shutil.copy(training.policy_file(copy.path, 3), training.policy_file(copy.path, 0))
    training.policy_file(copy.path, 3).unlink()
    with (copy.path / training.METRICS).open("a") as file:
        file.write('{"step": 800')
    before = (copy.path / training.CONFIG).read_bytes()
    for steps in (None, RECALL["steps"], 32):
        lines = []
        assert_same(train(copy.path, RECALL, steps=steps, resume=True, say=lines.append), whole)
        assert lines == [f"{copy.path} has 768 steps already: nothing to do"]
        assert (copy.path / training.CONFIG).read_bytes() == before  # fewer steps change nothing


def test_a_damaged_newest_checkpoint_is_named_with_the_way_out(whole, copy):
    files = Checkpoints(copy.path / training.CHECKPOINTS)
    newest = files.path(files.steps()[-1])
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.raises(UserError, match=f"{newest.name} is damaged .*step 736, is whole: delete .*{newest.name}"):
        train(copy.path, RECALL, resume=True)
    newest.unlink()
    assert_same(train(copy.path, RECALL, resume=True), whole)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"env": ("recall", {"k": 5})}, "options"),
        ({"hyper": RECALL["hyper"] | {"learning_rate": 0.1}}, "hyper"),
        ({"seeds": [3, 0]}, "seeds"),
        ({"memory": "none"}, "memory"),
        ({"critic": "critic"}, "critic"),
        ({"episodes": 5}, "episodes"),
    ],
)
def test_only_steps_may_differ(copy, changes, named):
    before = (copy.path / training.CONFIG).read_bytes()
    with pytest.raises(UserError, match=f"cannot resume .*: {named} was .* only steps may differ"):
        train(copy.path, RECALL, resume=True, **changes)
    assert (copy.path / training.CONFIG).read_bytes() == before


def test_nothing_is_overwritten_unasked(copy, tmp_path):
    with pytest.raises(UserError, match="is a run already: --resume"):
        train(copy.path, RECALL)
    assert_same(copy, s2pg.Run(copy.path))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "notes", tmp_path / "file"):
        for resume in (False, True):
            with pytest.raises(UserError, match="exists and is no run"):
                train(out, RECALL, resume=resume)
    with pytest.raises(UserError, match="cannot make the folder"):
        train(tmp_path / "file" / "run", RECALL)


# Runs of earlier versions


def made_earlier(run, schema):
    """The run as a version with another schema would have left it."""
    file = run.path / training.CONFIG
    config = json.loads(file.read_text())
    del config["sha256"]
    file.write_text(json.dumps(config | {"schema": schema, "versions": config["versions"] | {"s2pg": "0.1.0"}}))


@pytest.mark.parametrize("schema", [1, 2])
def test_a_run_of_an_earlier_schema_can_be_evaluated(schema, whole, copy):
    made_earlier(copy, schema)
    found, expected = (assess.played(run.env(), s2pg.load(run.path, 3).actor, 4).returns for run in (copy, whole))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("schema", [1, 2])
def test_but_not_resumed_which_one_line_says(schema, copy):
    made_earlier(copy, schema)
    told = r"^\S+ was made by s2pg 0\.1\.0 and can be evaluated, not resumed: train it anew$"
    with pytest.raises(UserError, match=told):
        train(copy.path, RECALL, resume=True)


def test_a_run_of_a_schema_to_come_is_neither(copy):
    made_earlier(copy, 4)
    for use in (lambda: s2pg.load(copy.path), lambda: train(copy.path, RECALL, resume=True)):
        with pytest.raises(UserError, match="has schema 4; this version of s2pg reads 1, 2, 3"):
            use()


# Shared data


class Taught(Algorithm):
    """PPO beside which arrays lie that all seeds share; it only looks at them."""

    inner: Algorithm

    plan = property(lambda self: self.inner.plan)

    def init_policy(self, spec, *, key):
        return self.inner.init_policy(spec, key=key)

    def init(self, spec, shared, *, key):
        state = self.inner.init(spec, (), key=key)
        return state._replace(learner=(state.learner, look(shared)))

    def actor(self, policy, explore=True):
        return self.inner.actor(policy, explore)

    def store(self, state, batch):
        return state

    def update(self, state, batch, shared, key):
        learner, seen = state.learner
        state, metrics = self.inner.update(state._replace(learner=learner), batch, (), key)
        return state._replace(learner=(state.learner, seen)), metrics | {"at_init": seen, "at_update": look(shared)}


def look(shared):
    """A number that depends on every entry and on their order."""
    (table,) = jax.tree.leaves(shared)
    assert table.shape == (1000, 50)  # one for all seeds
    return jnp.sum(table * jnp.arange(table.size, dtype=jnp.float32).reshape(table.shape)) / table.size


def demonstrations(seed=0):
    return {"obs": np.random.default_rng(seed).normal(size=(1000, 50)).astype(np.float32)}


TAUGHT = RECALL | {"algorithm": "taught", "steps": 32 * 2}


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    s2pg.register_algorithm("taught", Taught, wraps="ppo")
    yield train(tmp_path_factory.mktemp("taught") / "run", TAUGHT, shared=demonstrations())
    del ALGORITHMS["taught"]


def test_shared_data_reach_every_seed_unchanged_at_the_start_and_in_every_update(taught):
    expected = float(look(demonstrations()))
    assert {row["seed"] for row in taught.metrics} == {0, 3}
    for row in taught.metrics:
        assert row["at_init"] == pytest.approx(expected, rel=1e-4) and row["at_update"] == row["at_init"]


def test_shared_data_are_in_no_file_of_a_run_but_for_their_fingerprint(taught):
    size = demonstrations()["obs"].nbytes
    assert all(path.stat().st_size < size / 2 for path in taught.path.rglob("*") if path.is_file())
    files = Checkpoints(taught.path / training.CHECKPOINTS)
    arrays, meta = load_arrays(files.path(files.steps()[-1]))
    assert max(array.size for array in arrays.values()) < 1000
    assert meta["shared"] == fingerprint(demonstrations()) != fingerprint(demonstrations(1))
    assert s2pg.load(taught.path).session()([0.0, 1.0]) in (0, 1)  # and none are needed to act


def test_a_run_is_resumed_with_the_same_shared_data_alone(taught, tmp_path):
    copy = s2pg.Run(shutil.copytree(taught.path, tmp_path / "copy"))
    other = demonstrations()
    other["obs"][999, 49] += 1.0
    for wrong in (other, {"act": demonstrations()["obs"]}):
        with pytest.raises(UserError, match=r"^cannot resume \S+: it was trained with other shared data$"):
            train(copy.path, TAUGHT, steps=32 * 3, resume=True, shared=wrong)
    longer = train(copy.path, TAUGHT, steps=32 * 3, resume=True, shared=demonstrations())
    assert [row["step"] for row in longer.metrics if row["seed"] == 0] == [32, 64, 96]
    assert len({row["at_update"] for row in longer.metrics}) == 1


# Environments that no seed decides


class Moody(gymnasium.Env):
    """Not deterministic: where an episode begins, no seed decides."""

    def __init__(self):
        self.observation_space, self.action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.mood = np.random.default_rng().uniform(-1, 1, 2).astype(np.float32)
        return self.mood, {}

    def step(self, action):
        return self.mood, 0.0, False, False, {}


gymnasium.register("test/Moody-v0", entry_point=Moody, disable_env_checker=True, max_episode_steps=20)
MOODY = {"env": ("gym:test/Moody-v0", {}), "hyper": HYPER | {"lanes": 2, "steps": 4}, "seeds": [0], "episodes": 1}


def test_an_environment_that_is_not_deterministic_is_said_so(tmp_path):
    lines = []
    train(tmp_path / "run", MOODY, steps=8)
    train(tmp_path / "run", MOODY, steps=16, resume=True, say=lines.append)
    assert lines == ["the environment is not deterministic: its open episodes could not be replayed exactly"]


def test_it_goes_on_from_what_the_environment_shows_now():
    task = s2pg.make("gym:test/Moody-v0")
    _, algorithm = resolve("ppo", task, hyper=MOODY["hyper"], steps=8)
    looper = HostLoop(algorithm, task, (0,), 1, 1)
    loop = looper.init()
    looper.lanes.step(np.zeros((1, 2), np.int32))
    again, exact = looper.unpack(looper.pack(loop))
    assert not exact
    shown = looper.lanes.step(np.zeros((1, 2), np.int32)).obs["policy"]  # it shows the same all episode long
    np.testing.assert_array_equal(again.carry.timestep.obs["policy"], shown)
    assert (np.asarray(loop.carry.timestep.obs["policy"]) != shown).all()
    looper.close()


class Dials(gymnasium.Env):
    """Shows two of three dials, each with positions of its own, which the agent sets; all at their ends is best."""

    action_space = spaces.MultiDiscrete([3, 2, 5], start=[1, 0, -2])
    observation_space = spaces.MultiDiscrete([3, 2], start=[1, 0])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.dials = np.array([1, self.np_random.integers(2), -2])
        return self.dials[:2], {}

    def step(self, action):
        assert action in self.action_space
        self.dials = action
        return self.dials[:2], float(self.dials.sum()), False, False, {}


gymnasium.register("test/Dials-v0", entry_point=Dials, disable_env_checker=True, max_episode_steps=5)
DIALS = {
    "env": ("gym:test/Dials-v0", {}), "hyper": HYPER | {"lanes": 2, "steps": 4}, "steps": 16, "seeds": [0],
    "episodes": 1, "borders": 2,
}  # fmt: skip


@pytest.mark.parametrize("memory", ["s2pg", "bptt-2", "none"])
def test_a_task_of_several_discrete_axes_is_trained_and_played(tmp_path, memory):
    run, task = train(tmp_path, DIALS, memory=memory), s2pg.make("gym:test/Dials-v0")
    assert read_config(tmp_path)[1] == run.spec == task.spec
    session, world = s2pg.load(tmp_path).session(explore=True), gymnasium.make("test/Dials-v0")
    observation, _ = world.reset(seed=0)
    for _ in range(5):
        observation, *_, ended, _ = world.step(session(task.read(observation)))
    assert ended


def test_a_run_of_several_discrete_axes_is_resumed_and_evaluated(tmp_path):
    lines = []
    train(tmp_path, DIALS, memory="none", steps=8, borders=1)
    train(tmp_path, DIALS, memory="none", resume=True, say=lines.append)
    assert not lines
    returns = assess.played(s2pg.make("gym:test/Dials-v0"), s2pg.load(tmp_path).actor, episodes=2).returns
    assert np.all((returns >= -5.0) & (returns <= 30.0))
    with pytest.raises(UserError, match="sac needs continuous actions, and this task has discrete ones"):
        resolve("sac", s2pg.make("gym:test/Dials-v0"))
