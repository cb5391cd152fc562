"""Metrics survive kills and resumes."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from s2pg.errors import UserError
from s2pg.io.sinks import MetricsFile, read_metrics, write_json


def test_rows_come_back(tmp_path):
    file = MetricsFile(tmp_path / "m.jsonl")
    file.write([{"step": 1, "seed": 0, "loss": np.float32(0.1)}, {"step": jnp.asarray(2), "loss": jnp.nan}])
    file.write([{"step": np.int64(3), "loss": float("inf"), "solved": np.bool_(True)}])
    assert read_metrics(tmp_path / "m.jsonl") == [  # flushed, without a close
        {"step": 1, "seed": 0, "loss": float(np.float32(0.1))},
        {"step": 2, "loss": None},
        {"step": 3, "loss": None, "solved": True},
    ]
    file.close()


def test_a_resumed_run_takes_back_what_its_checkpoint_does_not_count(tmp_path):
    path = tmp_path / "m.jsonl"
    file = MetricsFile(path)
    file.write([{"step": 1}])
    size = file.size()
    file.write([{"step": 2}])
    file.close()
    path.write_bytes(path.read_bytes() + b'{"step": 3, "lo')  # killed within a write
    assert read_metrics(path) == [{"step": 1}, {"step": 2}]
    file = MetricsFile(path)
    file.truncate(size)
    file.write([{"step": 20}])
    assert file.size() == path.stat().st_size
    file.close()
    assert path.read_text() == '{"step": 1}\n{"step": 20}\n'


def test_rows_that_a_checkpoint_counts_must_be_there(tmp_path):
    file = MetricsFile(tmp_path / "m.jsonl")
    with pytest.raises(UserError, match=r"m\.jsonl has 0 bytes"):
        file.truncate(10)
    file.close()


def test_a_file_that_holds_no_metrics_is_named(tmp_path):
    with pytest.raises(UserError, match="no metrics at"):
        read_metrics(tmp_path / "nothing")
    for text in ("{}\nnonsense\n{}\n", "{}\n[1]\n"):
        (tmp_path / "m").write_text(text)
        with pytest.raises(UserError, match="line 2"):
            read_metrics(tmp_path / "m")


def test_json_is_strict_and_replaced_whole(tmp_path):
    path = tmp_path / "c.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    write_json(path, {"a": [np.nan, (1, np.float32(2))], 3: {"é": None}})
    assert json.loads(path.read_text()) == {"a": [None, [1, 2.0]], "3": {"é": None}}
    assert list(tmp_path.iterdir()) == [path]
