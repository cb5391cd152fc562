"""Runs that imitate: demonstrations by file, one-line refusals, and resuming bit for bit."""

import dataclasses
import json

import numpy as np
import pytest

import s2pg
import toys
from s2pg import demos
from s2pg.envs.mujoco.humanoid_ages import JOINTS
from s2pg.errors import UserError
from s2pg.io.sinks import read_metrics
from s2pg.runs.demonstrated import differences
from s2pg.runs.expert import without_motion
from s2pg.types import Box, Spec
from strides import stride, write_motion

TASK, OPTIONS = "recall", {"k": 3, "cue": "real"}
TINY = {
    "gail": {"size": 4, "width": 4, "lanes": 4, "steps": 6, "judge_inputs": "action", "judge_width": 4},
    "lsiq": {
        "size": 4, "width": 4, "lanes": 2, "learning_starts": 40, "batch_size": 8, "capacity": 200, "anneal_updates": 0,
    },
    "bc": {"size": 4, "width": 4, "batch_size": 8},
}  # fmt: skip


def demonstrations():
    given = toys.scripted(s2pg.make(TASK, **OPTIONS), 6)
    obs, next_obs = ({name: np.asarray(view) for name, view in each.items()} for each in (given.obs, given.next_obs))
    return demos.Demonstrations(
        obs=obs, next_obs=next_obs, action=np.asarray(given.action), terminated=np.asarray(given.terminated),
        first=np.asarray(given.first), task=TASK,
    )  # fmt: skip


@pytest.fixture
def file(tmp_path):
    demos.write(tmp_path / "expert.npz", demonstrations())
    return tmp_path / "expert.npz"


def train(algorithm, out, steps, memory="bptt-3", **given):
    asked = {"memory": memory, "hyper": TINY.get(algorithm, {}), "steps": steps, "episodes": 4, "seeds": (0, 2)}
    return s2pg.train(algorithm, s2pg.make(TASK, **OPTIONS), out=out, **asked, **given)


@pytest.mark.parametrize(
    ("algorithm", "steps"), [pytest.param("gail", 24 * 4, marks=pytest.mark.slow), ("lsiq", 40 + 2 * 12), ("bc", 4)]
)
def test_a_run_goes_on_bit_for_bit(tmp_path, file, algorithm, steps):
    half = {"gail": 24 * 2, "lsiq": 40 + 2 * 6, "bc": 2}[algorithm]
    memory = "bptt-3" if algorithm == "bc" else "s2pg"
    whole = train(algorithm, tmp_path / "whole", steps, memory, demos=file, borders=2)
    train(algorithm, tmp_path / "parts", half, memory, demos=file, borders=1)
    parts = train(algorithm, tmp_path / "parts", steps, memory, demos=file, borders=1, resume=True)

    def last(run):
        rows = read_metrics(run.path / "metrics.jsonl")
        return [{name: row[name] for name in row if name not in ("wall_s", "steps_per_s")} for row in rows[-2:]]

    assert last(whole) == last(parts)
    assert json.loads((parts.path / "config.json").read_text())["demos"] == "expert.npz"


def test_other_demonstrations_are_refused_when_a_run_goes_on(tmp_path, file):
    train("bc", tmp_path / "run", 2, demos=file, borders=1)
    others = demonstrations()
    demos.write(tmp_path / "others.npz", dataclasses.replace(others, action=-others.action))
    with pytest.raises(UserError, match="other shared data"):
        train("bc", tmp_path / "run", 4, demos=tmp_path / "others.npz", resume=True)


def test_demonstrations_of_another_task_are_told(tmp_path):
    demos.write(tmp_path / "other.npz", dataclasses.replace(demonstrations(), task="pendulum"))
    said = []
    train("bc", tmp_path / "run", 1, "none", demos=tmp_path / "other.npz", borders=1, say=said.append)
    assert any("holds demonstrations of pendulum, and this is recall" in line for line in said)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"gait": "run", "size": 1.0, "backend": "mjx", "demos": "a.npz"}, {"gait": "run", "size": 1.0}),
        ({"hide": "none", "iterations": 3, "scaling": "sound", "size": 0}, {}),
        ({"hide": ["positions"]}, {"hide": ["positions"]}),
        (None, {}),  # of somebody else
    ],
)
def test_options_that_differ_and_matter_are_found(options, told):
    env = s2pg.make("humanoid-ages", backend="gymnasium")
    trained = toys.resolve("bc", env, memory="none")[0]
    differing = differences(options, trained, reads_policy=True)
    assert {name: was for name, (was, _) in differing.items()} == told
    assert all(now == {"gait": "walk", "size": 0.0, "hide": "none"}[name] for name, (_, now) in differing.items())
    assert "hide" not in differences(options, trained, reads_policy=False)


