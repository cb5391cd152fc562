"""MuJoCo Playground's environments on the device: `playground:CartpoleBalance` and so on."""

from __future__ import annotations

from typing import Any

from s2pg.envs.adapter import Hide, Horizon, Source, attempt, given, hidden, limit, package
from s2pg.envs.brax import STARTS, BraxTask, Starts, unit_box
from s2pg.errors import UserError, unknown

PREFIX = "playground:"
REMEDY = "pip install 's2pg[playground]'"


class PlaygroundTask(BraxTask):
    """A MuJoCo Playground environment: they have Brax's interface."""


def make(id: str, hide: Hide = (), horizon: Horizon = None, starts: Starts = STARTS, **config: Any) -> PlaygroundTask:
    """Makes the task `playground:NAME`; further options replace entries of its configuration, as in `ctrl_dt=0.02`.

    Robots (locomotion, manipulation) fetch their meshes from the network when they are first made.
    """
    hide, name = hidden(hide), id.removeprefix(PREFIX)
    registry = package("mujoco_playground", id, REMEDY).registry
    if name not in registry.ALL_ENVS:
        raise unknown("Playground environment", name, registry.ALL_ENVS)
    defaults = registry.get_default_config(name)
    steps = limit(id, horizon, int(defaults.episode_length), "episode_length", config)
    for option in config:
        if option.partition(".")[0] not in defaults:
            raise unknown(f"option of {id}", option, ["hide", "horizon", "starts", *defaults])
    # Warp, the default of many, keeps arrays that all lanes share: lanes and seeds under `vmap` fail on it.
    if config.get("impl", "jax") != "jax":
        raise UserError(f"impl of {id} must be jax, not {config['impl']!r}")
    # The length is told as well, since some observe how much of it is left.
    ours: dict[str, Any] = {"episode_length": steps} | ({"impl": "jax"} if "impl" in defaults else {})
    env = attempt(id, lambda: registry.load(name, config_overrides=ours | config))
    own = given(hide=hide, horizon=horizon, starts=None if starts == STARTS else starts) | config
    made = Source(id, own, env, unit_box(env.action_size))
    return attempt(id, lambda: PlaygroundTask(made=made, horizon=steps, hide=hide, starts=starts))
