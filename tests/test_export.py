"""Exported policies: every kernel and algorithm in onnxruntime, what a file says of itself, and what mistakes get."""

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import s2pg
from s2pg.algorithms import ALGORITHMS
from s2pg.cli import main
from s2pg.errors import UserError
from s2pg.io import export
from s2pg.kernels import KERNELS
from s2pg.normalise import merge
from s2pg.runs.session import LoadedPolicy
from toys import resolve, shaken

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

RUNNER = Path(__file__).parent.parent / "examples" / "deploy" / "run_policy.py"
OWN_LABEL = {"mlp": "none", "window": "window-3"}
TINY = {"size": 5, "width": 8}


def policy_of(env, algorithm="ppo", memory="s2pg", kernel=None, hide=()):
    """A policy with drawn parameters and statistics of drawn observations."""
    _, built = resolve(algorithm, env, memory=memory, kernel=kernel, hyper=TINY)
    key = jax.random.key(3)
    policy = built.init_policy(env.spec, key=key)
    views = {name: 2.0 * jax.random.normal(key, (50, size)) + 0.5 for name, size in env.spec.views.items()}
    policy = policy._replace(kernel=shaken(policy.kernel, key, 0.2), normaliser=merge(policy.normaliser, views))
    return LoadedPolicy(built.actor(policy, explore=False), env.spec, hide)


def observations(policy, steps):
    return np.asarray(2.0 * jax.random.normal(jax.random.key(9), (steps, policy.flat.size)) + 0.5)


def exported(policy):
    return export.encode(policy.flat, "onnx", {})


def allowed(algorithm, kernel):
    return algorithm == "ppo" or KERNELS[kernel].bounded


POINTS = [(a, k) for a in ("ppo", "sac", "td3") for k in KERNELS if allowed(a, k)]


@pytest.mark.parametrize(("algorithm", "kernel"), POINTS)
def test_every_kernel_does_in_a_file_what_it_does_in_jax(algorithm, kernel):
    policy = policy_of(s2pg.make("masked-pendulum"), algorithm, OWN_LABEL.get(kernel, "s2pg"), kernel)
    content, seen = exported(policy), observations(policy, 60)
    play = export.player(content, "onnx")
    found = export.compare(policy.flat, play, seen)  # which begins with a state that is no number
    assert found.steps == 60 and found.far == 0
    assert found.step <= 1e-6 and found.action <= (1e-4 if kernel == "cpg" else 1e-5)
    # The same as a session, and a second episode like the first, whatever is left in the state.
    session, state = policy.session(), np.full((1, policy.flat.initial.size), np.nan, np.float32)
    for _ in range(2):
        actions = []
        for t, obs in enumerate(seen[:20]):
            action, state = play(obs[None], state, np.full(1, t == 0, np.float32))
            actions.append(action[0])
            np.testing.assert_allclose(action[0], session(obs), atol=1e-5)
        session.reset()
    assert np.ptp(actions) > (1e-2 if kernel != "cpg" else 0.0) and np.abs(actions).max() > 0.0
    model = onnx.load_from_string(content)
    assert model.ir_version == 8 and [each.version for each in model.opset_import] == [17]
    shapes = {each.name: [axis.dim_value for axis in each.type.tensor_type.shape.dim] for each in model.graph.input}
    size = policy.flat.initial.size
    assert shapes == {"obs": [1, 2], "state": [1, size], "first": [1]}
    assert [each.name for each in model.graph.output] == ["action", "next_state"]


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name not in ("ppo", "sac", "td3")])
def test_so_does_every_other_algorithm(algorithm):
    policy = policy_of(s2pg.make("masked-pendulum"), algorithm, "window-4" if algorithm == "slac" else "bptt-4")
    found = export.compare(policy.flat, export.player(exported(policy), "onnx"), observations(policy, 10))
    assert found.step <= 1e-6 and found.action <= 1e-5


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=5),
        spaces.MultiDiscrete([[3, 1], [2, 5]], start=[[0, 1], [-2, 7]]),
        spaces.Box(np.float32([[-2.0, -np.inf], [0.0, -1.0]]), np.float32([[3.0, np.inf], [0.1, np.inf]])),
    ],
)
def test_actions_of_every_space_come_in_the_environments_own_units(space):
    class World(gymnasium.Env):
        observation_space, action_space = spaces.Box(-1.0, 1.0, (3,)), space

    gymnasium.register("World-v0", World)
    try:
        policy = policy_of(s2pg.make("gym:World-v0"), hide=(1,))
    finally:
        del gymnasium.registry["World-v0"]
    play, session, state = export.player(exported(policy), "onnx"), policy.session(), policy.flat.initial[None]
    told = export.describe(policy.flat, {})["action"]
    seen = observations(policy, 8)
    for t, obs in enumerate(seen):
        action, state = play(obs[None], state, np.full(1, t == 0, np.float32))
        own = session(obs * [1.0, np.nan, 1.0])  # an entry that is hidden is not looked at
        np.testing.assert_allclose(action.reshape(told["shape"]), own, atol=1e-5)
        assert action.shape == (1, told["size"])
    assert told["kind"] == type(space).__name__.lower()
    if told["kind"] == "box":
        assert told["low"] == [-2.0, None, 0.0, -1.0] and told["high"][1] is told["high"][3] is None
        assert np.allclose([told["high"][i] for i in (0, 2)], [3.0, 0.1])


