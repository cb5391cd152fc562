"""Kernels: transitions on numbers worked out apart from them, unrolls, options and the example of the docs."""

import functools
import math
import re
from pathlib import Path

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import s2pg
from s2pg.cli import main
from s2pg.distributions import Normal
from s2pg.errors import UserError
from s2pg.heads import Heads, no_noise, plain_action_head, plain_state_head
from s2pg.kernel import Kernel
from s2pg.kernels import KERNELS, register_kernel
from s2pg.kernels.cpg import Oscillators, Swing, growth, integrate
from s2pg.kernels.lstm import LSTM
from s2pg.kernels.mingru import MinGRU
from s2pg.kernels.ode import SOLVERS, NeuralODE
from s2pg.kernels.rnn import RNN
from s2pg.networks import Linear
from s2pg.options import argument_settings
from s2pg.rollout import collect, start
from s2pg.types import Box
from toys import assert_close, resolve

INPUTS, STATEFUL = 3, [name for name, kernel in KERNELS.items() if kernel.stateful]
BOUNDED = [name for name in STATEFUL if KERNELS[name].bounded]
SIZES = {"size": 5, "width": 7, "encoder_width": 0}
HEADS = Heads(plain_action_head(Box((-1.0,), (1.0,)), 0.0), no_noise)
NOISY = HEADS._replace(state=plain_state_head(-1.0, True))


def made(name, heads=HEADS, **options):
    asked = argument_settings(KERNELS[name], keyword_only=True)
    given = {key: value for key, value in (SIZES | {"dt": 0.05}).items() if key in asked} | options
    return KERNELS[name](INPUTS, heads, jax.random.key(0), **given)


def observations(steps):
    return jax.random.normal(jax.random.key(1), (steps, INPUTS))


def linear(weight, bias=0.0):
    """A layer of one unit with these weights."""
    layer = Linear(len(weight), 1, key=jax.random.key(0))
    return _put(layer, jnp.array(weight)[:, None], jnp.full(1, bias))


def _put(layer, weight, bias):
    return eqx.tree_at(lambda each: (each.weight, each.bias), layer, (weight, bias))


# Unrolling -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STATEFUL)
def test_unrolling_is_advancing_step_by_step_from_every_restart(name):
    kernel, steps = made(name), 11
    x = jax.vmap(kernel.embed)(observations(steps))
    stored = 0.4 * jax.random.normal(jax.random.key(2), (steps, *kernel.initial().shape))
    restart = np.zeros(steps, bool)
    restart[[4, 5, 9]] = True
    z, eta = eqx.filter_jit(kernel.unroll)(x, stored, jnp.asarray(restart))
    advance, before = eqx.filter_jit(kernel.advance), None
    for t in range(steps):
        expected = stored[t] if t == 0 or restart[t] else before
        assert_close(z[t], expected, atol=1e-5)
        before = advance(jax.tree.map(lambda leaf, t=t: leaf[t], x), expected)
        assert_close(eta[t], before, atol=1e-5)


def test_the_associative_scan_has_the_gradient_of_the_sequential_one():
    kernel, steps = made("mingru"), 32
    stored = jnp.zeros((steps, 5)).at[20].set(0.3)
    restart = jnp.zeros(steps, bool).at[20].set(True)

    def loss(unroll, kernel):
        z, eta = unroll(kernel, jax.vmap(kernel.embed)(observations(steps)), stored, restart)
        return jnp.sum(jnp.sin(eta) + z**2)

    unrolls = (type(kernel).unroll, Kernel.unroll)
    parallel, sequential = (jax.jit(jax.value_and_grad(functools.partial(loss, unroll)))(kernel) for unroll in unrolls)
    assert_close(parallel, sequential, rtol=1e-5, atol=1e-5)
    loops = ["scan[" in str(jax.make_jaxpr(functools.partial(loss, unroll))(kernel)) for unroll in unrolls]
    assert loops == [False, True]


# Cells ---------------------------------------------------------------------------------------------------------------


