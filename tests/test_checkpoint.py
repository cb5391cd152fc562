"""Checkpoints come back exactly, or are refused in one line that names the file."""

import json
import os
import subprocess
import sys
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
