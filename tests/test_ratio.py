"""Parameters that did not change have an importance ratio of 1: whatever an update recomputes, it recomputes right."""

import jax
import numpy as np
import pytest

from s2pg.types import total
from toys import CONTINUOUS, DISCRETE, LABELS, built, evaluation, two_batches, with_kernel

# In 64 bits rounding hides no mistake. Kinds of actions meet every memory rule; 32 bits are what runs use.
WIDE = [*((label, DISCRETE) for label in LABELS), *((label, CONTINUOUS) for label in ("s2pg", "bptt-3", "window-3"))]
CASES = [*((*case, True, 1e-9) for case in WIDE), ("s2pg", CONTINUOUS, False, 1e-3), ("bptt-3", DISCRETE, False, 1e-3)]


@pytest.mark.parametrize(
    ("label", "env", "wide", "tolerance"),
    CASES,
    ids=[f"{label}-{env.cue}-{'x64' if wide else 'float32'}" for label, env, wide, _ in CASES],
)
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
    rows, now = evaluation(algorithm, with_kernel(state, two_batches(algorithm, seed=1)[0].policy.kernel), batch)
    ratio = np.exp(np.asarray(total(now.log_prob) - total(rows.log_prob)))
    assert np.abs(ratio[np.asarray(now.mask)] - 1).max() > 0.1