LIMITS = [("ode", {"solver": solver, "substeps": 2, "fastest": 2.0}) for solver in ("euler", "heun", "bosh3")]


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in BOUNDED), *LIMITS])
def test_a_bounded_kernel_keeps_its_state_within_bounds(name, options):
    kernel = jax.tree.map(lambda leaf: 10.0 * leaf, made(name, **options))
    x = jax.vmap(kernel.embed)(observations(50))
    z = jnp.sign(jax.random.normal(jax.random.key(2), (50, *kernel.initial().shape)))
    assert np.abs(eqx.filter_jit(lambda kernel: jax.vmap(kernel.advance)(x, z))(kernel)).max() <= 1.0


def test_the_plain_cell_by_hand():
    cell = RNN(1, 1, key=jax.random.key(0))
    assert abs(abs(float(cell.recurrent[0, 0])) - 1.0) < 1e-6  # orthogonal
    cell = _replaced(cell, inputs=linear([2.0], 0.1), recurrent=jnp.full((1, 1), 0.5))
    eta = cell.advance(cell.project(jnp.array([0.3])), jnp.array([-0.4]))
    np.testing.assert_allclose(eta, [math.tanh(0.6 + 0.1 - 0.2)], rtol=1e-6)


def _replaced(module, **fields):
    return eqx.tree_at(lambda each: [getattr(each, name) for name in fields], module, list(fields.values()))


def test_the_lstm_is_the_usual_one_while_nothing_draws_its_state():
    cell = LSTM(2, 3, key=jax.random.key(0))
    x = np.asarray(jax.random.normal(jax.random.key(1), (20, 2)))
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    wx, wh, b = (np.asarray(each, np.float64) for each in (cell.inputs.weight, cell.recurrent.weight, cell.inputs.bias))
    h, c, z = np.zeros(3), np.zeros(3), jnp.zeros(6)
    for each in x:
        i, f, o, g = np.split(each @ wx + b + h @ wh, 4)
        c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        z = cell.advance(cell.project(jnp.asarray(each)), z)
        np.testing.assert_allclose(z, np.concatenate([h, np.tanh(c)]), atol=1e-5)


def test_the_minimal_cell_by_hand():
    cell = _replaced(MinGRU(1, 1, key=jax.random.key(0)), gate=linear([1.0], -0.5), candidate=linear([2.0]))
    update, candidate = 1 / (1 + math.exp(-(0.3 - 0.5))), math.tanh(0.6)
    eta = cell.advance(cell.project(jnp.array([0.3])), jnp.array([0.8]))
    np.testing.assert_allclose(eta, [(1 - update) * 0.8 + update * candidate], rtol=1e-6)


# The neural differential equation ------------------------------------------------------------------------------------


def ode(solver, substeps, fastest=1.0):
    return NeuralODE(2, 3, field_width=4, fastest=fastest, solver=solver, substeps=substeps, key=jax.random.key(0))


def test_one_euler_step_is_the_map_written_by_hand():
    cell = ode("euler", 1, fastest=0.7)
    x, z = jnp.array([0.3, -1.2]), jnp.array([0.5, -0.8, 0.1])
    hidden = np.tanh(np.asarray(cell.inputs(x) + cell.recurrent(z)))
    goal, gate = np.split(hidden @ np.asarray(cell.field.weight) + np.asarray(cell.field.bias), 2)
    by_hand = z + 0.7 / (1 + np.exp(-gate - np.array([0.0, -1.5, -3.0]))) * (np.tanh(goal) - z)
    np.testing.assert_allclose(cell.advance(cell.project(x), z), by_hand, rtol=1e-6)


