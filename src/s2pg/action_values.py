"""Action-value critics Q(s, z, a, z') of a decision in its context: one example per call.

A critic with a memory h of its own is cut like a kernel: `remember` needs h and runs in sequence, the value does not.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.networks import GRU, MLP, Linear
from s2pg.types import PREVIOUS_ACTION, Decision, Obs, State, read


class ActionValue(eqx.Module):
    """Q(s, z, u). `features` are what kernels show of z, and `decision` is (a, features of z' or ())."""

    @abstractmethod
    def initial(self) -> State: ...

    @abstractmethod
    def remember(self, obs: Obs, h: State) -> State: ...

    @abstractmethod
    def __call__(self, obs: Obs, h: State, features: Array, decision: Decision) -> Array: ...


@runtime_checkable
class ActionValueBuilder(Protocol):
    """Makes a critic: sizes of the views, of what kernels show of z, and of (a, z') as critics see it."""

    def __call__(self, views: dict[str, int], features: int, decision: Decision, key: PRNGKeyArray) -> ActionValue: ...


class _Forgetful(ActionValue):
    def initial(self) -> tuple[()]:
        return ()

    def remember(self, obs: Obs, h: tuple[()]) -> tuple[()]:
        return ()


class PlainQ(_Forgetful):
    """A perceptron over the views it reads, the decision and, if `reads_state`, the features of z."""

    body: MLP
    reads: tuple[str, ...] = eqx.field(static=True)
    reads_state: bool = eqx.field(static=True)

    def __init__(
        self,
        views: dict[str, int],
        features: int,
        decision: Decision,
        key: PRNGKeyArray,
        *,
        reads: tuple[str, ...],
        reads_state: bool,
        width: int = 256,
    ):
        self.reads, self.reads_state = reads, reads_state
        inputs = sum(views[name] for name in reads) + features * reads_state + sum(jax.tree.leaves(decision))
        self.body = MLP([inputs, width, width, 1], key=key, last_gain=0.1)

    def __call__(self, obs: Obs, h: tuple[()], features: Array, decision: Decision) -> Array:
        seen = [features] if self.reads_state else []
        return self.body(jnp.concatenate([read(obs, self.reads), *seen, *jax.tree.leaves(decision)]))[0]


class BranchedQ(_Forgetful):
    """The authors' critic of (s, z, a, z'): encoders of (z, z'), (s, a) and a, added up before the last layers.

    Where the previous action is read, it goes with a.
    """

    memory: Linear
    context: Linear
    action: Linear
    merge: Linear  # of the three side by side, which adds up what each would give on its own
    body: MLP
    reads: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        views: dict[str, int],
        features: int,
        decision: Decision,
        key: PRNGKeyArray,
        *,
        reads: tuple[str, ...],
        width: int = 256,
    ):
        memory, context, action, merge, body = jax.random.split(key, 5)
        self.reads = reads
        acted = decision.action + sum(views[name] for name in reads if name == PREVIOUS_ACTION)
        half, gain = max(width // 2, 1), 2.0**0.5
        self.memory = Linear(features + sum(jax.tree.leaves(decision.state)), width, key=memory, gain=gain)
        self.context = Linear(sum(views[name] for name in reads) + decision.action, width, key=context, gain=gain)
        self.action = Linear(acted, width, key=action, gain=gain)
        self.merge = Linear(3 * width, half, key=merge, gain=3.0**0.5)
        self.body = MLP([half, half, 1], key=body, last_gain=0.1)

    def __call__(self, obs: Obs, h: tuple[()], features: Array, decision: Decision) -> Array:
        previous = [obs[name] for name in self.reads if name == PREVIOUS_ACTION]
        memory = self.memory(jnp.concatenate([features, *jax.tree.leaves(decision.state)]))
        context = self.context(jnp.concatenate([read(obs, self.reads), decision.action]))
        action = self.action(jnp.concatenate([decision.action, *previous]))
        merged = self.merge(jax.nn.relu(jnp.concatenate([memory, context, action])))
        return self.body(jax.nn.relu(merged))[0]


class RecurrentQ(ActionValue):
    """A critic with a GRU of its own: the unprivileged critic of unrolled policies."""

    encoder: Linear
    cell: GRU
    body: MLP
    reads: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        views: dict[str, int],
        features: int,
        decision: Decision,
        key: PRNGKeyArray,
        *,
        reads: tuple[str, ...],
        size: int = 64,
        width: int = 256,
    ):
        encoder, cell, body = jax.random.split(key, 3)
        self.reads = reads
        inputs = sum(views[name] for name in reads)
        self.encoder = Linear(inputs, width, key=encoder, gain=2.0**0.5)
        self.cell = GRU(width, size, key=cell)
        total = inputs + size + sum(jax.tree.leaves(decision))
        self.body = MLP([total, width, width, 1], key=body, last_gain=0.1)

    def initial(self) -> Array:
        return jnp.zeros(self.cell.size)

    def remember(self, obs: Obs, h: Array) -> Array:
        return self.cell.advance(self.cell.project(jax.nn.relu(self.encoder(read(obs, self.reads)))), h)

    def __call__(self, obs: Obs, h: Array, features: Array, decision: Decision) -> Array:
        return self.body(jnp.concatenate([read(obs, self.reads), h, *jax.tree.leaves(decision)]))[0]


def histories(critic: ActionValue, obs: Obs, valid: Array) -> State:
    """The critic's memory with each observation [n] taken in, from its initial one; padding passes it on."""
    start = critic.initial()
    if not jax.tree.leaves(start):
        return ()

    def step(h: State, inputs: tuple) -> tuple[State, State]:
        obs, valid = inputs
        new = jax.tree.map(lambda new, old: jnp.where(valid, new, old), critic.remember(obs, h), h)
        return new, new

    return jax.lax.scan(step, start, (obs, valid))[1]
