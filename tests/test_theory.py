"""Gradient estimators: variance below its bound, growth with length, agreement and bias; and the command that draws."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s2pg.cli import main
from s2pg.envs.pendulum import MaskedPendulum
from s2pg.envs.recall import Recall
from s2pg.errors import UserError
from s2pg.heads import Heads, plain_action_head, plain_state_head
from s2pg.kernels import GRUKernel
from s2pg.theory import Estimator, bias, constants, measure, studies
from s2pg.theory.estimators import FixedNoise
from s2pg.theory.toys import MAPS, Chase, Echo, echo_return, toy_kernel

LENGTHS, DISCOUNT = (4, 8, 16, 32), 0.99
TOYS = ("rotation", "fold", "sine")
STEEPEST = {"rotation": (0.8, 1.0, 1.2), "fold": (0.8, 1.0, 1.2), "sine": (0.8, 1.0, 3.0)}


@functools.cache
def measured(label: str, map: str, z: float):
    """(moments, the numbers of a figure's row) of an estimator on a toy, in 64 bits."""
    with jax.enable_x64():
        kernel = toy_kernel(map, z)
        moments = measure(label, Chase(), kernel, jax.random.key(5), lengths=LENGTHS, trajectories=400, seeds=2)
        return moments, studies.bounded(label, kernel, moments, LENGTHS, DISCOUNT)


@pytest.mark.parametrize("map", TOYS)
@pytest.mark.parametrize("label", ["bptt", "s2pg"])
def test_the_measured_variance_never_exceeds_its_bound(label, map):
    for z in STEEPEST[map]:
        moments, row = measured(label, map, z)
        assert np.isfinite(row["bound"]).all()
        assert (np.asarray(row["variance_low"]) > 0).all()
        print(map, z, label, "variance over bound", np.round(row["shares"], 4))
        assert max(row["shares"]) < 1
        largest = float(np.max(moments.norms.state_memory))
        assert largest <= z * (1 + 1e-9)  # the sine is at its steepest only now and then
        assert row["constants"]["state_memory"] == largest
        if label == "s2pg":
            assert (np.asarray(row["variance_high"]) < row["diagonal_bound"]).all()


def test_above_1_bptt_explodes_and_s2pg_grows_linearly():
    """On a bounded expanding map, the prefactor divided out."""
    (_, exploding), (_, tame) = measured("bptt", "sine", 3.0), measured("s2pg", "sine", 3.0)
    assert exploding["rate"] > 0.8  # twice the Lyapunov exponent is about 1.1
    assert 0.9 < tame["power"] < 1.2
    logs = np.log(np.asarray(exploding["variance"]) / exploding["prefactor"])
    rates = np.diff(logs) / np.diff(LENGTHS)
    assert (rates[1:] > 0.8).all()  # at every length: a straight line, not a curve that bends down


def test_a_fold_explodes_at_twice_the_logarithm_of_its_slope():
    assert measured("bptt", "fold", 1.2)[1]["rate"] == pytest.approx(2 * np.log(1.2), rel=0.15)


def test_at_1_the_growth_is_polynomial():
    row = measured("bptt", "fold", 1.0)[1]
    assert 1.4 < row["power"] < 3
    assert row["rate"] < 0.15


def test_a_frobenius_norm_above_1_alone_explodes_nothing():
    row = measured("bptt", "rotation", 1.2)[1]
    assert row["power"] < 1.6
    assert row["bound"][-1] / row["variance"][-1] > 1e3


@pytest.mark.parametrize("map", MAPS)
def test_the_lyapunov_exponent_of_a_map(map):
    with jax.enable_x64():
        kernel = FixedNoise(toy_kernel(map, 0.9))
        obs = jnp.linspace(-1, 1, 12).reshape(6, 2, 1)
        z = jnp.broadcast_to(kernel.initial(), (6, 2, kernel.initial().size))
        batch = _Rows({"policy": obs}, z, obs[..., 0])
        found = np.asarray(constants.lyapunov(kernel, batch, ("policy",)))
    if map == "rotation":
        np.testing.assert_allclose(found, np.log(0.9 / np.sqrt(2)))
    elif map == "sine":
        assert (found < np.log(0.9)).all()
    else:
        np.testing.assert_allclose(found, np.log(0.9))


class _Rows(tuple):
    """As much of a transition as an exponent needs."""

    def __new__(cls, obs, z, reward):
        from s2pg.types import Decision, Transition

        nothing = jnp.zeros(reward.shape, bool)
        return Transition(obs, z, Decision(()), Decision(()), reward, nothing, nothing, obs, z, nothing)


# Agreement and bias ---------------------------------------------------------------------------------------------------


@functools.cache
def echoed(label: str, steps: int = 6):
    """(largest deviation from the closed form in standard errors, mean, error) on the task that is linear in a."""
    with jax.enable_x64():
        kernel = toy_kernel("linear", 0.9, start=0.0)
        moments = measure(label, Echo(), kernel, jax.random.key(8), lengths=(steps,), trajectories=20_000, seeds=2)
        exact = jnp.concatenate(
            [jnp.ravel(leaf) for leaf in jax.tree.leaves(jax.grad(echo_return)(kernel, steps, DISCOUNT))]
        )
        off, error = (part[0] for part in bias(moments, exact[None]))
    moving = error > 0
    assert moving.sum() == 4  # w, u, k, c; standard deviations are fixed
    return np.abs(off[moving] / error[moving]), moments.gradient[0][moving], error[moving]


@pytest.mark.parametrize("label", ["s2pg", "bptt", "pathwise"])
def test_whole_estimators_agree_with_the_closed_form(label):
    assert echoed(label)[0].max() < 3


def test_s2pg_and_bptt_agree_with_each_other():
    (_, one, error), (_, other, its_error) = echoed("s2pg"), echoed("bptt")
    assert np.max(np.abs(one - other) / np.hypot(error, its_error)) < 3


@pytest.mark.parametrize("label", ["bptt-1", "bptt-3", "pathwise-2"])
def test_truncated_ones_do_not(label):
    assert echoed(label)[0].max() > 5


def test_s2pg_and_bptt_with_the_noise_held_fixed_agree_on_a_kernel_that_is_not_linear():
    means, errors = [], []
    with jax.enable_x64():
        for label in ("s2pg", "pathwise"):
            kernel = toy_kernel("sine", 1.5)
            moments = measure(label, Chase(), kernel, jax.random.key(2), lengths=(6,), trajectories=20_000, seeds=2)
            means.append(moments.gradient[0]), errors.append(moments.error[0])
    moving = errors[0] > 0
    away = np.abs(means[0] - means[1])[moving] / np.hypot(*errors)[moving]
    assert away.max() < 3
    # And it is a gradient that can be told from 0.
    assert np.max(np.abs(means[1]) / np.where(moving, errors[1], 1)) > 5


def test_a_cut_at_the_end_of_the_trajectory_cuts_nothing():
    whole, cut = echoed("bptt"), echoed("bptt-6")
    np.testing.assert_allclose(whole[1], cut[1], rtol=1e-12)


# Any kernel, any task -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["s2pg", "bptt-2"])
def test_any_kernel_on_any_device_task(label):
    env = MaskedPendulum(horizon=5)
    heads = Heads(plain_action_head(env.action, -0.5), plain_state_head(-1.0, True))
    reads = ("policy", "previous_action")
    kernel = GRUKernel(3, heads, jax.random.key(0), size=3, width=4, encoder_width=0)
    moments = measure(label, env, kernel, jax.random.key(1), lengths=(2, 5), trajectories=16, seeds=2, reads=reads)
    assert moments.trace.shape == (2, 2)
    assert (moments.trace > 0).all()
    noise = constants.precisions(kernel, jnp.zeros(3), kernel.initial())
    assert noise[1] == pytest.approx((np.exp(2.0),) * 3, rel=1e-5)
    found = constants.visited(moments.norms, 5, noise, DISCOUNT)
    assert found.state_row <= found.state_gradient
    from s2pg.theory import bptt_bound, s2pg_bound

    assert moments.trace[:, 1].max() < (s2pg_bound if label == "s2pg" else bptt_bound)(found, 5)


def test_what_comes_after_the_first_episode_does_not_count():
    with jax.enable_x64():
        args = toy_kernel("linear", 0.5), jax.random.key(1)
        long = measure("s2pg", Chase(horizon=3), *args, lengths=(3, 5), trajectories=8)
    np.testing.assert_allclose(long.mean[:, 0], long.mean[:, 1])


def test_mistakes_are_told_in_one_line():
    for label in ("bptt-0", "bptt-x", "s2pg-3", "reparam", "bptt-"):
        with pytest.raises(UserError, match="estimator"):
            Estimator.parse(label)
    with pytest.raises(UserError, match="negative"):
        toy_kernel("sine", -1.0)
    with pytest.raises(UserError, match="did you mean sine"):
        toy_kernel("sin", 1.0)
    with pytest.raises(UserError, match="trajectories"):
        measure("s2pg", Chase(), toy_kernel("sine", 1.0), jax.random.key(0), lengths=(3,), trajectories=1)


def test_discrete_actions_have_a_variance_but_no_bound():
    env = Recall(k=3)
    heads = Heads(plain_action_head(env.action, -0.5), plain_state_head(-1.0, True))
    kernel = GRUKernel(2, heads, jax.random.key(0), size=2, width=2, encoder_width=0)
    moments = measure("s2pg", env, kernel, jax.random.key(0), lengths=(3,), trajectories=16)
    assert (moments.trace > 0).all()
    with pytest.raises(UserError, match="normal policies"):
        constants.visited(moments.norms, 3, ((1.0,), (1.0,)), DISCOUNT)


# The command ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [pytest.param("variance", marks=pytest.mark.slow), "bias"])
def test_the_command_draws_and_writes_its_numbers(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(studies, "NOISES", (0.1, 1.0))
    monkeypatch.setattr(studies, "CUTS", (1, 4))
    out = tmp_path / "figures" / f"{name}.png"
    assert main(["theory", name, "--quick", "--out", str(out)]) == 0
    assert out.read_bytes()[:4] == b"\x89PNG"
    report = json.loads(out.with_suffix(".json").read_text())
    assert report["schema"] == 1 and report["name"] == name and report["versions"]["jax"]
    assert report["settings"]["lengths"] == [2, 4, 8]
    if name == "variance":
        assert 0 < report["largest_share"] < 1
    assert str(out) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["varience"], "did you mean variance"),
        (["variance", "--discount", "1.5"], "discount"),
        (["variance", "--state-std", "-1"], "state_std"),
        (["variance", "--lengths", "0", "4"], "lengths"),
        (["bias", "--trajectories", "1"], "trajectories"),
        (["bias", "--out", "bias.txt"], "must end in"),
    ],
)
def test_bad_input_is_one_line(args, word, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["theory", *args]) == 2
    told = capsys.readouterr().err
    assert word in told and told.count("\n") == 1
    assert not list(tmp_path.iterdir())