def test_solvers_converge_with_their_order():
    """Against an integrator of SciPy's."""
    with jax.enable_x64(True):
        x, z = jnp.array([0.3, -1.2]), jnp.array([0.5, -0.8, 0.1])

        def made_wide(solver, substeps):
            return jax.tree.map(lambda leaf: 2.0 * leaf.astype(jnp.float64), ode(solver, substeps))

        cell = made_wide("euler", 1)
        projected, field = cell.project(x), eqx.filter_jit(cell.pull)  # which is dz/dt, `fastest` being 1
        exact = solve_ivp(lambda t, z: field(projected, z), (0.0, 1.0), np.asarray(z), rtol=1e-11, atol=1e-11)
        for solver, order in (("euler", 1), ("heun", 2), ("bosh3", 3)):
            cells = (made_wide(solver, substeps) for substeps in (4, 8))
            ends = (eqx.filter_jit(cell.advance)(projected, z) for cell in cells)
            coarse, fine = (np.abs(end - exact.y[:, -1]).max() for end in ends)
            assert 2**order * 0.8 < coarse / fine < 2**order * 1.25


@pytest.mark.parametrize("solver", SOLVERS)
def test_stages_written_out_do_what_diffrax_does(solver):
    cell, theirs = ode(solver, 3, fastest=3.0), {"euler": "Euler", "heun": "Heun", "bosh3": "Bosh3"}
    projected, z = cell.project(jnp.array([0.3, -1.2])), jnp.array([0.5, -0.8, 0.1])
    terms, by_steps = diffrax.ODETerm(lambda t, z, x: 3.0 * cell.pull(x, z)), diffrax.StepTo(jnp.linspace(0.0, 1.0, 4))
    found = diffrax.diffeqsolve(
        terms, getattr(diffrax, theirs[solver])(), 0.0, 1.0, None, z, projected, stepsize_controller=by_steps
    )
    moved = cell.advance(projected, z)
    np.testing.assert_allclose(moved, found.ys[0], atol=1e-6)
    assert np.abs(moved - z).max() > 0.1
    assert not re.search(r"\b(scan|while)\[", str(jax.make_jaxpr(cell.advance)(projected, z)))


# Oscillators ---------------------------------------------------------------------------------------------------------


def test_the_rates_of_two_oscillators_by_hand():
    raw = Oscillators(2, 5.0, key=jax.random.key(0))
    v, b, c = ([most / (1 + math.exp(-float(r) / most)) for r in part]
               for part, most in ((raw.frequency, 5), (raw.goal, 2), (raw.pull, 10)))  # fmt: skip
    w, phi = (np.asarray(most / (1 + np.exp(-np.asarray(part) / most)))
              for part, most in ((raw.coupling, 1.0), (raw.shift, 2 * math.pi)))  # fmt: skip
    psi, r, change = [0.3, -1.1], [0.9, 1.4], [0.2, -0.5]
    rates = raw.rates(Swing(jnp.array(psi), jnp.array(r), jnp.array(change)))
    for i, j in ((0, 1), (1, 0)):
        turning = 2 * math.pi * v[i] + r[j] * w[i, j] * math.sin(psi[j] - psi[i] - phi[i, j])
        np.testing.assert_allclose(rates.phase[i], turning, rtol=1e-5)
        np.testing.assert_allclose(rates.amplitude[i], change[i], rtol=1e-6)
        np.testing.assert_allclose(rates.change[i], c[i] * (c[i] / 4 * (b[i] - r[i]) - change[i]), rtol=1e-5)


def test_frequencies_begin_in_the_middle_of_their_range():
    np.testing.assert_allclose(Oscillators(8, 5.0, key=jax.random.key(0)).hertz, 2.5, atol=0.1)
    np.testing.assert_allclose(Oscillators(8, 3.0, key=jax.random.key(0)).hertz, 1.5, atol=0.1)


def test_an_amplitude_approaches_its_goal_as_a_critically_damped_spring():
    # r(t) = b + (r0 - b) (1 + c t / 2) exp(-c t / 2)
    alone = Oscillators(1, 5.0, key=jax.random.key(0))
    b, c = 2 / (1 + math.exp(-float(alone.goal[0]) / 2)), 10 / (1 + math.exp(-float(alone.pull[0]) / 10))
    for solver, dt, most in (("rk4", 0.05, 1e-4), ("euler", 0.0005, 1e-3)):
        steps = round(0.5 / dt)
        swing = Swing(jnp.zeros(1), jnp.full(1, 0.2), jnp.zeros(1))
        step = jax.jit(lambda swing, dt=dt, solver=solver: integrate(alone, swing, dt, solver))
        for _ in range(steps):
            swing = step(swing)
        expected = b + (0.2 - b) * (1 + c * 0.25) * math.exp(-c * 0.25)
        assert abs(float(swing.amplitude[0]) - expected) < most
        np.testing.assert_allclose(swing.phase, steps * dt * 2 * math.pi * alone.hertz, rtol=1e-3)


