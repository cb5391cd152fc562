"""From names to an algorithm: a method of the paper is a point in the product of three axes, not a class."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax

from s2pg.algorithms import ALGORITHMS, Algorithm, chain, traits
from s2pg.config.labels import Choice
from s2pg.config.rules import memory_rule
from s2pg.critics import BranchedCritic, CriticBuilder, PlainCritic, Recipe, RecurrentCritic
from s2pg.errors import UserError, unknown
from s2pg.kernels import KERNELS, find_kernel
from s2pg.options import argument_settings, field_settings
from s2pg.types import CRITIC, POLICY, PREVIOUS_ACTION, Box, Spec

VIEWS = (POLICY, CRITIC)  # what a critic may read


def check(algorithm: str, choice: Choice, kernel: str, spec: Spec) -> None:
    """Refuses everything that can be wrong with the point chosen, before anything is built."""
    label, chosen, kind = choice.label, find_kernel(kernel), traits(algorithm)
    # Segments of a fresh batch may span episodes, windows and replayed segments may not.
    if choice.length > spec.horizon and (kind.replays or not label.unrolls):
        raise UserError(
            f"memory '{choice.name}': a {label.unit} is longer than an episode, which has {spec.horizon} steps"
        )
    if kind.acts_on_window and not label.stacks:
        raise UserError(
            f"{algorithm} acts on a window of observations: use 'window-8' or the like, not '{choice.name}'"
        )
    if label.draws and not kind.teaches_draws:
        raise UserError(f"{algorithm} teaches a memory only through what it unrolls: use 'bptt-N', not '{choice.name}'")
    if label.needs_critic and not kind.has_critic:
        raise UserError(f"{algorithm} has no critic to carry the gradient of '{choice.name}'; use 's2pg'")
    if kind.replays:
        _check_replays(algorithm, choice, spec)
    if label.any_kernel and not chosen.stateful:
        fit = ", ".join(name for name, each in KERNELS.items() if each.stateful)
        raise UserError(f"kernel '{kernel}' has no state to learn, which memory '{choice.name}' needs; known: {fit}")
    if label.unrolls and choice.length > 1 and not chosen.unrolls:
        raise UserError(f"kernel '{kernel}' cannot be unrolled, which memory '{choice.name}' needs; use s2pg")
    if kind.replays and not chosen.bounded:
        raise UserError(
            f"{algorithm} keeps z within [-1, 1], and the state of kernel '{kernel}' has other bounds; use ppo"
        )
    if not label.any_kernel and kernel != label.kernel:
        raise UserError(f"memory '{choice.name}' goes with kernel '{label.kernel}', not '{kernel}'")
    if label.actor_view not in spec.views:
        raise UserError(f"memory '{choice.name}' needs a task with a '{label.actor_view}' view")


def _check_replays(algorithm: str, choice: Choice, spec: Spec) -> None:
    if not isinstance(spec.action, Box):
        raise UserError(f"{algorithm} needs continuous actions, and this task has discrete ones; use ppo")
    if not all(map(math.isfinite, (*spec.action.low, *spec.action.high))):
        raise UserError(f"{algorithm} needs actions with bounds, and this task has some without; use ppo")
    if choice.label.needs_slope:
        raise UserError(
            f"'{choice.name}' is for ppo and trpo: under {algorithm}, 's2pg' learns z' through dQ/dz' already"
        )


def build(algorithm: str, spec: Spec, choice: Choice, kernel: str, critic: str, hyper: Mapping[str, Any]) -> Algorithm:
    """The algorithm object; `hyper` must be complete."""
    check(algorithm, choice, kernel, spec)
    known = {**hyper, "length": choice.length, "dt": spec.dt}
    arguments = {name: known[name] for name in argument_settings(find_kernel(kernel), keyword_only=True)}
    reads_action = choice.label.reads_action or traits(algorithm).acts_on_window
    previous = (PREVIOUS_ACTION,) if reads_action and PREVIOUS_ACTION in spec.views else ()
    parts: dict[str, Any] = {
        "memory": memory_rule(choice, hyper),
        "kernel": functools.partial(find_kernel(kernel), **arguments),
        "critic": build_critic(algorithm, choice, critic, previous, hyper),
        "reads": (choice.label.actor_view, *previous),
    }
    for name in chain(algorithm):
        cls: Any = ALGORITHMS[name].cls
        parts = {"inner": cls(**parts, **{field: hyper[field] for field in field_settings(cls)})}
    built: Algorithm = parts["inner"]
    # Kernels refuse options that do not go together when they are made: now, not after minutes.
    eqx.filter_eval_shape(lambda key: built.init_policy(spec, key=key), jax.random.key(0))
    return built


def build_critic(
    algorithm: str, choice: Choice, critic: str, previous: tuple[str, ...], hyper: Mapping[str, Any]
) -> CriticBuilder:
    """What makes the critic of a label: V, or Q where an algorithm replays."""
    if critic not in VIEWS:
        raise unknown("critic", critic, VIEWS)
    label, privileged, kind = choice.label, critic == CRITIC, traits(algorithm)
    if kind.critic_reads:
        if privileged:
            raise UserError(
                f"{algorithm} has critics that read its own {', '.join(kind.critic_reads)}: use --critic policy"
            )
        return Recipe(PlainCritic, kind.critic_reads, (("width", hyper["width"]), ("reads_state", False)))
    reads, width = (CRITIC if privileged else label.actor_view, *previous), hyper["width"]
    when = label.critic_z.privileged if privileged else label.critic_z.unprivileged
    seen = ("width", width), ("reads_state", when == "always" or (when == "asked" and hyper["critic_state"]))
    if label.draws and hyper.get("q_network") == "branched":
        return Recipe(BranchedCritic, reads, (("width", width),))
    # Through one step nothing can be learned about what to remember; and a critic of replayed samples of s2pg-N would
    # remember no more than their N steps, while z holds all that came before.
    remembers = choice.length > 1 and not (kind.replays and label.draws) and not privileged
    if label.critic_memory and hyper["critic_memory"] and remembers:
        return Recipe(RecurrentCritic, reads, (*seen, ("size", hyper["size"]), ("layers", 2 if kind.replays else 1)))
    return Recipe(PlainCritic, reads, seen)
