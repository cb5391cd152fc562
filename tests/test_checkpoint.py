"""Checkpoints come back exactly, or are refused in one line that names the file."""

import json
import os
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s2pg.errors import UserError
from s2pg.io import atomic
from s2pg.io.checkpoint import META, Checkpoints, load, load_arrays, save


class Pair(NamedTuple):
    left: object
    right: object


def tree():
    return {
        "net": Pair(jnp.linspace(0, 1, 6).reshape(2, 3), jnp.asarray([1.5, -0.0, jnp.inf], jnp.bfloat16)),
        "count": jnp.asarray(7, jnp.int32),
        "flags": jnp.asarray([True, False]),
        "bits": jnp.asarray(255, jnp.uint8),
        "none": ((), None, jnp.zeros((0, 4))),
        "keys": [jax.random.key(3), jax.random.split(jax.random.key(4, impl="rbg"), 2)],
        "host": np.asarray([2**40, -1]),
    }


def bits(leaf):
    leaf = jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
    return np.asarray(leaf).tobytes()


def assert_same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert (x.dtype, x.shape, isinstance(x, np.ndarray)) == (y.dtype, y.shape, isinstance(y, np.ndarray))
        assert bits(x) == bits(y)


def abstract(tree):
    return jax.tree.map(lambda x: x if isinstance(x, np.ndarray) else jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.npz"
    save(path, tree(), {"step": 12})
    return path


def rewrite(path, change):
    """Rewrites the archive by a function of {entry name: bytes}, every CRC being right again."""
    with zipfile.ZipFile(path) as archive:
        content = change({name: archive.read(name) for name in archive.namelist()})
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)


@pytest.mark.parametrize("like", [lambda t: t, abstract])
def test_a_tree_comes_back_bit_for_bit(file, like):
    loaded, meta = load(file, like(tree()))
    assert_same(loaded, tree())
    assert meta == {"step": 12}
    assert_same(jax.random.split(loaded["keys"][1][0]), jax.random.split(tree()["keys"][1][0]))


def test_a_single_array_is_a_tree(tmp_path):
    save(tmp_path / "x", jnp.arange(3), {})
    assert_same(load(tmp_path / "x", jnp.arange(3))[0], jnp.arange(3))


def test_arrays_can_be_read_without_a_template(file):
    arrays, meta = load_arrays(file)
    assert meta["step"] == 12
    assert arrays["net/right"].dtype == jnp.bfloat16
    assert arrays["host"].tolist() == [2**40, -1]
    assert np.load(file)["net/left"].shape == (2, 3)  # and with plain numpy


def test_the_same_tree_gives_the_same_bytes(file, tmp_path):
    save(tmp_path / "b.npz", tree(), {"step": 12})
    assert (tmp_path / "b.npz").read_bytes() == file.read_bytes()


def test_meta_may_have_numbers_for_keys(tmp_path):
    save(tmp_path / "x", jnp.zeros(1), {"seeds": {2: "a", 10: (1, 2)}})
    assert load_arrays(tmp_path / "x")[1] == {"seeds": {"2": "a", "10": [1, 2]}}


@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.7, 0.99])
def test_a_truncated_file_is_named_as_damaged(file, part):
    data = file.read_bytes()
    file.write_bytes(data[: int(part * len(data))])
    with pytest.raises(UserError, match=r"a\.npz is damaged"):
        load(file, tree())


def test_a_file_of_noise_is_damaged_wherever_it_is_hit(file):
    data, rng = file.read_bytes(), np.random.default_rng(0)
    for place in rng.integers(0, len(data), 60):
        file.write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        try:
            loaded, meta = load(file, tree())
        except UserError as error:
            assert "\n" not in str(error) and "a.npz" in str(error)
        else:  # a byte that means nothing, such as a timestamp
            assert_same(loaded, tree())
            assert meta == {"step": 12}


