"""The hyper-parameters of a run: gathered from the fields and arguments that declare them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from s2pg.algorithms import ALGORITHMS, chain, traits
from s2pg.errors import UserError
from s2pg.kernels import GIVEN, find_kernel
from s2pg.memory import CarryRule, DecisionRule, UnrollRule
from s2pg.options import Setting, argument_settings, field_settings, option, parse_all


@dataclasses.dataclass(frozen=True)
class NetworkSettings:
    """What networks are built with, whatever the algorithm and the kernel."""

    size: int = option(64, "units of the internal state", low=1)
    width: int = option(64, "units of the other layers", low=1)
    encoder_width: int = option(0, "units of the layer before a recurrent cell; 0: the same as width", low=0)
    critic_state: bool = option(True, "let the critic of bptt and window read z")
    critic_memory: bool = option(
        True, "give a critic that sees what the policy sees a memory of its own, under bptt and on policy under s2pg-N"
    )
    q_network: str = option(
        "plain", "of s2pg: plain, or branched with an encoder of its own for (z, z'), as in the authors' code",
        choices=("plain", "branched"), replay=True,
    )  # fmt: skip


def kernel_settings(kernel: str) -> dict[str, Setting]:
    """The options that are a kernel's own."""
    known = argument_settings(find_kernel(kernel), keyword_only=True)
    return {name: setting for name, setting in known.items() if name not in GIVEN}


def settings(algorithm: str, kernel: str) -> dict[str, Setting]:
    """Every hyper-parameter that `--hyper` knows: the algorithm's, those of memory and networks, the kernel's."""
    found: dict[str, Setting] = {}
    for name in chain(algorithm):
        found = _joined(found, field_settings(ALGORITHMS[name].cls), f"algorithm '{name}'")
    replays = traits(algorithm).replays
    for owner in (DecisionRule, UnrollRule, CarryRule, NetworkSettings):
        asked = {name: each for name, each in field_settings(owner).items() if replays or not each.option.replay}
        found = _joined(found, asked, f"algorithm '{algorithm}'")
    return _joined(found, kernel_settings(kernel), f"kernel '{kernel}'")


def _joined(known: dict[str, Setting], more: dict[str, Setting], owner: str) -> dict[str, Setting]:
    if both := known.keys() & more.keys():
        raise UserError(f"{owner} has a hyper-parameter '{min(both)}', which there is already: give it another name")
    return known | more


def defaults(algorithm: str, kernel: str) -> dict[str, Any]:
    """Every hyper-parameter with its default; None where it depends on the task."""
    known = settings(algorithm, kernel)
    return {name: None if each.required else each.default for name, each in known.items()}


def parse(algorithm: str, kernel: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Checks names, types and bounds; values may come as text."""
    owner = f"hyper-parameter of {algorithm} with kernel {kernel}"
    return parse_all(settings(algorithm, kernel), given, owner, lambda name: f"hyper-parameter '{name}'")


def check(algorithm: str, kernel: str, hyper: Mapping[str, Any]) -> None:
    """Refuses hyper-parameters out of their bounds, wherever they came from."""
    for name, setting in settings(algorithm, kernel).items():
        setting.option.check(f"hyper-parameter '{name}'", hyper[name])
