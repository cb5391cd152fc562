"""Demonstrations: files of every layout, what algorithms get of them, and episodes of trained policies."""

import dataclasses
import io
import json
import os
import shutil
import sys
import zipfile
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import s2pg
from s2pg import demos
from s2pg.cli import main
from s2pg.demos import Clip, Demonstrations, recorder
from s2pg.errors import UserError
from s2pg.evaluate import evaluate
from s2pg.runs import assess
from s2pg.types import Box, Discrete, MultiDiscrete, Spec
from toys import built

HYPER = {"lanes": 2, "steps": 8, "size": 4, "width": 4}


def demonstrations(lengths=(3, 2), kind="float", **changed):
    """Episodes of these lengths whose numbers tell where they belong; the last one is cut off."""
    rows = sum(lengths)
    starts = np.cumsum([0, *lengths[:-1]])
    first = np.isin(np.arange(rows), starts)
    terminated = np.isin(np.arange(rows), starts[1:] - 1)
    seen = np.arange(2.0 * rows).reshape(rows, 2)
    after = np.concatenate([seen[1:], [[-1.0, -2.0]]])
    after[terminated] = 100.0
    actions = {"float": 0.1 * np.arange(rows)[:, None], "class": np.arange(rows) % 3, "none": None}[kind]
    given = {
        "obs": {"policy": seen, "critic": seen[:, :1]},
        "next_obs": {"policy": after, "critic": after[:, :1]},
        "action": actions,
        "terminated": terminated,
        "first": first,
        "hidden": np.full((rows, 1), 0.4),
        "dt": 0.02,
        "task": "walk",
        "notes": {"source": "a test"},
        "reward": np.ones(rows),
    }
    return Demonstrations(**given | changed)


TORQUE = Box((-2.0,), (2.0,))


def spec(action=TORQUE, **views):
    sizes = views or {"policy": 2, "critic": 1, "previous_action": action.size}
    return Spec(views=sizes, action=action, horizon=10, dt=0.02)


def assert_same(a, b):
    for field in dataclasses.fields(Demonstrations):
        one, other = getattr(a, field.name), getattr(b, field.name)
        if field.name in ("notes", "task", "dt"):
            assert one == other, field.name
        else:
            jax.tree.map(np.testing.assert_array_equal, one, other)
            jax.tree.map(lambda x, y: np.testing.assert_equal(x.dtype, y.dtype), one, other)


# Demonstrations as data


def test_episodes_begin_and_end_where_they_should():
    found = demonstrations((3, 2, 1))
    assert found.rows == 6 and found.episodes == [slice(0, 3), slice(3, 5), slice(5, 6)]
    assert found.lengths.tolist() == [3, 2, 1] and found.returns.tolist() == [3.0, 2.0, 1.0]


def nan_at(row):
    table = np.zeros((5, 2))
    table[row, 1] = np.nan
    return table


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"obs": {"policy": nan_at(3)}, "next_obs": {"policy": nan_at(9 % 5)}}, "view 'policy' is not finite in row 3"),
        ({"action": np.array([0.0, np.inf, 0, 0, 0])[:, None]}, "action is not finite in row 1"),
        ({"reward": np.zeros(4)}, "reward has 4 rows where there are 5"),
        ({"terminated": np.zeros(6, bool)}, "terminated has 6 rows where there are 5"),
        ({"hidden": np.zeros((4, 1))}, "hidden has 4 rows where there are 5"),
        ({"hidden": np.zeros(5)}, "hidden must be a table"),
        ({"first": np.array([False, True, False, False, False])}, "the first row must be the first of an episode"),
        ({"first": np.array([True, False, False, False, False])}, "row 2 terminates its episode, and row 3 goes on"),
        ({"obs": {}, "next_obs": {}}, "no views"),
        ({"next_obs": {"policy": np.zeros((5, 2))}}, "obs has the views policy, critic and next_obs has policy"),
        ({"obs": {"policy": np.zeros((5, 3))}, "next_obs": {"policy": np.zeros((5, 2))}}, "3 entries in obs and 2"),
        ({"dt": 0.0}, "dt must be"),
        ({"notes": {"what": object()}}, "notes must be JSON"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changed, told):
    with pytest.raises(UserError, match=told) as error:
        demonstrations(**changed)
    assert "\n" not in str(error.value)


