"""Brax environments on the device: `brax:ant`, `brax:humanoid` and so on, with options such as `backend`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.envs.adapter import Adapter, Hide, Horizon, Source, alike, attempt, firm, given, hidden, limit, package
from s2pg.errors import UserError, unknown
from s2pg.options import Option
from s2pg.types import Box, Obs

PREFIX = "brax:"
REMEDY = "pip install 's2pg[brax]'"
LENGTH = 1000  # of an episode, as `brax.envs.create` has it: the environments themselves have no end in time
STARTS = 256
Starts = Annotated[int, Option("states computed once, in which later episodes begin; 0: all begin afresh", low=0)]


@runtime_checkable
class BraxEnv(Protocol):
    """What is asked of a Brax environment, or one of Playground; states are dataclasses of theirs."""

    action_size: int

    def reset(self, rng: Array) -> Any:
        """A state at the start of an episode."""
        ...

    def step(self, state: Any, action: Array) -> Any:
        """The state after a step."""
        ...


class Simulation(NamedTuple):
    """An environment between two steps."""

    state: Any  # the environment's
    diverged: Array  # whether the last step came to no number


class BraxTask(Adapter[BraxEnv]):
    """A Brax environment, or one with the same interface.

    Where observations are a dict, `state` is the policy view and `privileged_state` the critic view.

    An episode that follows another begins in one of `starts` states that were computed once. The autoreset computes
    a start in every step and lane, wanted or not, and starts are dear: measured on a CPU, a fresh one makes a step
    of brax:ant on MJX 1.2 times as long, of playground:CartpoleBalance 2 times, and of playground:CheetahRun, which
    settles down for 200 steps of physics first, 140 times. First episodes, and those of evaluation, start afresh;
    with `starts=0` all do.
    """

    starts: int = eqx.field(static=True, default=STARTS)

    def begin(self, key: PRNGKeyArray) -> Simulation:
        """Asks the environment for a start."""
        # States keep their key, and are selected, saved and filmed: as plain numbers they pass everywhere.
        return Simulation(firm(self.made.env.reset(jax.random.key_data(key))), jnp.zeros((), bool))

    def restart(self, key: PRNGKeyArray) -> Simulation:
        """Draws one of the states that were computed once."""
        if not self.starts:
            return self.begin(key)
        if self.made.pool is None:
            with jax.ensure_compile_time_eval():  # a step is traced, as a rule; these are numbers all the same
                keys = jax.random.split(jax.random.key(0), self.starts)
                self.made.pool = jax.jit(jax.vmap(self.begin))(keys)
        index_key, own_key = jax.random.split(key)
        index = jax.random.randint(index_key, (), 0, self.starts)
        start = jax.tree.map(lambda leaf: leaf[index], self.made.pool.state)
        # The same start, but not the same noise and commands after it.
        fresh = {"rng": jax.random.key_data(own_key)} if "rng" in start.info else {}
        return Simulation(start.replace(info={**start.info, **fresh}), jnp.zeros((), bool))

    def move(
        self, inner: Simulation, elapsed: Array, action: Array, key: PRNGKeyArray
    ) -> tuple[Simulation, Array, Array]:
        # A copy of the dicts in it: environments write into those of the state they are given.
        before = jax.tree.map(lambda leaf: leaf, inner.state)
        after = alike(self.made.env.step(before, action), inner.state)
        # A simulation that broke down ends the episode where it was before: what came out of it is of no use to anyone.
        broke = ~jnp.all(
            jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves((after.obs, after.reward))])
        )
        after = jax.tree.map(lambda new, old: jnp.where(broke, old, new), after, inner.state)
        return Simulation(after, broke), jnp.where(broke, 0.0, after.reward), broke | after.done.astype(bool)

    def views(self, inner: Simulation, elapsed: Array) -> Obs:
        own = inner.state.obs
        obs = own if isinstance(own, Mapping) else {"state": own}
        if "state" not in obs:
            raise UserError(f"observations of {self.id} are {', '.join(obs)}; one must be 'state'")
        return self.show(obs["state"], obs.get("privileged_state", obs["state"]))


def unit_box(size: int) -> Box:
    """Makes the space of actions of these environments, which scale them to their actuators' ranges themselves."""
    return Box((-1.0,) * size, (1.0,) * size)


def make(id: str, hide: Hide = (), horizon: Horizon = None, starts: Starts = STARTS, **options: Any) -> BraxTask:
    """Makes the task `brax:NAME`; further options go to the environment's own constructor."""
    hide, name = hidden(hide), id.removeprefix(PREFIX)
    envs = package("brax.envs", id, REMEDY)
    steps = limit(id, horizon, LENGTH, "episode_length", options)
    known = getattr(envs, "_envs", {name: None})  # Brax tells an unknown name by a bare KeyError
    if name not in known:
        raise unknown("Brax environment", name, known)
    env = attempt(id, lambda: envs.get_environment(name, **options))
    own = given(hide=hide, horizon=horizon, starts=None if starts == STARTS else starts) | options
    made = Source(id, own, env, unit_box(env.action_size))
    return attempt(id, lambda: BraxTask(made=made, horizon=steps, hide=hide, starts=starts))