def test_a_tampered_leaf_is_refused(file):
    rewrite(file, lambda c: c | {"count.npy": c["count.npy"][:-1] + b"\x01"})
    with pytest.raises(UserError, match="checksum"):
        load(file, tree())


def test_tampered_meta_is_refused(file):
    rewrite(file, lambda c: c | {META: c[META].replace(b'"step":12', b'"step":99')})
    with pytest.raises(UserError, match="checksum"):
        load(file, tree())


def test_a_foreign_entry_is_refused(file):
    rewrite(file, lambda c: {"more.npy": b""} | c)
    with pytest.raises(UserError, match="list of arrays"):
        load_arrays(file)


def test_another_schema_is_refused_by_name(file):
    rewrite(file, lambda c: c | {META: json.dumps(json.loads(c[META]) | {"schema": 99}).encode()})
    with pytest.raises(UserError, match=r"a\.npz has schema 99"):
        load(file, tree())


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("signed", [False, True])
def test_a_pickle_inside_is_refused_and_never_run(tmp_path, signed, monkeypatch):
    fuse, path = tmp_path / "executed", tmp_path / "a.npz"
    np.savez(tmp_path / "bomb.npz", x=np.asarray([Bomb(fuse)], object))
    with zipfile.ZipFile(tmp_path / "bomb.npz") as archive:
        pickled = archive.read("x.npy")
    if signed:  # one whose checksum is right
        monkeypatch.setattr(np.lib.format, "write_array", lambda buffer, *_, **__: buffer.write(pickled))
        save(path, {"x": np.zeros(1)}, {})
    else:
        save(path, {"x": np.zeros(1)}, {})
        rewrite(path, lambda c: c | {"x.npy": pickled})
    with pytest.raises(UserError, match="damaged"):
        load(path, {"x": np.zeros(1)})
    assert not fuse.exists()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda t: t | {"extra": jnp.zeros(1)}, "lacks extra"),
        (lambda t: {k: v for k, v in t.items() if k != "flags"}, "has flags"),
        (lambda t: t | {"count": jnp.zeros(2, jnp.int32)}, "count is int32"),
        (lambda t: t | {"count": jnp.zeros(())}, "float32"),
        (lambda t: t | {"keys": [jax.random.key(0, impl="rbg"), t["keys"][1]]}, "keys/0"),
        (lambda t: t | {"bits": jax.random.key(0)}, "bits"),
        (lambda t: t | {"keys": [jnp.zeros(2, jnp.uint32), t["keys"][1]]}, "keys/0"),
    ],
)
def test_a_tree_of_another_shape_is_refused(file, change, text):
    with pytest.raises(UserError, match=text):
        load(file, change(tree()))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.npz"):
        load(tmp_path / "nowhere.npz", {})


def test_what_is_no_array_is_not_saved(tmp_path):
    for leaf in (jax.nn.relu, np.asarray(["text"]), np.asarray([{}], object)):
        with pytest.raises(TypeError, match="leaf 'f'"):
            save(tmp_path / "x", {"f": leaf}, {})
    assert list(tmp_path.iterdir()) == []


def test_an_error_while_writing_leaves_the_old_file(file, monkeypatch):
    before = file.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save(file, jnp.zeros(3), {})
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_a_kill_before_the_rename_leaves_the_old_file(tmp_path):
    script = (
        f"import os, signal, runpy; names = runpy.run_path({atomic.__file__!r})\n"
        "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"with names['replacing']({str(tmp_path / 'step-000000000001.npz')!r}) as file: file.write(b'half')"
    )
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, jnp.ones(2), {})
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    assert len(list(tmp_path.iterdir())) == 2
    found = Checkpoints(tmp_path).latest(jnp.ones(2))
    assert found is not None and found[0].tolist() == [1, 1]
    assert len(list(tmp_path.iterdir())) == 1  # the leftover is gone