# The converter -------------------------------------------------------------------------------------------------------

X = np.float32([[0.3, -1.7, 2.5, 0.0, -0.5], [1.5, 0.2, -2.5, 0.9, -0.1]])
FUNCTIONS = {
    "powers": lambda x: x**2 + x**3 + jnp.square(x) + jnp.abs(x) ** 1.5 + jax.lax.rsqrt(2.0 + x * x),
    "logarithms": lambda x: jnp.log1p(jnp.abs(x)) + jnp.expm1(x) + jax.nn.softplus(x) + jax.nn.silu(x) + jax.nn.gelu(x),
    "trigonometry": lambda x: jnp.sin(x) + jnp.cos(x) + jnp.tan(x) + jnp.arctan(x) + jnp.arcsin(x / 9),
    "rounding": lambda x: jnp.round(x) + jnp.floor(x) + jnp.ceil(x) + jnp.sign(x) + jax.lax.round(x) + jnp.fmod(x, 0.7),
    "reductions": lambda x: x.sum(1) + x.max(1) + x.min(1) + jnp.prod(x, axis=1) + x.mean() + jnp.cumsum(x, 1)[:, 2],
    "largest": lambda x: (jnp.argmax(x, 1) * 10 + jnp.argmin(x, 1)).astype(jnp.float32),
    "norms": lambda x: jax.nn.softmax(x) + (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True) + 1e-5),
    "logic": lambda x: jnp.where((x > 0) & ~(x >= 2) | (x != 2.5) ^ (x <= -2) | (x == 0.0), x, -x) + jnp.isfinite(x),
    "moves": lambda x: x[:, ::-1][:, 1:4:2] + x[:, jnp.array([4, 0])] + x.T[1:3].T + jnp.roll(x, 1, 1)[:, :2],
    "pieces": lambda x: jnp.concatenate([jnp.stack(jnp.split(x[:, :4], 2, axis=1)).reshape(2, -1), x], axis=1),
    "products": lambda x: jnp.einsum("bi,bj->bij", x, x) @ jnp.arange(10.0).reshape(5, 2) + (x @ x.T)[:, :1, None],
    "stacks": lambda x: sum(jnp.unstack(jnp.stack([x, -x], 1), axis=2)) + jnp.pad(x, 1, constant_values=3)[:2, :2],
    "copies": lambda x: jnp.tile(x, (2, 1)) + jnp.repeat(x, 2, axis=0) + jnp.exp2(x[:1]),
    "a slice at a known place": lambda x: jax.lax.dynamic_slice(x, (0, 2), (2, 3)) + jnp.clip(x[:, :3], -1.0, 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_primitives_say_in_onnx_what_they_say_in_jax(name):
    from s2pg.io.onnx import convert

    with jax.numpy_rank_promotion("allow"):
        model = convert(lambda x: (FUNCTIONS[name](x),), {"x": X.shape}, ("y",))
        expected = FUNCTIONS[name](X)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, rtol=2e-6, atol=2e-6)


def test_what_nobody_needs_is_left_out_and_what_is_known_is_computed():
    from s2pg.io.onnx import convert

    def function(x):
        jnp.sort(x)  # for which there is no rule
        return (x * jnp.sum(jnp.sort(jnp.arange(3.0))),)

    model = convert(function, {"x": (1, 3)}, ("y",))
    assert [node.op_type for node in model.graph.node] == ["Mul", "Identity"]


def test_operations_are_few_and_only_joined_where_that_says_the_same():
    from s2pg.io.onnx import convert

    def function(x):
        whole, one = x.astype(jnp.int32), x[:1] @ x.T
        joined = jnp.clip(jax.nn.relu(x @ x.T + 1.0 * x[:, :1] + 0.0), -1.0, 40.0)
        return joined, (whole @ whole.T + 1).astype(jnp.float32), jnp.broadcast_to(one, (2, 2)) + joined

    model, x = convert(function, {"x": (2, 3)}, ("a", "b", "c")), np.float32([[1, -2, 3], [4, 5, 6]])
    kinds = [node.op_type for node in model.graph.node]
    assert [kinds.count(name) for name in ("Gemm", "Relu", "Clip", "MatMul", "Max", "Mul", "Expand")] == [
        1, 1, 1, 2, 0, 0, 0,
    ]  # fmt: skip
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for found, expected in zip(session.run(None, {"x": x}), function(x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (jnp.sort, "sort"),
        (lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=3)[0], "scan"),
        (lambda x: (x.astype(jnp.int32) & 1).astype(jnp.float32), "and"),
    ],
)
def test_a_primitive_without_a_rule_is_named(function, name):
    from s2pg.io.onnx import convert

    with pytest.raises(UserError, match=f"no rule for JAX's primitive '{name}'"):
        convert(lambda x: (function(x),), {"x": (1, 3)}, ("y",))