def test_a_full_turn_of_a_phase_changes_nothing():
    kernel = made("cpg", oscillators=2, blind=False)
    z = jnp.array([0.3, -0.9, 0.4, 0.7, 0.1, -0.2])
    turned = z.at[0].add(2.0).at[1].add(-4.0)  # in half turns
    x = kernel.embed(observations(1)[0])
    eta, other = kernel.advance(x, z), kernel.advance(x, turned)
    assert_close(eta, other, atol=1e-5)
    assert_close(kernel.features(z), kernel.features(turned), atol=1e-5)
    assert_close(kernel.emit(x, eta).action, kernel.emit(x, other.at[0].add(2.0)).action, atol=1e-5)


def test_a_blind_one_reads_nothing_and_another_does():
    first, second = observations(2)
    for blind in (True, False):
        kernel = jax.tree.map(lambda leaf: 1.5 * leaf, made("cpg", blind=blind))
        one, two = (kernel(obs, kernel.initial()).action.mean for obs in (first, second))
        assert bool(jnp.all(one == two)) is blind


def test_phase_noise_is_in_half_turns():
    kernel = made("cpg", heads=NOISY, oscillators=2)
    step = kernel(observations(1)[0], kernel.initial())
    assert isinstance(step.state, Normal)
    np.testing.assert_allclose(step.state.log_std, -1.0)
    # 2.5 Hz for 0.05 s is an eighth of a turn, a quarter of a half turn, give or take coupling.
    np.testing.assert_allclose((step.state.mean - kernel.initial())[:2], 0.25, atol=0.05)


# Choosing one --------------------------------------------------------------------------------------------------------


def refusal(algorithm="ppo", task="masked-pendulum", memory="s2pg", **given):
    with pytest.raises(UserError) as caught:
        resolve(algorithm, s2pg.make(task), memory=memory, **given)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_refusals():
    assert "steps of 1 s" in refusal(task="recall", kernel="cpg")
    assert "diverge under euler" in refusal(task="recall", kernel="cpg")
    assert "2 substeps at rates of up to 9 overshoot or diverge" in refusal(kernel="ode", hyper={"fastest": 9})
    assert "overshoot" in refusal(kernel="ode", hyper={"fastest": 1e200})
    range_of = "hyper-parameter 'substeps' must be between 1 and 100, not"
    assert refusal(kernel="ode", hyper={"substeps": 10**9}) == f"{range_of} 1000000000"
    assert refusal(kernel="ode", hyper={"substeps": 0}) == f"{range_of} 0"
    assert "'solver' 'eular'; did you mean euler?" in refusal(kernel="ode", hyper={"solver": "eular"})
    assert "sac keeps z within [-1, 1]" in refusal("sac", kernel="cpg")
    assert "unknown hyper-parameter of ppo with kernel gru 'blind'" in refusal(kernel="gru", hyper={"blind": True})
    assert "must be bool" in refusal(kernel="cpg", hyper={"blind": "perhaps"})
    assert "'oscillators' must be 1 or more, not 0" in refusal(kernel="cpg", hyper={"oscillators": 0})
    assert "'most_frequency' must be above 0" in refusal(kernel="cpg", hyper={"most_frequency": 0})


@pytest.mark.parametrize(("solver", "limit"), [("euler", 2.0), ("rk4", 2.7853)])
def test_how_long_a_step_may_be(solver, limit):
    assert growth(solver, limit - 1e-3) < 1.0 < growth(solver, limit + 1e-3)


class Jumpy(KERNELS["rnn"]):
    unrolls = False