def test_the_newest_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path / "new" / "folder", keep=2)
    assert checkpoints.latest(jnp.zeros(())) is None
    for step in (5, 90, 1000):
        path = checkpoints.save(step, jnp.asarray(step), {"step": step})
    assert path.name == "step-000000001000.npz"
    assert checkpoints.steps() == [90, 1000]
    found = checkpoints.latest(jnp.asarray(0))
    assert found is not None and found[1] == {"step": 1000} and found[0] == 1000


def test_a_damaged_newest_is_named_and_the_one_before_offered(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2, 3):
        checkpoints.save(step, jnp.asarray(step), {})
    checkpoints.path(3).write_bytes(checkpoints.path(3).read_bytes()[:-7])
    with pytest.raises(UserError, match=r"0003\.npz is damaged \(.*step 2, is whole: delete .*0003\.npz to go on"):
        checkpoints.latest(jnp.asarray(0))
    checkpoints.path(2).write_bytes(b"")
    with pytest.raises(UserError, match=r"step 1, is whole: delete .*0003\.npz and .*0002\.npz to go on"):
        checkpoints.latest(jnp.asarray(0))
    checkpoints.path(1).write_bytes(b"")
    with pytest.raises(UserError, match="no earlier one is whole"):
        checkpoints.latest(jnp.asarray(0))


# Replay buffers


def bulky(step):
    """What a run hands over at a border: the checkpoint, its meta data, and a buffer."""
    return (
        step,
        {"a": jnp.asarray(step)},
        {"wall_s": 0.1 * step},
        {"ring": jnp.arange(4.0) + step, "head": jnp.asarray(step)},
    )


LIKE = {"a": jnp.asarray(0)}, {"ring": jnp.zeros(4), "head": jnp.asarray(0)}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_checkpoint_alone_keeps_its_bulk(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2, 3):
        checkpoints.save(*bulky(step))
        assert names(tmp_path) == sorted(
            [*(f"step-{i:012d}.npz" for i in range(1, step + 1)), f"step-{step:012d}.replay.npz"]
        )
    assert checkpoints.steps() == [1, 2, 3]
    found = checkpoints.latest(*LIKE)
    _, tree, meta, bulk = bulky(3)
    assert found.meta == meta
    assert_same(found.tree, tree)
    assert_same(found.bulk, bulk)


def test_without_bulk_there_is_no_second_file(tmp_path):
    Checkpoints(tmp_path).save(1, LIKE[0], {})
    assert names(tmp_path) == ["step-000000000001.npz"]
    assert Checkpoints(tmp_path).latest(LIKE[0]).bulk is None


KILLED = """
import os, pathlib, signal, sys
sys.path.insert(0, sys.argv[1])
import test_checkpoint
from s2pg.io.checkpoint import Checkpoints
checkpoints, moment, calls = Checkpoints(sys.argv[2]), int(sys.argv[3]), []

def deadly(function):
    def call(*given, **named):
        calls.append(function)
        if len(calls) > moment:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*given, **named)
    return call

os.replace, pathlib.Path.unlink = deadly(os.replace), deadly(pathlib.Path.unlink)
checkpoints.save(*test_checkpoint.bulky(2))
"""


# Before the buffer is in place, between it and the checkpoint, before the old buffer is deleted, and after all.
@pytest.mark.parametrize(("moment", "left", "files"), [(0, 1, 3), (1, 1, 4), (2, 2, 4), (3, 2, 3)])
def test_a_kill_at_any_moment_leaves_a_pair_that_belongs_together(tmp_path, moment, left, files):
    Checkpoints(tmp_path).save(*bulky(1))
    given = [str(Path(__file__).parent), str(tmp_path), str(moment)]
    done = subprocess.run([sys.executable, "-c", KILLED, *given], check=False).returncode
    assert done == (0 if moment == 3 else -9)
    assert len(names(tmp_path)) == files
    checkpoints = Checkpoints(tmp_path)
    found = checkpoints.latest(*LIKE)
    assert_same((found.tree, found.bulk), (bulky(left)[1], bulky(left)[3]))
    checkpoints.save(*bulky(2))  # and what the killed process left is made good
    checkpoints.save(*bulky(3))
    assert names(tmp_path) == sorted([*(f"step-{i:012d}.npz" for i in (1, 2, 3)), "step-000000000003.replay.npz"])
    assert_same(checkpoints.latest(*LIKE).bulk, bulky(3)[3])


