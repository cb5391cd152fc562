"""Presets: hyper-parameters, steps and critic for each algorithm, one file each; `--hyper` wins over all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from s2pg.algorithms import chain, find_algorithm, traits
from s2pg.config import hyper as hypers
from s2pg.config.labels import LABELS, Choice
from s2pg.config.presets import common, ddpg, gpomdp, imitation, ppo, reinforce, sac, slac, td3, trpo
from s2pg.config.presets.base import AXES, SWITCHES, Preset, Situation, merged
from s2pg.errors import UserError, unknown
from s2pg.types import CRITIC, POLICY, Spec

__all__ = ["PRESETS", "Preset", "Situation", "Values", "of_algorithm", "register_presets", "resolve", "values"]

PRESETS: dict[str, tuple[Preset, ...]] = {
    "ppo": ppo.PRESETS, "trpo": trpo.PRESETS, "sac": sac.PRESETS, "td3": td3.PRESETS, "ddpg": ddpg.PRESETS,
    "reinforce": reinforce.PRESETS, "gpomdp": gpomdp.PRESETS, "gail": imitation.GAIL, "gail-trpo": imitation.GAIL,
    "gail-paper": imitation.PAPER, "lsiq": imitation.LSIQ, "slac": slac.PRESETS, "bc": imitation.BC,
    "distill": imitation.DISTILL,
}  # fmt: skip


class Values(NamedTuple):
    """What presets say of a run."""

    hyper: dict[str, Any]
    critic: str  # the view it reads
    steps: int  # how long to train
    anneal: bool  # whether the learning rate falls to 0 over the run


def of_algorithm(algorithm: str) -> list[Preset]:
    """The presets of an algorithm and of those that it wraps, and those of all."""
    return [*common.PRESETS, *(preset for name in chain(algorithm) for preset in PRESETS.get(name, ()))]


def register_presets(algorithm: str, *presets: Preset) -> None:
    """Gives an algorithm presets of your own (`s2pg.config.presets.Preset`), beside those it has."""
    find_algorithm(algorithm)
    for preset in presets:
        for axis in preset.match.keys() - set(AXES):
            raise unknown("axis of a preset", axis, AXES)
        if (label := preset.match.get("label")) and label not in LABELS:
            raise unknown("label of a preset", label, LABELS)
    PRESETS[algorithm] = (*PRESETS.get(algorithm, ()), *presets)


def values(algorithm: str, situation: Situation) -> Values:
    """What the presets of an algorithm say of a situation."""
    found = merged(of_algorithm(algorithm), situation)
    own = {name: value for name, value in found.items() if name not in SWITCHES}
    return Values(own, CRITIC if found["privileged"] else POLICY, found["total_steps"], found["anneal"])


def resolve(
    algorithm: str, preset: Values, choice: Choice, kernel: str, spec: Spec, given: Mapping[str, Any], steps: int
) -> dict[str, Any]:
    """The complete hyper-parameters: defaults, preset, what the user gave, and what follows from the rest."""
    kind = traits(algorithm)
    hyper = hypers.defaults(algorithm, kernel) | {"lanes": 128, "steps": spec.horizon if kind.whole_episodes else 32}
    for name in preset.hyper.keys() - hyper.keys():
        raise unknown(f"hyper-parameter in a preset of {algorithm}", name, hyper)
    hyper |= {**preset.hyper, **given}
    if kind.whole_episodes and hyper["steps"] < spec.horizon:
        raise UserError(f"{algorithm} learns from whole episodes of up to {spec.horizon} steps, not {hyper['steps']}")
    hypers.check(algorithm, kernel, hyper)
    if kind.replays:
        _check_replay(choice, hyper)
    if choice.label.unrolls and choice.length > hyper["steps"] and kind.cuts_rollouts and not kind.whole_episodes:
        transitions = hyper["lanes"] * hyper["steps"]
        if "steps" in given or choice.length > transitions:
            raise UserError(f"memory '{choice.name}': a segment is longer than the rollout of {hyper['steps']} steps")
        # The same number of transitions per update, in fewer and longer lanes.
        lanes = hyper["lanes"] if "lanes" in given else transitions // choice.length
        hyper |= {"steps": choice.length, "lanes": lanes}
    if preset.anneal and "anneal_updates" not in given:
        hyper["anneal_updates"] = math.ceil(steps / (hyper["lanes"] * hyper["steps"]))
    return hyper


def _check_replay(choice: Choice, hyper: Mapping[str, Any]) -> None:
    if hyper["batch_size"] > hyper["learning_starts"]:
        raise UserError(
            f"a batch of {hyper['batch_size']} is larger than what the buffer holds when learning starts,"
            f" {hyper['learning_starts']} rows: raise 'learning_starts' or lower 'batch_size'"
        )
    if hyper["learning_starts"] > hyper["capacity"]:
        raise UserError(f"'capacity' {hyper['capacity']} is less than 'learning_starts' {hyper['learning_starts']}")
    rows, sample = hyper["capacity"] // hyper["lanes"], hyper["burn_in"] + choice.length + 1
    if rows < sample:
        raise UserError(f"'capacity' leaves {rows} rows to each lane, and memory '{choice.name}' needs {sample}")
    if hyper["gradient_steps"] % hyper.get("policy_delay", 1):
        raise UserError(f"'gradient_steps' must be a multiple of 'policy_delay', {hyper['policy_delay']}")
