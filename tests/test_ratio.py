"""Parameters that did not change have an importance ratio of 1: whatever an update recomputes, it recomputes right."""

import jax
import numpy as np
import pytest

from s2pg.types import total
from toys import CONTINUOUS, DISCRETE, LABELS, built, evaluation, two_batches


@pytest.mark.parametrize("env", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize(("wide", "tolerance"), [(False, 1e-3), (True, 1e-9)], ids=["float32", "x64"])
def test_the_importance_ratio_of_unchanged_parameters_is_one(label, env, wide, tolerance):
    with jax.enable_x64(wide):
        algorithm = built(label, env)
        state, _, batch = two_batches(algorithm, env)
        rows, now = evaluation(algorithm, state, batch)
        ratio = np.exp(np.asarray(total(now.log_prob) - total(rows.log_prob)))
    assert ratio.dtype == (np.float64 if wide else np.float32)
    assert np.asarray(batch.first)[1:].any()  # episode borders within the segments
    assert not np.asarray(batch.first)[0].all()  # and a batch that begins in the middle of episodes
    assert now.mask.sum() == batch.reward.size
    assert np.abs(ratio[np.asarray(now.mask)] - 1).max() < tolerance


def test_the_ratio_of_changed_parameters_is_not_one():
    algorithm = built("bptt-3")
    state, _, batch = two_batches(algorithm)
    rows, now = evaluation(algorithm, state._replace(kernel=two_batches(algorithm, seed=1)[0].kernel), batch)
    ratio = np.exp(np.asarray(total(now.log_prob) - total(rows.log_prob)))
    assert np.abs(ratio[np.asarray(now.mask)] - 1).max() > 0.1