def test_an_older_checkpoint_has_no_bulk_and_says_so(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        checkpoints.save(*bulky(step))
    whole = checkpoints.path(2).read_bytes()
    checkpoints.path(2).write_bytes(whole[:-7])
    with pytest.raises(
        UserError, match=r"0002\.npz is damaged .*; no earlier one has its replay buffer, .*: start afresh"
    ):
        checkpoints.latest(*LIKE)
    checkpoints.path(2).unlink()
    with pytest.raises(UserError, match=r"^checkpoint .*0001\.npz has no replay buffer, .*: start afresh in another"):
        checkpoints.latest(*LIKE)


def test_damaged_bulk_is_named_and_an_earlier_pair_offered_if_there_is_one(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(*bulky(1))
    first = checkpoints.bulk_path(1).read_bytes()
    checkpoints.save(*bulky(2))
    checkpoints.bulk_path(2).write_bytes(b"")
    with pytest.raises(UserError, match=r"0002\.replay\.npz is damaged .*; no earlier one has its replay buffer"):
        checkpoints.latest(*LIKE)
    checkpoints.bulk_path(1).write_bytes(first)  # as a process killed before it could delete would have left it
    with pytest.raises(
        UserError, match=r"0002\.replay\.npz is damaged .*step 1, is whole: delete \S*0002\.npz to go on"
    ):
        checkpoints.latest(*LIKE)
    checkpoints.path(2).unlink()
    assert_same(checkpoints.latest(*LIKE).bulk, bulky(1)[3])


def test_bulk_of_another_checkpoint_is_refused(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        checkpoints.save(*bulky(step))
        (tmp_path / f"{step}").write_bytes(checkpoints.bulk_path(step).read_bytes())
    checkpoints.bulk_path(2).write_bytes((tmp_path / "1").read_bytes())
    with pytest.raises(UserError, match=r"0002\.replay\.npz does not belong to \S*0002\.npz: start afresh"):
        checkpoints.latest(*LIKE)


def test_large_arrays_are_not_held_twice(tmp_path):
    """Neither while they are written, in pieces, nor while they are read: what NumPy allocates is counted."""
    array = np.arange(2**24, dtype=np.float32)  # 64 MiB
    like = {"a": jax.ShapeDtypeStruct(array.shape, array.dtype)}
    for use in (lambda: save(tmp_path / "x", {"a": array}, {}), lambda: load(tmp_path / "x", like)):
        tracemalloc.start()
        result = use()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < array.nbytes / 2
    assert_same(result[0], {"a": jnp.asarray(array)})


def test_what_was_loaded_may_be_donated_and_outlives_its_file(tmp_path):
    save(tmp_path / "x", {"a": jnp.arange(1000.0)}, {})
    loaded, _ = load(tmp_path / "x", {"a": jnp.zeros(1000)})
    before = (tmp_path / "x").read_bytes()
    changed = jax.jit(lambda a: a.at[0].set(7.0), donate_argnums=0)(loaded["a"])
    assert loaded["a"].is_deleted()
    assert (tmp_path / "x").read_bytes() == before
    arrays, _ = load_arrays(tmp_path / "x")
    (tmp_path / "x").unlink()
    arrays["a"][1] = 5.0
    assert changed[:3].tolist() == [7, 1, 2] and arrays["a"][:3].tolist() == [0, 5, 2]
