"""The labels of `--memory`, as data: which rule, which kernel, and what actor and critic read."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Literal, NamedTuple

from s2pg.errors import UserError, unknown
from s2pg.views import CRITIC, POLICY

When = Literal["always", "asked", "never"]  # asked: by the hyper-parameter `critic_state`


class CriticInput(NamedTuple):
    """When a critic reads z: a privileged one, and one that sees what the policy sees."""

    privileged: When
    unprivileged: When


NEVER = CriticInput("never", "never")


@dataclasses.dataclass(frozen=True)
class Label:
    """What stands behind a `--memory` label."""

    pattern: str  # as users write it; N and K stand for numbers
    text: str  # in one short line
    details: str
    rule: str  # the name of the memory rule (config.rules)
    kernel: str  # the one that goes with it
    any_kernel: bool = False  # whether every kernel with a state may take its place
    actor_view: str = POLICY
    reads_action: bool = False  # whether actor and critic read the previous action
    critic_z: CriticInput = NEVER
    critic_memory: bool = False  # whether an unprivileged critic may have a memory of its own
    draws: bool = False  # whether z' is part of the decision
    needs_critic: bool = False  # hands part of its gradient to the slope of a critic
    needs_slope: bool = False  # learns memory through the slope of V(s', z') alone
    unit: str = ""  # what N or K counts the steps of
    unrolls: bool = False  # gradients flow through N steps, which have to be there
    stacks: bool = False  # the actor reads the last K observations side by side


# A memoryless policy that sees its own last action can write notes to itself: only recurrent ones read it.
_S2PG: dict[str, Any] = {
    "kernel": "gru", "any_kernel": True, "reads_action": True, "critic_z": CriticInput("always", "always"),
    "draws": True,
}  # fmt: skip
# The value of a history: an unprivileged critic needs a memory, the actor's or its own, trained along its segments.
_BPTT: dict[str, Any] = {
    "kernel": "gru", "any_kernel": True, "reads_action": True, "critic_z": CriticInput("asked", "asked"),
    "critic_memory": True, "unit": "segment", "unrolls": True,
}  # fmt: skip

LABELS: dict[str, Label] = {
    label.pattern: label
    for label in (
        Label(
            "s2pg", "z' drawn with the action; single transitions",
            "Draws z' with the action and trains on single transitions: by the likelihood ratio over z' (ppo, trpo,"
            " reinforce, gpomdp) or through dQ/dz' (sac, td3, ddpg).",
            "draw", **_S2PG,
        ),
        Label(
            "s2pg-pathwise", "the same, z' learns through dV/dz' (ppo, trpo)",
            "As s2pg, but z' learns through dV/dz': on policy only, and with a critic that knows what is worth"
            " remembering (--critic critic).",
            "pathwise", needs_critic=True, needs_slope=True, **_S2PG,
        ),
        Label(
            "s2pg-N", "the same, through N steps first (ppo, trpo, sac, td3, ddpg)",
            "Draws z', holds its noise fixed and backpropagates through segments of N steps; beyond them it learns"
            " through dV/dz' or dQ/dz'. s2pg-pathwise is s2pg-1 (on policy), s2pg is s2pg-1 off policy.",
            "pathwise", needs_critic=True, critic_memory=True, unit="segment", unrolls=True, **_S2PG,
        ),
        Label(
            "bptt-N", "backpropagation through segments of N steps",
            "Recomputes z and backpropagates through segments of N steps, with the loss on every step.",
            "unroll", **_BPTT,
        ),
        Label(
            "bptt-N-last", "the same, with the loss on the last step only",
            "As bptt-N with the loss on the last step of each segment only, as in the authors' code: N times the work"
            " for one loss.",
            "unroll-last", **_BPTT,
        ),
        Label(
            "window-K", "no memory but the last K observations",
            "Stacks the last K observations; nothing is learned about what to keep.",
            "carry", "window", critic_z=CriticInput("asked", "always"), unit="window",
            stacks=True,
        ),
        Label(
            "none", "no memory: the current observation alone",
            "A memoryless policy: what a task is worth without remembering.",
            "carry", "mlp",
        ),
        Label(
            "oracle", "no memory, but sees the full state",
            "A memoryless policy that sees the full state: what memory could reach at best.",
            "carry", "mlp", actor_view=CRITIC,
        ),
    )
}  # fmt: skip


class Choice(NamedTuple):
    """A label as it was written: `bptt-8` is the label bptt-N with 8."""

    name: str
    label: Label
    length: int = 1


def parse(text: str) -> Choice:
    """What a label means; one line where it means nothing."""
    for label in LABELS.values():
        if match := re.fullmatch(re.sub(r"-[NK]\b", r"-(-?\\d+)", label.pattern), text):
            length = int(match[1]) if match.groups() else 1
            if length < 1:
                raise UserError(f"memory '{text}': a {label.unit} has 1 step or more")
            return Choice(text, label, length)
    raise unknown("memory", text, [*LABELS, "s2pg-8", "bptt-8", "bptt-8-last", "window-8"])