def test_an_episode_without_rows_is_refused(tmp_path):
    empty = np.zeros((0, 2))
    with pytest.raises(UserError, match="no rows"):
        Demonstrations({"policy": empty}, {"policy": empty}, None, np.zeros(0, bool), np.zeros(0, bool))
    np.savez(tmp_path / "a.npz", q_hip=np.zeros(4), dq_hip=np.zeros(4), split_points=[0, 2, 2, 4])
    with pytest.raises(UserError, match=r"episode 1 of .*a.npz is empty"):
        demos.read(tmp_path / "a.npz")


def test_views_are_made_of_views_and_columns_found_by_name():
    found = demonstrations().name(["x", "y"]).arrange({"policy": ["policy"], "both": ["critic", "policy"]})
    assert found.obs["both"].shape == (5, 3) and found.notes["columns"] == {"policy": ["x", "y"]}
    turned = found.order(["y", "x"])
    np.testing.assert_array_equal(turned.obs["policy"], found.obs["policy"][:, ::-1])
    np.testing.assert_array_equal(turned.next_obs["policy"], found.next_obs["policy"][:, ::-1])
    assert turned.notes["columns"]["policy"] == ["y", "x"]
    with pytest.raises(UserError, match="unknown view 'polcy'; did you mean policy"):
        found.arrange({"policy": ["polcy"]})
    with pytest.raises(UserError, match="unknown column 'z'"):
        found.order(["z"])
    with pytest.raises(UserError, match="have no names"):
        demonstrations().order(["x"])
    with pytest.raises(UserError, match="has 2 columns, and there are 1 names"):
        demonstrations().name(["x"])


# What algorithms get


def test_actions_come_in_policy_units_and_the_one_before_is_a_view():
    found = demos.expert(demonstrations((3, 2)), spec())
    np.testing.assert_allclose(found.action[:, 0], [0.0, 0.05, 0.1, 0.15, 0.2], atol=1e-6)
    np.testing.assert_allclose(found.obs["previous_action"][:, 0], [0.0, 0.0, 0.05, 0.0, 0.15], atol=1e-6)
    np.testing.assert_array_equal(found.next_obs["previous_action"], found.action)
    assert found.first.tolist() == [True, False, False, True, False]
    assert found.terminated.tolist() == [False, False, True, False, False]
    assert {name: view.shape for name, view in found.obs.items()} == {
        "policy": (5, 2), "critic": (5, 1), "previous_action": (5, 1),
    }  # fmt: skip


def test_actions_beyond_the_bounds_are_clipped_as_the_task_does():
    found = demos.expert(demonstrations(action=np.full((5, 1), 7.0)), spec())
    assert (found.action == 1.0).all()


def test_discrete_actions_are_counted_from_0_and_shown_as_one_hot_vectors():
    space = Discrete(3, start=5)
    given = demonstrations(action=np.array([5, 7, 6, 5, 5]))
    found = demos.expert(given, spec(space))
    assert found.action.tolist() == [0, 2, 1, 0, 0] and found.action.dtype == np.int32
    np.testing.assert_array_equal(found.obs["previous_action"][1:4], [[1, 0, 0], [0, 0, 1], [0, 0, 0]])
    for bad, told in ((np.array([5, 8, 5, 5, 5]), "action 8 in row 1"), (np.array([5.5] * 5), "no whole numbers")):
        with pytest.raises(UserError, match=told):
            demos.expert(dataclasses.replace(given, action=bad), spec(space))


def test_so_are_vectors_of_them():
    given = demonstrations(action=np.array([[1, 2], [2, 2], [1, 1], [1, 1], [2, 2]]))
    found = demos.expert(given, spec(MultiDiscrete((2, 2), (1,))))
    assert found.action.tolist() == [[0, 1], [1, 1], [0, 0], [0, 0], [1, 1]]
    np.testing.assert_array_equal(found.obs["previous_action"][1], [1, 0, 0, 1])


def test_demonstrations_without_actions_have_no_previous_ones():
    found = demos.expert(demonstrations(kind="none"), spec())
    assert found.action.shape == (5, 0) and found.obs.keys() == {"policy", "critic"}


@pytest.mark.parametrize(
    ("task", "told"),
    [
        (spec(policy=3), "view 'policy' has 2 entries in the demonstrations of walk, and 3 in the task"),
        (
            spec(policy=2, camera=4),
            "the demonstrations of walk lack the task's view 'camera'; they have policy, critic",
        ),
        (dataclasses.replace(spec(), dt=0.01), "have a step of 0.02 s, and the task one of 0.01 s"),
        (
            spec(Box((-1.0,) * 3, (1.0,) * 3), policy=2),
            "actions have 1 entries in the demonstrations, and 3 in the task",
        ),
    ],
)
def test_demonstrations_of_another_task_are_refused(task, told):
    with pytest.raises(UserError, match=told):
        demos.expert(demonstrations(), task)