def test_a_kernel_of_ones_own_that_cannot_be_unrolled(monkeypatch):
    monkeypatch.setitem(KERNELS, "jumpy", Jumpy)
    assert (
        refusal(memory="bptt-4", kernel="jumpy")
        == "kernel 'jumpy' cannot be unrolled, which memory 'bptt-4' needs; use s2pg"
    )


def test_an_option_may_not_be_called_what_the_algorithm_calls_its_own(monkeypatch):
    class Damped(KERNELS["rnn"]):
        def __init__(self, inputs, heads, key, *, damping=0.5):
            super().__init__(inputs, heads, key, **SIZES)

    monkeypatch.setitem(KERNELS, "damped", Damped)
    assert refusal("trpo", kernel="damped") == (
        "kernel 'damped' has a hyper-parameter 'damping', which there is already: give it another name"
    )
    resolve("ppo", s2pg.make("masked-pendulum"), kernel="damped")


@pytest.mark.slow
def test_what_oscillators_learned_is_printed(tmp_path, capsys):
    run = s2pg.train(
        "reinforce", "masked-pendulum", kernel="cpg", hyper={"lanes": 2, "oscillators": 2}, steps=400, borders=1,
        episodes=2, out=tmp_path / "run", say=lambda line: None,
    )  # fmt: skip
    assert main(["eval", str(run.path), "--episodes", "2"]) == 0
    told = capsys.readouterr().out
    frequencies = run.policy(0).actor.kernel.oscillators.hertz
    assert f"seed 0: frequencies in Hz: {' '.join(f'{float(x):.3g}' for x in frequencies)}" in told


def test_registering():
    with pytest.raises(UserError, match="there is a kernel 'gru' already: GRUKernel"):
        register_kernel("gru", Jumpy)
    with pytest.raises(UserError, match="must be a subclass"):
        register_kernel("mine", dict)

    class Lacking(KERNELS["rnn"]):
        def __init__(self, inputs, heads, key, *, pace):
            super().__init__(inputs, heads, key, **SIZES)

    with pytest.raises(UserError, match="kernel 'mine': its option 'pace' needs a default"):
        register_kernel("mine", Lacking)
    assert "mine" not in KERNELS


@pytest.fixture
def example():
    """The kernel of the docs, known as `trace` for as long as a test runs; what to ask for it with."""
    text = (Path(__file__).parent.parent / "docs" / "kernels.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    try:
        exec(code, {})
        yield {"kernel": "trace", "hyper": {"slowest": 2.0, "lanes": 4, "steps": 8}}
    finally:
        KERNELS.pop("trace", None)


def test_the_example_of_the_docs_trains_and_acts(example, tmp_path):
    run = s2pg.train(
        "ppo", "masked-pendulum", **example, steps=64, borders=1, episodes=2, out=tmp_path / "run",
        say=lambda line: None,
    )  # fmt: skip
    assert s2pg.load(run.path).session()([1.0, 0.0]).shape == (1,)
    assert run.experiment.hyper["slowest"] == 2.0


@pytest.mark.parametrize("label", ["s2pg-pathwise", "bptt-4"])
def test_the_example_of_the_docs_goes_with_every_rule_that_learns_a_state(example, label):
    """Traced, as for compiling, which is what would take time."""
    env = s2pg.make("masked-pendulum")
    state, new = eqx.filter_eval_shape(updated, resolve("ppo", env, memory=label, **example)[1], env)
    assert jax.tree.structure(state.policy) == jax.tree.structure(new.policy)


@pytest.mark.usefixtures("example")
def test_the_example_of_the_docs_has_an_option_with_a_bound():
    assert "'slowest' must be above 0" in refusal(kernel="trace", hyper={"slowest": -1.0})


def updated(algorithm, env):
    """Training states before and after one update."""
    keys = jax.random.split(jax.random.key(0), 4)
    state = algorithm.init(env.spec, (), key=keys[0])
    actor = algorithm.actor(state.policy)
    _, batch, _ = collect(env, actor, start(env, actor, algorithm.lanes, keys[1]), algorithm.steps, keys[2])
    return state, algorithm.update(state, batch, (), keys[3])[0]
