"""From names to an algorithm: a method of the paper is a point in the product of three axes, not a class."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import inspect
import math
import re
from typing import Any

from s2pg.action_values import BranchedQ, PlainQ, RecurrentQ
from s2pg.algorithms import ALGORITHMS, Algorithm
from s2pg.critics import PlainCritic, RecurrentCritic
from s2pg.errors import UserError, unknown
from s2pg.kernel import Kernel
from s2pg.kernels import GIVEN, KERNELS
from s2pg.memory import CarryRule, DrawRule, Memory, UnrollRule
from s2pg.types import CRITIC, POLICY, PREVIOUS_ACTION, Box, Spec

LABELS = {
    "s2pg": "draws z' with the action; trains on single transitions (likelihood ratio over z', off policy dQ/dz')",
    "s2pg-pathwise": "the same, but z' learns through dV/dz'; on-policy, needs a critic that knows (--critic critic)",
    "bptt-N": "backpropagation through segments of N steps, loss on every step",
    "bptt-N-last": "the same with the loss on the last step of each segment only, as in the authors' code",
    "window-K": "no memory but the last K observations",
    "none": "no memory: the current observation alone",
    "oracle": "no memory, but sees the full state: what memory could reach at best",
}
# Beside the algorithm's own: sizes of networks, noise of the state, and whether a plain critic may look at z.
NETWORK_HYPER: dict[str, Any] = {
    "size": 64, "width": 64, "encoder_width": 0, "state_log_std": -1.5, "critic_state": False,
}  # fmt: skip
# The same for those that learn from a replay buffer: how its internal states are kept, and which network Q is.
REPLAY_HYPER: dict[str, Any] = {
    "refresh": 1.0, "refresh_noise": True, "refresh_first": True,
    "burn_in": 0, "zero_head": False, "refresh_heads": 0.0, "q_network": "plain",
}  # fmt: skip
CHOICES = {"q_network": ("plain", "branched"), "actor_value": ("min", "mean", "first")}
CRITICS = (POLICY, CRITIC)


@dataclasses.dataclass(frozen=True)
class Label:
    """A parsed `--memory` label."""

    name: str
    kind: str  # s2pg, s2pg-pathwise, bptt, window, none, oracle
    length: int = 1
    last: bool = False

    @property
    def recurrent(self) -> bool:
        return self.kind in ("s2pg", "s2pg-pathwise", "bptt")

    @property
    def default_kernel(self) -> str:
        return "gru" if self.recurrent else "window" if self.kind == "window" else "mlp"

    def rule(self, hyper: dict[str, Any]) -> Memory:
        if self.kind == "bptt":
            kept = {"burn_in": hyper["burn_in"], "zero_head": hyper["zero_head"], "refresh": hyper["refresh_heads"]}
            return UnrollRule(self.length, self.last, **kept)
        if self.recurrent:
            kept = {name: hyper[name] for name in ("refresh", "refresh_noise", "refresh_first")}
            estimator = "pathwise" if self.kind == "s2pg-pathwise" else "score"
            return DrawRule(estimator, hyper["state_log_std"], **kept)
        return CarryRule(self.length - 1)


def parse(label: str) -> Label:
    if label in ("s2pg", "s2pg-pathwise", "none", "oracle"):
        return Label(label, label)
    if match := re.fullmatch(r"(bptt|window)-(-?\d+)(-last)?", label):
        kind, length, last = match[1], int(match[2]), bool(match[3])
        if not (last and kind == "window"):
            if length < 1:
                raise UserError(f"memory '{label}': a {'segment' if kind == 'bptt' else 'window'} has 1 step or more")
            return Label(label, kind, length, last)
    raise unknown("memory", label, [*LABELS, "bptt-8", "bptt-8-last", "window-8"])


def algorithm_class(name: str) -> type[Algorithm]:
    if name not in ALGORITHMS:
        raise unknown("algorithm", name, ALGORITHMS)
    return ALGORITHMS[name]


def kernel_class(name: str) -> type[Kernel]:
    if name not in KERNELS:
        raise unknown("kernel", name, KERNELS)
    return KERNELS[name]


def kernel_arguments(kernel: str) -> dict[str, Any]:
    """What a kernel is built with, beside its inputs, heads and key: names and defaults, from its constructor."""
    known = inspect.signature(kernel_class(kernel)).parameters.values()
    return {each.name: each.default for each in known if each.kind is each.KEYWORD_ONLY}


def kernel_options(kernel: str) -> dict[str, Any]:
    """Those that are its own: hyper-parameters of this kernel alone."""
    return {name: default for name, default in kernel_arguments(kernel).items() if name not in GIVEN}


def hyper_defaults(algorithm: str, kernel: str) -> dict[str, Any]:
    """Every hyper-parameter that `--hyper` knows, with its default; None where it depends on the task."""
    fixed = {"memory", "kernel", "critic", "reads"}
    own = {
        field.name: None if field.default is dataclasses.MISSING else field.default
        for field in dataclasses.fields(algorithm_class(algorithm))
        if field.name not in fixed
    }
    own |= REPLAY_HYPER if algorithm_class(algorithm).off_policy else {}
    options = kernel_options(kernel)
    if both := own.keys() & options.keys():
        raise UserError(f"kernel '{kernel}' calls an option '{min(both)}', as {algorithm} does: give it another name")
    return own | NETWORK_HYPER | options


def parse_hyper(algorithm: str, kernel: str, given: dict[str, Any]) -> dict[str, Any]:
    """Checks names and types; values may come as text."""
    known, parsed = hyper_defaults(algorithm, kernel), {}
    for name, value in given.items():
        if name not in known:
            raise unknown(f"hyper-parameter of {algorithm} with kernel {kernel}", name, known)
        if name in CHOICES:
            if value not in CHOICES[name]:
                raise unknown(f"hyper-parameter {name}", str(value), CHOICES[name])
            parsed[name] = value
            continue
        if isinstance(known[name], str):  # a kernel checks its own
            parsed[name] = str(value)
            continue
        kind = type(known[name]) if known[name] is not None else int
        number: Any = None
        with contextlib.suppress(Exception):
            number = ast.literal_eval(str(value).capitalize() if kind is bool else str(value))
        fits = isinstance(number, bool) if kind is bool else isinstance(number, int | float) and math.isfinite(number)
        if not fits or (kind is int and number != int(number)):
            raise UserError(f"hyper-parameter '{name}' must be {kind.__name__}, not {value!r}")
        parsed[name] = kind(number)
    return parsed


def check(algorithm: str, label: Label, kernel: str, spec: Spec) -> None:
    """Everything that can be wrong with the point chosen, before anything is built."""
    cls, chosen = algorithm_class(algorithm), kernel_class(kernel)
    if label.kind == "window" and label.length > spec.horizon:
        raise UserError(f"memory '{label.name}': the window is longer than an episode, which has {spec.horizon} steps")
    if label.kind == "s2pg-pathwise" and not cls.has_critic:
        raise UserError(f"{algorithm} has no critic to carry the gradient of 's2pg-pathwise'; use 's2pg'")
    if cls.off_policy:
        _check_replayed(algorithm, label, spec)
    if label.recurrent and not chosen.stateful:
        fit = ", ".join(name for name, each in KERNELS.items() if each.stateful)
        raise UserError(f"kernel '{kernel}' has no state to learn, which memory '{label.name}' needs; known: {fit}")
    if label.kind == "bptt" and not chosen.unrolls:
        raise UserError(f"kernel '{kernel}' cannot be unrolled, which memory '{label.name}' needs; use s2pg")
    if cls.off_policy and not chosen.bounded:
        raise UserError(
            f"{algorithm} keeps z within [-1, 1], and the state of kernel '{kernel}' has other bounds; use ppo"
        )
    if not label.recurrent and kernel != label.default_kernel:
        raise UserError(f"memory '{label.name}' goes with kernel '{label.default_kernel}', not '{kernel}'")
    if label.kind == "oracle" and CRITIC not in spec.views:
        raise UserError("memory 'oracle' needs a task with a 'critic' view")


def _check_replayed(algorithm: str, label: Label, spec: Spec) -> None:
    if not isinstance(spec.action, Box):
        raise UserError(f"{algorithm} needs continuous actions, and this task has discrete ones; use ppo")
    if not all(map(math.isfinite, (*spec.action.low, *spec.action.high))):
        raise UserError(f"{algorithm} needs actions with bounds, and this task has some without; use ppo")
    if label.kind == "s2pg-pathwise":
        raise UserError(
            f"'s2pg-pathwise' is for ppo and trpo: under {algorithm}, 's2pg' learns z' through dQ/dz' already"
        )
    if label.kind == "bptt" and label.length > spec.horizon:
        raise UserError(f"memory '{label.name}': a segment is longer than an episode, which has {spec.horizon} steps")


def build(algorithm: str, spec: Spec, label: Label, kernel: str, critic: str, hyper: dict[str, Any]) -> Algorithm:
    """The algorithm object; `hyper` must be complete."""
    check(algorithm, label, kernel, spec)
    cls = algorithm_class(algorithm)
    known = {**hyper, "length": label.length, "dt": spec.dt}
    sizes = {name: known[name] for name in kernel_arguments(kernel)}
    kernel_class(kernel).check(**sizes)
    # A memoryless policy that sees its own last action can write notes to itself: only recurrent ones read it.
    previous = (PREVIOUS_ACTION,) if label.recurrent and PREVIOUS_ACTION in spec.views else ()
    not_its_own = NETWORK_HYPER | REPLAY_HYPER | kernel_options(kernel)
    own = {name: value for name, value in hyper.items() if name not in not_its_own}
    return cls(
        memory=label.rule(REPLAY_HYPER | hyper),
        kernel=functools.partial(kernel_class(kernel), **sizes),
        critic=_critic(cls, label, critic, previous, hyper),
        reads=(CRITIC if label.kind == "oracle" else POLICY, *previous),
        **own,
    )


def _critic(cls: type[Algorithm], label: Label, critic: str, previous: tuple[str, ...], hyper: dict[str, Any]) -> Any:
    """A `CriticBuilder` of V, or an `ActionValueBuilder` of Q where an algorithm replays."""
    if critic not in CRITICS:
        raise unknown("critic", critic, CRITICS)
    privileged = critic == CRITIC
    drawn = label.kind in ("s2pg", "s2pg-pathwise")
    common = {"reads": (CRITIC if privileged or label.kind == "oracle" else POLICY, *previous), "width": hyper["width"]}
    if label.kind == "bptt" and not privileged:
        # The value of a history: the critic needs a memory of its own, trained along the same segments.
        return functools.partial(RecurrentQ if cls.off_policy else RecurrentCritic, **common, size=hyper["size"])
    if cls.off_policy and drawn and hyper["q_network"] == "branched":
        return functools.partial(BranchedQ, **common)
    same_window = label.kind == "window" and not privileged
    reads_state = drawn or same_window or (hyper["critic_state"] and label.kind in ("bptt", "window"))
    return functools.partial(PlainQ if cls.off_policy else PlainCritic, **common, reads_state=reads_state)