def test_fewer_views_can_be_asked_for():
    found = demos.expert(demonstrations(), spec(policy=2, camera=4), views=["policy"])
    assert found.obs.keys() == {"policy"}
    with pytest.raises(UserError, match="the task has no view 'critic'"):
        demos.expert(demonstrations(), spec(policy=2), views=["critic"])


# Files


@pytest.mark.parametrize("kind", ["float", "class", "none"])
def test_our_own_files_come_back_as_they_were(tmp_path, kind):
    given = demonstrations(kind=kind)
    demos.write(tmp_path / "new" / "a.npz", given)
    demos.write(tmp_path / "b.npz", given)
    assert_same(demos.read(tmp_path / "b.npz"), given)
    assert (tmp_path / "b.npz").read_bytes() == (tmp_path / "new" / "a.npz").read_bytes()
    assert demos.layout(tmp_path / "b.npz") == "s2pg"
    with np.load(tmp_path / "b.npz", allow_pickle=False) as plain:
        np.testing.assert_array_equal(plain["obs/policy"], given.obs["policy"])


def test_a_damaged_file_is_named(tmp_path):
    file = tmp_path / "a.npz"
    demos.write(file, demonstrations())
    data = bytearray(file.read_bytes())
    data[180] ^= 1  # within the first array
    file.write_bytes(bytes(data))
    with pytest.raises(UserError, match=r"a.npz is damaged \("):
        demos.read(file)


def test_a_file_may_be_told_what_it_does_not_say(tmp_path):
    demos.write(tmp_path / "a.npz", demonstrations())
    found = demos.read(tmp_path / "a.npz", dt=0.1, columns=["x", "y"], views={"policy": ["policy"]}, hidden=[[1], [2]])
    assert found.dt == 0.1 and found.hidden[:, 0].tolist() == [1, 1, 1, 2, 2] and found.obs.keys() == {"policy"}
    with pytest.raises(UserError, match="has 2 episodes or clips, and hidden has 1 entries"):
        demos.read(tmp_path / "a.npz", hidden=[1.0])
    with pytest.raises(UserError, match="joints are for clips"):
        demos.read(tmp_path / "a.npz", joints=["hip"])
    with pytest.raises(UserError, match="holds transitions, not clips"):
        demos.read_clips(tmp_path / "a.npz")


JOINTS = ("pelvis_tx", "hip_flexion_r", "knee_angle_r")


def clip_file(path, frames=6, **more):
    q = {f"q_{name}": i + np.arange(frames) for i, name in enumerate(JOINTS)}
    dq = {f"dq_{name}": -i - np.arange(frames) for i, name in enumerate(JOINTS)}
    np.savez(path, **q, **dq, **more)
    return path


def test_a_clip_of_locomujoco_0_is_a_motion(tmp_path):
    file = clip_file(tmp_path / "a.npz")
    clip = demos.read(file)
    assert isinstance(clip, Clip) and clip.joints == JOINTS and clip.frames == 6 and clip.dt == 1 / 500
    np.testing.assert_array_equal(clip.positions[2], [2, 3, 4])
    np.testing.assert_array_equal(clip.velocities[2], [-2, -3, -4])
    turned = clip.order(["knee_angle_r", "pelvis_tx"])
    np.testing.assert_array_equal(turned.positions[2], [4, 2])
    np.testing.assert_array_equal(turned.velocities[2], [-4, -2])
    np.testing.assert_array_equal(demos.read(file, joints=["knee_angle_r"]).positions[:, 0], clip.positions[:, 2])
    with pytest.raises(UserError, match=r"unknown joint 'knee_angle_l'; did you mean knee_angle_r"):
        clip.order(["knee_angle_l"])
    with pytest.raises(UserError, match="they have joints, not columns"):
        demos.read(file, columns=["x"])


