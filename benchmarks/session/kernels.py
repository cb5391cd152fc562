"""Every kernel under PPO, SAC and TD3 as an exported file: how far off, how large, how long to write and to run.

    python benchmarks/session/kernels.py FOLDER     # leaves the files there, with the episode that each played

Weights are drawn, sizes are the presets'. Another version of onnxruntime may play the same files again.
"""

import sys
import time
from pathlib import Path

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

import s2pg
from s2pg.demos import recorder
from s2pg.io import export
from s2pg.kernels import KERNELS
from s2pg.normalise import merge
from s2pg.runs import experiment
from s2pg.runs.request import Request
from s2pg.runs.session import LoadedPolicy

OWN_LABEL = {"mlp": "none", "window": "window-8"}
CASES = [(a, k, "masked-pendulum") for a in ("ppo", "sac", "td3") for k in KERNELS if a == "ppo" or KERNELS[k].bounded]
CASES += [("ppo", "gru", "recall"), ("ppo", "cpg", "halfcheetah"), ("ppo", "gru", "halfcheetah")]


def drawn_policy(algorithm, kernel, env):
    _, built = experiment.resolve(Request(algorithm, "", memory=OWN_LABEL.get(kernel, "s2pg"), kernel=kernel), env)
    key = jax.random.key(3)
    policy = built.init_policy(env.spec, key=key)
    flat, restored = ravel_pytree(policy.kernel)
    views = {name: jax.random.normal(key, (50, size)) for name, size in env.spec.views.items()}
    policy = policy._replace(
        kernel=restored(flat + 0.05 * jax.random.normal(key, flat.shape)), normaliser=merge(policy.normaliser, views)
    )
    return LoadedPolicy(built.actor(policy, explore=False), env.spec)


def measure(algorithm, kernel, task, folder):
    env = s2pg.make(task, backend="gymnasium") if task == "halfcheetah" else s2pg.make(task)
    policy = drawn_policy(algorithm, kernel, env)
    about = export.describe(policy.flat, {})
    began, cpu = time.perf_counter(), time.process_time()
    content = export.encode(policy.flat, "onnx", about)
    took = f"{time.perf_counter() - began:.2f} s ({time.process_time() - cpu:.2f} of the CPU)"
    episode = recorder.record(env, policy.actor, 1, jax.random.key(1))
    obs = np.concatenate([episode.obs[name] for name in policy.flat.views], 1).astype(np.float32)
    play = export.player(content, "onnx")
    found = export.compare(policy.flat, play, obs)
    state, actions = np.full((1, policy.flat.initial.size), np.nan, np.float32), []
    for t, each in enumerate(obs):
        action, state = play(each[None], state, np.full(1, t == 0, np.float32))
        actions.append(action[0])
    seconds = []
    for _ in range(3000):
        began = time.perf_counter()
        play(obs[:1], state, np.zeros(1, np.float32))
        seconds.append(time.perf_counter() - began)
    name = f"{algorithm}-{kernel}-{task}"
    (folder / f"{name}.onnx").write_bytes(content)
    np.savez(folder / f"{name}.npz", obs=obs, actions=np.array(actions))
    print(
        f"{name:28s} {found.steps:5d} steps, one step {found.step:.1e}, actions {found.action:.1e}"
        f" (range {np.ptp(actions):.2f}), {len(content) / 1e3:.0f} kB, {took}, {1e6 * np.median(seconds):.0f} us",
        flush=True,
    )


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        measure(*case, out)