def test_demonstrations_with_other_options_are_told_and_learned_from(tmp_path):
    other = dataclasses.replace(demonstrations(), notes={"options": {"k": 5, "cue": "real"}})
    demos.write(tmp_path / "other.npz", other)
    said = []
    train("bc", tmp_path / "run", 1, "none", demos=tmp_path / "other.npz", borders=1, say=said.append)
    assert f"{tmp_path}/other.npz was recorded with k=5, and this task has k=3" in said
    demos.write(tmp_path / "slow.npz", dataclasses.replace(other, dt=7.0))
    with pytest.raises(UserError, match="a step of 7 s, and the task one of 1 s"):
        train("bc", tmp_path / "b", 1, "none", demos=tmp_path / "slow.npz")


def test_what_is_missing_is_said_in_a_line(tmp_path, file):
    with pytest.raises(UserError, match="gail learns from demonstrations: name a file with --demos"):
        train("gail", tmp_path / "a", 100)
    with pytest.raises(UserError, match="ppo does not learn from demonstrations"):
        train("ppo", tmp_path / "b", 100, demos=file)
    silent = dataclasses.replace(demonstrations(), action=None)
    demos.write(tmp_path / "silent.npz", silent)
    with pytest.raises(UserError, match="lsiq needs demonstrations with actions"):
        train("lsiq", tmp_path / "c", 100, demos=tmp_path / "silent.npz")
    blind = {"policy": silent.obs["policy"]}
    demos.write(tmp_path / "blind.npz", dataclasses.replace(demonstrations(), obs=blind, next_obs=blind))
    with pytest.raises(UserError, match="lack the task's view 'critic'"):
        train("lsiq", tmp_path / "d", 100, demos=tmp_path / "blind.npz")
    with pytest.raises(UserError, match="bc learns from demonstrations"):
        train("bc", tmp_path / "e", 4, shared={"obs": np.zeros(3)})
    assert not (tmp_path / "a").exists()


def test_what_follows_a_motion_alone_is_not_recorded():
    played = dataclasses.replace(
        demonstrations(), notes={"options": {"k": 3, "demos": "walk.npz", "reward": "tracking"}}
    )
    shorter = Spec({"policy": 2, "critic": 1}, Box((-1.0,), (1.0,)), 3)
    cut = without_motion(played, shorter)
    np.testing.assert_array_equal(cut.obs["critic"], played.obs["critic"][:, :1])
    np.testing.assert_array_equal(cut.next_obs["policy"], played.next_obs["policy"])
    assert cut.notes["options"] == {"k": 3}


def test_experts_are_of_tasks_that_follow_motions(tmp_path):
    with pytest.raises(UserError, match="unknown task that follows motions 'recall'"):
        s2pg.expert("recall", tmp_path / "a.npz", "walk.npz")
    with pytest.raises(UserError, match="'reward' of atlas-carry is set by the expert"):
        s2pg.expert("atlas-carry", tmp_path / "a.npz", "walk.npz", options={"reward": "speed"})
    with pytest.raises(UserError, match="is where the motion lies"):
        s2pg.expert("atlas-carry", tmp_path / "a.npz", tmp_path / "a.npz")
    with pytest.raises(UserError, match="is where the run lies"):
        s2pg.expert("atlas-carry", f"{tmp_path}/a/", "walk.npz")
    with pytest.raises(UserError, match="noise must be 0 or more"):
        s2pg.expert("atlas-carry", tmp_path / "a.npz", "walk.npz", noise=(-1.0,))
    with pytest.raises(UserError, match="there is no file"):
        s2pg.expert("atlas-carry", tmp_path / "a.npz", tmp_path / "walk.npz")


def test_an_expert_learns_and_its_episodes_fit_the_task(tmp_path):
    write_motion(tmp_path / "walk.npz", JOINTS, stride(JOINTS))
    hyper = {"lanes": 2, "steps": 8, "minibatches": 2, "epochs": 1, "width": 8}
    asked = {"options": {"backend": "gymnasium", "size": 1.0}, "hyper": hyper, "steps": 32, "borders": 1}
    made = s2pg.expert("humanoid-ages", tmp_path / "a.npz", tmp_path / "walk.npz", episodes=2, **asked)
    env = s2pg.make("humanoid-ages", backend="gymnasium", demos=str(tmp_path / "walk.npz"))
    given = demos.expert(demos.read(tmp_path / "a.npz"), env.spec)
    assert given.obs["critic"].shape == (made.rows, env.spec.views["critic"])
    np.testing.assert_allclose(given.obs["critic"][:, -1], 1.0)  # the size
    assert (tmp_path / "a" / "config.json").exists()