def test_a_file_with_split_points_holds_several(tmp_path):
    clips = demos.read(clip_file(tmp_path / "a.npz", split_points=[0, 2, 6]), dt=0.01, hidden=[0.4, 1.0])
    assert [clip.frames for clip in clips] == [2, 4] and clips[1].positions[0, 0] == 2 and clips[1].dt == 0.01
    assert clips[0].hidden.tolist() == [[0.4], [0.4]] and clips[1].hidden.shape == (4, 1)
    assert len(demos.read_clips(clip_file(tmp_path / "b.npz"))) == 1
    with pytest.raises(UserError, match="must go from 0 to 6"):
        demos.read(clip_file(tmp_path / "a.npz", split_points=[0, 5]))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"positions": np.full((2, 2), np.nan)}, "positions of a clip is not finite in row 0"),
        ({"positions": np.zeros((0, 2)), "velocities": np.zeros((0, 2))}, "a clip has no frames"),
        ({"velocities": np.zeros((2, 3))}, "velocities of a clip have 3 columns, and 2 joints make 2"),
        ({"velocities": np.zeros((3, 2))}, "velocities of a clip has 3 rows where there are 2"),
        ({"dt": -1.0}, "dt must be"),
    ],
)
def test_clips_that_cannot_be_are_refused(changed, told):
    given = {"dt": 0.1, "joints": ("a", "b"), "positions": np.zeros((2, 2)), "velocities": np.zeros((2, 2))}
    with pytest.raises(UserError, match=told):
        Clip(**given | changed)


def test_transitions_of_locomujoco_0_are_demonstrations_of_one_view(tmp_path):
    states = np.arange(12.0).reshape(6, 2)
    np.savez(
        tmp_path / "a.npz", states=states, next_states=states + 1, actions=np.ones((6, 1)), rewards=np.ones(6),
        absorbing=[0, 0, 1, 0, 0, 0], last=[0, 0, 1, 0, 1, 0],
    )  # fmt: skip
    found = demos.read(tmp_path / "a.npz", columns=["height", "speed"])
    assert found.lengths.tolist() == [3, 2, 1] and found.obs.keys() == {"policy"}
    assert found.terminated.tolist() == [False, False, True, False, False, False]
    assert found.returns.tolist() == [3.0, 2.0, 1.0] and found.dt is None
    np.testing.assert_array_equal(found.order(["speed"]).obs["policy"], states[:, 1:])


