"""One control step of a robot on the device beside the same step in C MuJoCo."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from s2pg.envs.base import EnvState
from s2pg.envs.mujoco.device import DeviceRobot
from s2pg.envs.mujoco.host import HostRobot
from s2pg.envs.mujoco.robots import GYMNASIUM, ROBOTS

MASSES, VARIANTS = 0.3, 8


class Bound(NamedTuple):
    """How far a step on the device may be from one in C."""

    most: dict[str, float]
    median: float  # of positions, velocities and rewards
    exact: float  # the share of environments whose velocities are the same to 1e-3


ALIKE = Bound({"positions": 1e-5, "velocities": 1e-3, "reward": 1e-3}, 1e-5, 1.0)
BOUNDS = {
    "halfcheetah": ALIKE,
    "hopper": ALIKE,
    "walker2d": ALIKE,
    "ant": ALIKE._replace(most=ALIKE.most | {"contact_forces": 1e-2}),
    # C uses another solver here, PGS, which is less exact about forces, and those are part of the reward.
    "humanoid": Bound(
        {
            "positions": 1e-3,
            "velocities": 1e-2,
            "reward": 1.0,
            "inertia": 1e-3,
            "body_velocities": 1e-2,
            "actuator_forces": 1e-3,
            "contact_forces": 10.0,
        },
        1e-4,
        0.96,
    ),
    "humanoid-ages": Bound({"positions": 1e-4, "velocities": 1e-2, "reward": 1e-3}, 1e-5, 0.9),
    "atlas-carry": Bound({"positions": 1e-4, "velocities": 1e-2, "reward": 1e-3}, 1e-5, 0.9),
}


class Difference(NamedTuple):
    """What one control step left different, for each environment, from the same states, masses and controls."""

    start: np.ndarray  # before anything moved
    groups: dict[str, np.ndarray]  # groups of the observation, `hidden` and `reward`
    ends: tuple[np.ndarray, np.ndarray]  # which environments it ended, on the device and in C

    def exact(self) -> float:
        """The share of environments whose velocities are the same to 1e-3."""
        return float(np.mean(self.groups["velocities"].max(axis=1) < 1e-3))

    def report(self) -> str:
        """One line that says it all."""
        parts = (f"{name} max {part.max():.1e} median {np.median(part):.1e}" for name, part in self.groups.items())
        return f"{', '.join(parts)}; {self.exact():.0%} of environments exact"

    def broken(self, bound: Bound) -> list[str]:
        """Lists what is out of bounds."""
        found = [name for name, most in bound.most.items() if not self.groups[name].max() < most]
        typical = ("positions", "velocities", "reward")
        found += [f"median of {name}" for name in typical if not np.median(self.groups[name]) < bound.median]
        found += ["exact environments"] * (not self.exact() >= bound.exact)
        found += ["hidden"] * (not self.groups["hidden"].max() < 1e-6)
        found += ["start"] * (not self.start.max() < 1e-3)
        return found + ["ends"] * (not np.array_equal(*self.ends))


def differences(id: str, backend: str, lanes: int, stepped: int = 32, seed: int = 0, **options: Any) -> Difference:
    """Compares a step of so many environments, of Gymnasium's robots with other masses.

    Each has made between 0 and `stepped` random steps before, so that some robots stand and others have fallen.
    """
    masses = {"masses": MASSES} if id in GYMNASIUM else {}
    variants = {"variants": VARIANTS} if masses else {}
    read = ROBOTS[id].options.read
    there = DeviceRobot(id, read(id, options | masses | variants), backend)
    task = HostRobot(id, read(id, options | masses))
    here, random, which = task.simulations(lanes), np.random.default_rng(seed), np.arange(lanes) % len(there.hidden)
    act = lambda: random.uniform(-1, 1, (1, task.model.nu)).astype(np.float32)  # noqa: E731
    for i in range(lanes):
        here.begin(i, random)
        here.remodel(i, np.asarray(there.hidden[which[i]]))
        for _ in range(i % stepped):
            here.move([i], task.spec.action.execute(act(), np))
    states = [(data.qpos.copy(), data.qvel.copy()) for data in here.data]
    for i, state in enumerate(states):
        here.place_at(i, *state)
    qpos, qvel = (jnp.asarray(np.stack(part), jnp.float32) for part in zip(*states, strict=True))
    frame = jnp.asarray(here.frame) if there.robot.frames else ()
    begun, views = jax.jit(lambda: _begin(there, qpos, qvel, jnp.asarray(which), frame))()
    start = np.abs(np.asarray(views["critic"]) - here.views["critic"])
    actions = random.uniform(-1, 1, (lanes, task.model.nu)).astype(np.float32)
    _, step = jax.jit(jax.vmap(there.step))(begun, jnp.asarray(actions), jax.random.split(jax.random.key(0), lanes))
    moved = here.move(range(lanes), task.spec.action.execute(actions, np))
    here.close()
    assert not any(np.any(flags) for flags in step.faults().values()) and not np.any(moved.diverged)
    error = np.abs(np.asarray(step.last_obs["critic"]) - here.views["critic"])
    groups = task.robot_views.groups
    parts = np.split(error, np.cumsum([*groups.values()]), axis=1)
    named = dict(zip([*groups, "hidden"], parts, strict=True))
    ends = np.asarray(step.terminated), np.asarray(moved.terminated)
    return Difference(start, named | {"reward": np.abs(np.asarray(step.reward) - moved.reward)}, ends)


def _begin(robot: DeviceRobot, qpos: Any, qvel: Any, which: Any, frame: Any) -> tuple[EnvState, dict[str, Any]]:
    """Environments at the start of an episode in these states, and what they show."""
    lanes = len(which)
    inner = jax.vmap(robot.at)(qpos, qvel, which, jax.random.split(jax.random.key(0), lanes), frame)
    begun = EnvState(inner, jnp.zeros(lanes, jnp.int32), jnp.zeros((lanes, robot.action.size)))
    return begun, jax.vmap(robot.views)(begun.inner, begun.elapsed)