# The command ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    env, hyper = (
        s2pg.make("masked-pendulum", horizon=12),
        {"lanes": 2, "steps": 8, **TINY, "epochs": 1, "minibatches": 2},
    )
    return s2pg.train("ppo", env, hyper=hyper, steps=64, seeds=(2, 5), episodes=2, out=tmp_path_factory.mktemp("run"))


def test_a_file_tells_what_a_robot_has_to_know(run, tmp_path, capsys):
    file = tmp_path / "sub" / "policy.onnx"
    assert main(["export", str(run.path), "--seed", "5", "-o", str(file)]) == 0
    told = capsys.readouterr().out
    assert "12 steps of an episode, largest difference" in told and "obs [1, 2], state [1, 6]" in told
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    about = json.loads(session.get_modelmeta().custom_metadata_map["s2pg"])
    assert about["views"] == [{"name": "policy", "size": 2}] and about["dt"] == run.spec.dt
    assert about["state"] == {"z": 5, "previous_action": 1} and about["z_0"] == [0.0] * 5
    assert about["action"] == {"kind": "box", "size": 1, "shape": [1], "low": [-2.0], "high": [2.0]}
    named = ("schema", "task", "algorithm", "memory", "kernel", "seed", "step", "hidden")
    assert [about[name] for name in named] == [1, "masked-pendulum", "ppo", "s2pg", "gru", 5, 64, []]
    last = [row for row in run.metrics if row["seed"] == 5][-1]
    assert about["returns"]["eval_return"] == last["eval_return"] and about["versions"]["jax"] == jax.__version__
    import hashlib

    assert about["policy_sha256"] == hashlib.sha256((run.path / "policies" / "seed-5.npz").read_bytes()).hexdigest()


def test_mistakes_get_one_line_and_leave_nothing(run, tmp_path, capsys, monkeypatch):
    there = tmp_path / "there.onnx"
    there.write_text("mine")

    def refusal(*args, out=tmp_path / "new.onnx", of=run.path):
        assert main(["export", str(of), "-o", str(out), *args]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and not (tmp_path / "new.onnx").exists()
        return said

    assert "is no run folder" in refusal(of=tmp_path)
    assert "there.onnx is there already: --force writes over it" in refusal(out=there)
    assert "has no seed 3; it has 2, 5" in refusal("--seed", "3")
    assert "is a folder" in refusal(out=tmp_path)
    assert there.read_text() == "mine"
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if "onnx" in name else find(name))
    assert "needs the package onnx: pip install 's2pg[export]'" in refusal()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else find(name))
    assert main(["export", str(run.path), "-o", str(there), "--force"]) == 0
    assert "check:  none, onnxruntime is not installed" in capsys.readouterr().out
    assert onnx.load(there).graph.name == "policy"


def test_a_file_that_does_something_else_is_refused(run):
    one, other = (run.policy(seed) for seed in (2, 5))
    found = export.compare(one.flat, export.player(exported(other), "onnx"), observations(one, 12))
    assert found.far > 1
    with pytest.raises(UserError, match=f"{found.far} of 12 steps differ by more than 0.0001"):
        export.judge(found)
    export.judge(found._replace(far=1, steps=100))


def test_stablehlo_is_written_with_its_metadata_beside_it(run, tmp_path, capsys):
    pytest.importorskip("flatbuffers")
    file = tmp_path / "policy.stablehlo"
    assert main(["export", str(run.path), "--format", "stablehlo", "-o", str(file)]) == 0
    assert "largest difference 0.0e+00 after one step" in capsys.readouterr().out
    assert json.loads((tmp_path / "policy.stablehlo.json").read_text())["seed"] == 2
    assert jax.export.deserialize(bytearray(file.read_bytes())).platforms == ("cpu", "cuda")
    assert main(["export", str(run.path), "--format", "stablehlo", "-o", str(file)]) == 2


def test_the_runner_of_the_examples_needs_no_jax_and_plays_what_a_session_does(run, tmp_path):
    tree = ast.parse(RUNNER.read_text())
    names = [each.names[0].name for each in ast.walk(tree) if isinstance(each, ast.Import)]
    names += [each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    assert set(names) - set(sys.stdlib_module_names) == {"numpy", "onnxruntime"}
    s2pg.export(run, tmp_path / "policy.onnx", seed=5)
    policy = run.policy(5)
    seen, session = observations(policy, 7), policy.session()
    np.savetxt(tmp_path / "log.csv", seen, delimiter=",", fmt="%.9g")
    command = [sys.executable, str(RUNNER), str(tmp_path / "policy.onnx")]
    played = subprocess.run([*command, "--obs", str(tmp_path / "log.csv")], capture_output=True, text=True, check=True)
    expected = [session(obs) for obs in seen]
    np.testing.assert_allclose(np.array(played.stdout.split(), float)[:, None], expected, atol=1e-5)
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert 'task: "masked-pendulum"' in told and "one step: " in told