class Bomb:
    """Leaves a file behind where it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def trajectory_file(path, bomb, **changed):
    """A free root, then a hinge, as in the 1.x versions."""
    members = {
        "qpos": np.arange(5.0)[:, None] + np.arange(8),
        "qvel": np.arange(5.0)[:, None] - np.arange(7),
        "split_points": np.array([0, 2, 5]),
        "joint_names": np.array(["root", "knee"]),
        "jnt_type": np.array([0, 3]),
        "frequency": np.array(40.0),
        "metadata": np.array([Bomb(bomb)], dtype=object),
    }
    np.savez(path, **members | changed)
    return path


def test_trajectories_of_locomujoco_1_are_clips_and_their_pickles_are_left_alone(tmp_path):
    bomb = tmp_path / "gone-off"
    file = trajectory_file(tmp_path / "a.npz", bomb)
    one, two = demos.read(file)
    assert not bomb.exists() and (one.frames, two.frames) == (2, 3) and one.dt == 0.025
    assert one.joints == ("root", "knee") and one.widths == (7, 1)
    turned = two.order(["knee", "root"])
    np.testing.assert_array_equal(turned.positions[0], [9, 2, 3, 4, 5, 6, 7, 8])
    np.testing.assert_array_equal(turned.velocities[0], [-4, 2, 1, 0, -1, -2, -3])
    np.load(file, allow_pickle=True)["metadata"]
    assert bomb.exists()  # it was a real one


def test_names_of_joints_that_are_python_objects_can_be_given_instead(tmp_path):
    names = np.array([Bomb(tmp_path / "gone-off"), "knee"], dtype=object)
    file = trajectory_file(tmp_path / "a.npz", tmp_path / "gone-off", joint_names=names)
    with pytest.raises(UserError, match=r"'joint_names' of .* holds Python objects, which are not loaded"):
        demos.read(file)
    assert demos.read(file, joints=["root", "knee"])[0].joints == ("root", "knee")
    assert not (tmp_path / "gone-off").exists()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"jnt_type": np.array([0])}, "1 types of joints and 2 names"),
        ({"jnt_type": np.array([0, 9])}, "a joint of type 9"),
        ({"qvel": np.zeros((5, 8))}, "do not have the columns of its joints"),
        ({"frequency": np.array(0.0)}, "a frequency of 0"),
    ],
)
def test_trajectories_that_do_not_fit_together_are_refused(tmp_path, changed, told):
    with pytest.raises(UserError, match=told):
        demos.read(trajectory_file(tmp_path / "a.npz", tmp_path / "b", **changed))


TRANSITIONS = {
    "states": np.zeros((4, 2)), "next_states": np.zeros((4, 2)), "actions": np.zeros((4, 1)), "absorbing": np.zeros(4),
    "last": np.array([0, 1, 0, 1]),
}  # fmt: skip
CLIP = {f"{kind}_{joint}": np.zeros(4) for kind in ("q", "dq") for joint in ("hip", "knee")}


@pytest.mark.parametrize(
    ("members", "changed", "told"),
    [
        (CLIP, {"q_hip": np.array(list("text"))}, "positions of a clip holds no real numbers"),
        (CLIP, {"q_hip": np.zeros(4, complex)}, "positions of a clip holds no real numbers"),
        (CLIP, {"dq_hip": np.full(4, np.nan)}, "velocities of a clip is not finite in row 0"),
        (CLIP, {"split_points": np.array([0, np.nan, 4])}, "split_points of .* is not finite"),
        (CLIP, {"frequency": np.array([1.0, 2.0])}, "has a frequency of 1.0, 2.0"),
        (TRANSITIONS, {"last": np.full(4, np.nan)}, "last is not finite in row 0"),
        (TRANSITIONS, {"last": np.zeros(3)}, "has 4 rows of absorbing and 3 of last"),
        (TRANSITIONS, {name: part[:0] for name, part in TRANSITIONS.items()}, "demonstrations have no rows"),
        (TRANSITIONS, {"states": np.full((4, 2), 1e300)}, "view 'policy' is not finite in row 0"),
    ],
)  # fmt: skip
def test_files_of_others_that_cannot_be_are_refused_by_name(tmp_path, members, changed, told):
    np.savez(tmp_path / "a.npz", **members | changed)
    with pytest.raises(UserError, match=told) as error:
        demos.read(tmp_path / "a.npz")
    assert "a.npz" in str(error.value) and "\n" not in str(error.value)


def test_a_member_that_claims_more_than_there_is_room_for_is_damaged(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**13,)})
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for name in CLIP:
            archive.writestr(f"{name}.npy", header.getvalue())
    with pytest.raises(UserError, match=r"member 'q_hip' of .* is damaged"):
        demos.read(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("rewards", None, "episode 0 of .* has no rewards"),
        ("rewards", np.array([b"a"] * 3), "rewards of episode 0 of .* are no arrays of numbers"),
        ("actions", np.float64(1.0), "actions of episode 0 of .* are no arrays of numbers"),
        ("actions", np.zeros((3, 2)), "episodes of .* do not have the same observations and actions"),
        ("observations/policy", np.zeros((4, 3)), "episodes of .* do not have the same observations and actions"),
    ],
)
def test_minari_episodes_that_cannot_be_are_refused(tmp_path, name, values, told):
    h5py = pytest.importorskip("h5py")
    demos.write(tmp_path / "a.minari", demonstrations())
    with h5py.File(tmp_path / "a.minari" / "data" / "main_data.hdf5", "a") as file:
        del file[f"episode_0/{name}"]
        if values is not None:
            file[f"episode_0/{name}"] = values
    with pytest.raises(UserError, match=told):
        demos.read(tmp_path / "a.minari")


def test_unknown_files_are_refused_in_one_line(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    (tmp_path / "b.npz").write_text("no archive")
    np.savez(tmp_path / "d.npz", q_hip=["left", "right"], dq_hip=["left", "right"])
    (tmp_path / "f.npz").write_bytes(b"#!" + clip_file(tmp_path / "g.npz").read_bytes())
    for name, told in (
        ("d.npz", "positions of a clip holds no real numbers"), ("f.npz", "cannot be read as"),
        ("a.npz", "no layout that is known here"), ("b.npz", "is no .npz file"), ("c.npz", "No such file"),
        (".", "no Minari dataset"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=told):
            demos.read(tmp_path / name)
    with pytest.raises(UserError, match=r"the name must end in \.npz"):
        demos.write(tmp_path / "a.pkl", demonstrations())


# Minari


@pytest.mark.parametrize(("kind", "name"), [("float", "walk.minari"), ("class", "walk-v0/")])
def test_minari_folders_come_back_as_they_were(tmp_path, kind, name):
    pytest.importorskip("h5py")
    given = demonstrations(kind=kind)
    demos.write(f"{tmp_path}/{name}", given)
    for path in (name, f"{name}/data", f"{name}/data/main_data.hdf5"):
        assert_same(demos.read(tmp_path / path), given)
    assert demos.layout(tmp_path / name) == "Minari" and len(list(tmp_path.iterdir())) == 1
    with pytest.raises(UserError, match="exists already"):
        demos.write(f"{tmp_path}/{name}", given)


def test_what_minari_cannot_hold_is_refused(tmp_path):
    pytest.importorskip("h5py")
    with pytest.raises(UserError, match="Minari keeps actions"):
        demos.write(tmp_path / "a.minari", demonstrations(kind="none"))
    given = demonstrations()
    jumps = {name: view + 1 for name, view in given.next_obs.items()}
    with pytest.raises(UserError, match="view 'policy' jumps after row 0"):
        demos.write(tmp_path / "a.minari", dataclasses.replace(given, next_obs=jumps))
    assert not list(tmp_path.iterdir())


def test_minari_without_rewards_has_none_afterwards(tmp_path):
    pytest.importorskip("h5py")
    demos.write(tmp_path / "a.minari", demonstrations(reward=None, hidden=None))
    found = demos.read(tmp_path / "a.minari")
    assert found.reward is None and found.hidden is None


def test_folders_of_others_are_read_too(tmp_path):
    h5py = pytest.importorskip("h5py")
    (tmp_path / "data").mkdir()
    spec = json.dumps({"id": "Pendulum-v1"})
    (tmp_path / "data" / "metadata.json").write_text(json.dumps({"env_spec": spec, "dataset_id": "pendulum/expert-v0"}))
    with h5py.File(tmp_path / "data" / "main_data.hdf5", "w") as file:
        for i in (10, 2):  # episodes follow their numbers, not the alphabet
            group = file.create_group(f"episode_{i}")
            group["observations/goal"] = np.full((3, 1), i)
            group["observations/body/joints"] = np.zeros((3, 2, 2))
            group["actions"] = np.zeros((2, 1))
            group["rewards"], group["terminations"] = np.ones(2), [False, True]
    found = demos.read(tmp_path)
    assert found.obs["goal"][:, 0].tolist() == [2, 2, 10, 10] and found.obs["body/joints"].shape == (4, 4)
    assert found.task == "gym:Pendulum-v1" and found.terminated.tolist() == [False, True] * 2
    assert demos.read(tmp_path, views={"policy": ["goal", "body/joints"]}).obs["policy"].shape == (4, 5)
    with h5py.File(tmp_path / "data" / "main_data.hdf5", "a") as file:
        file["episode_11/observations/goal"] = np.zeros((1, 1))
        file["episode_11/actions"] = np.zeros((0, 1))
    with pytest.raises(UserError, match=r"episode 11 of .* is empty"):
        demos.read(tmp_path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", ["float", "class"])
def test_minari_loads_what_we_write(tmp_path, monkeypatch, kind):
    pytest.importorskip("h5py")
    minari = pytest.importorskip("minari")
    given = demonstrations(kind=kind)
    demos.write(f"{tmp_path}/walk-v3/", given)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    found = minari.load_dataset("walk-v3")
    assert found.total_episodes == 2 and found.total_steps == 5 and found.spec.dataset_id == "walk-v3"
    one = found[0]
    np.testing.assert_array_equal(one.observations["policy"][:-1], given.obs["policy"][:3])
    np.testing.assert_array_equal(one.observations["policy"][-1], given.next_obs["policy"][2])
    np.testing.assert_array_equal(one.actions, given.action[:3])
    assert one.terminations.tolist() == [False, False, True] and found[1].truncations.tolist() == [False, True]
    assert found.action_space.contains(one.actions[0]) and found.observation_space["policy"].shape == (2,)


def test_without_h5py_a_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "main_data.hdf5").touch()
    for call in (lambda: demos.read(tmp_path), lambda: demos.write(tmp_path / "a.minari", demonstrations())):
        with pytest.raises(UserError, match=r"need h5py: pip install 's2pg\[demos\]'"):
            call()


# Recording


class Walk(gymnasium.Env):
    """Ends after a number of steps that its seed draws; shows that number and the step."""

    observation_space, action_space = spaces.Box(-10.0, 10.0, (2,)), spaces.Box(-3.0, 3.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length, self.at = int(self.np_random.integers(1, 6)), 0
        return self._seen(), {}

    def _seen(self):
        return np.array([self.length, self.at], np.float32)

    def step(self, action):
        self.at += 1
        return self._seen(), float(action[0]), self.at == self.length, False, {}


@pytest.fixture(scope="module")
def recall(tmp_path_factory):
    env = s2pg.make("recall", k=4)
    return s2pg.train("ppo", env, hyper=HYPER, steps=32, seeds=(2, 5), episodes=2, out=tmp_path_factory.mktemp("a"))


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    gymnasium.register("test/Walk-v0", entry_point=Walk, max_episode_steps=5)
    try:
        yield s2pg.train("ppo", "gym:test/Walk-v0", hyper=HYPER, steps=32, episodes=2, out=tmp_path_factory.mktemp("a"))
    finally:
        del gymnasium.registry["test/Walk-v0"]


def test_a_policy_on_the_device_is_recorded_in_whole_episodes(recall, tmp_path):
    found = s2pg.record(recall, 3, tmp_path / "a.npz", seed=5)
    assert found.lengths.tolist() == [4, 4, 4] and found.task == "recall" and found.dt == 1.0
    assert found.terminated.reshape(3, 4)[:, -1].all() and found.terminated.sum() == 3
    assert found.notes["returns"] == found.returns.tolist() and found.notes["seed"] == 5
    assert found.action.dtype == np.int32 and found.obs.keys() == {"policy", "critic"}
    cue = found.obs["critic"][:, 0].reshape(3, 4)
    assert (cue == cue[:, :1]).all()  # rows of an episode stay together
    right = found.action.reshape(3, 4)[:, -1] == (cue[:, 0] > 0)
    assert found.returns.tolist() == right.astype(float).tolist()
    assert_same(demos.read(tmp_path / "a.npz"), found)
    assert demos.expert(found, recall.spec).action.shape == (12,)
    again, other = s2pg.record(recall.path, 3, seed=5), s2pg.record(recall, 3, seed=5, record_seed=9)
    np.testing.assert_array_equal(again.obs["policy"], found.obs["policy"])
    assert not np.array_equal(s2pg.record(recall, 9, record_seed=9).obs["critic"][:12], found.obs["critic"])
    assert other.rows == 12


def test_the_best_seed_is_recorded_unless_another_is_named(recall, monkeypatch):
    rows = [{"seed": 2, "eval_return": 0.9}, {"seed": 5, "eval_return": 0.1}]
    later = [{"seed": 2, "eval_return": 0.4}, {"seed": 5, "eval_return": 0.6}, {"seed": 2, "eval_return": None}]
    # The policy on disk is the newest, so one that is worth no number is not the best for what it was worth before.
    no_number = [{"seed": 5, "eval_return": 0.1}, {"seed": 2, "eval_return": None}]
    for metrics, best in ((rows, 2), (rows + later, 5), (rows + no_number, 5), ([], 2)):
        monkeypatch.setattr(type(recall), "metrics", metrics)
        assert s2pg.record(recall, 1).notes["seed"] == best


def test_a_run_without_its_metrics_is_recorded(recall, tmp_path):
    shutil.copytree(recall.path, tmp_path / "policies-alone", ignore=shutil.ignore_patterns("metrics.jsonl"))
    assert s2pg.record(tmp_path / "policies-alone", 1).notes["seed"] == recall.experiment.seeds[0]


def test_it_plays_what_evaluation_plays_however_many_episodes_fit_into_memory(recall, monkeypatch):
    env, actor, key = recall.env(), recall.policy(explore=True).actor, jax.random.key(4)
    wanted = evaluate(env, actor, 7, key).returns
    whole = recorder.record(env, actor, 7, key)
    np.testing.assert_array_equal(whole.returns, wanted)
    monkeypatch.setattr(recorder, "ROOM", 3 * 4 * 4 * (2 * 4 + 2 + 4))  # three episodes
    np.testing.assert_array_equal(recorder.record(env, actor, 7, key).action, whole.action)


def test_on_the_host_an_episode_is_as_long_as_it_lasted(walk):
    found = assess.played(walk.env(), walk.policy().actor, 8)
    assert set(found.lengths.tolist()) <= {1, 2, 3, 4, 5} and len(set(found.lengths.tolist())) > 1


def test_the_previous_action_is_the_one_that_the_task_showed(monkeypatch):
    env = s2pg.make("masked-pendulum", horizon=5)
    algorithm = built("s2pg", env)
    actor = algorithm.actor(algorithm.init_policy(env.spec, key=jax.random.key(0)), explore=True)
    monkeypatch.setattr(recorder, "PREVIOUS_ACTION", "")  # so that the view itself is kept
    kept = recorder.record(env, actor, 3, jax.random.key(1), noise=(0.0, 2.0))
    assert kept.notes["noise"] == [0.0, 2.0, 0.0] and np.abs(kept.action[5:10]).max() == 2.0
    made = demos.expert(kept.arrange({"policy": ["policy"], "critic": ["critic"]}), env.spec)
    for shown, found in ((kept.obs, made.obs), (kept.next_obs, made.next_obs)):
        np.testing.assert_allclose(found["previous_action"], shown["previous_action"], atol=1e-6)
    quiet = recorder.record(env, actor, 3, jax.random.key(1))
    np.testing.assert_array_equal(quiet.action[:5], kept.action[:5])  # noise of 0 changes nothing


def test_a_policy_on_the_host_is_recorded_in_whole_episodes(walk, tmp_path):
    found = s2pg.record(walk, 40, stochastic=True)
    assert len(found.episodes) == 40 and found.task == "gym:test/Walk-v0"
    for rows in found.episodes:
        length = rows.stop - rows.start
        np.testing.assert_array_equal(found.obs["policy"][rows], [[length, t] for t in range(length)])
        np.testing.assert_array_equal(found.next_obs["policy"][rows][:, 1], np.arange(1, length + 1))
        assert found.terminated[rows].tolist() == [False] * (length - 1) + [True]
    assert 2.2 < found.lengths.mean() < 3.8  # episodes that take longer are not left out
    np.testing.assert_allclose(found.action[:, 0], found.reward, atol=1e-6)  # the environment's own units
    assert np.abs(found.action).max() > 1.0
    again = s2pg.record(walk, 40, stochastic=True, noise=(0.0,))
    np.testing.assert_array_equal(again.action, found.action)


def test_noise_is_told_episode_by_episode(walk):
    quiet, loud = s2pg.record(walk, 20), s2pg.record(walk, 20, noise=(0.0, 0.5))
    assert sorted(loud.notes["noise"]) == [0.0] * 10 + [0.5] * 10
    np.testing.assert_array_equal(loud.lengths, quiet.lengths)
    for rows, level in zip(loud.episodes, loud.notes["noise"], strict=True):
        assert np.allclose(loud.action[rows], quiet.action[rows], atol=1e-5) == (level == 0.0)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"episodes": 0}, "episodes must be 1 or more, not 0"),
        ({"noise": (0.1,)}, "noise on actions is for tasks whose actions are continuous"),
        ({"seed": 7}, "has no seed 7"),
        ({"record_seed": -1}, "record_seed must lie between"),
        ({"out": "a.txt"}, "must end in .npz"),
    ],
)
def test_recordings_that_cannot_be_are_refused(recall, asked, told):
    with pytest.raises(UserError, match=told):
        s2pg.record(recall, **{"episodes": 2} | asked)


# The command line


def test_record_and_demos_say_what_they_made(recall, tmp_path, capsys):
    file, picture = str(tmp_path / "a.npz"), tmp_path / "a.png"
    assert main(["record", str(recall.path), "-o", file, "--episodes", "3", "--seed", "5"]) == 0
    assert "recall" in capsys.readouterr().out
    pytest.importorskip("matplotlib")
    assert main(["demos", file, "-o", str(picture), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["layout"] == "s2pg" and told["episodes"] == 3 and told["views"]["policy"]["size"] == 2
    assert told["lengths"] == {"min": 4.0, "mean": 4.0, "max": 4.0} and told["returns"]["max"] <= 1.0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main(["demos", file]) == 0
    assert "view policy" in capsys.readouterr().out


def test_demos_looks_into_clips_as_well(tmp_path, capsys):
    file = clip_file(tmp_path / "a.npz", split_points=[0, 2, 6])
    assert main(["demos", str(file)]) == 0
    out = capsys.readouterr().out
    assert "knee_angle_r" in out and "LocoMuJoCo 0.x clip" in out
    pytest.importorskip("matplotlib")
    assert main(["demos", str(file), "-o", str(tmp_path / "a.svg")]) == 0


def test_mistakes_get_one_line(recall, tmp_path, capsys):
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    policy = next((recall.path / "policies").iterdir())
    for args, told in (
        (["demos", str(tmp_path / "a.npz")], "no layout that is known"),
        (["demos", str(policy)], "holds no demonstrations: it is a checkpoint or a policy"),
        (["record", str(recall.path), "-o", str(tmp_path / "a.txt")], "must end in .npz"),
        (["record", str(tmp_path), "-o", str(tmp_path / "b.npz")], str(tmp_path)),
    ):
        assert main(args) == 2
        err = capsys.readouterr().err
        assert told in err and err.count("\n") == 1 and err.startswith("s2pg: ")
    assert os.listdir(tmp_path) == ["a.npz"]
