"""The kernel pi(a, z' | o, z): what every policy of this library is.

A kernel is three maps, so that a rule which unrolls time runs only the middle one in sequence:

    x   = embed(o)         what can be computed without z
    eta = advance(x, z)    the mean of the next internal state
    (a, z') ~ emit(x, eta) the action head may read eta, never the drawn z'

a and z' are conditionally independent given (o, z).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from s2pg.distributions import Categorical, Distribution, Normal, PointMass
from s2pg.networks import Linear
from s2pg.types import Box, Discrete, State


class Step(NamedTuple):
    """One call of a kernel: distributions over a and z'; z' is a plain pytree where it is no random variable."""

    action: Distribution
    state: Distribution | State


class Kernel(eqx.Module):
    """pi(a, z' | o, z) for one example, no batch axis."""

    # A stateful kernel has a z' worth drawing or unrolling; the others only carry the past along.
    stateful: ClassVar[bool] = True

    @abstractmethod
    def initial(self) -> State:
        """z_0."""

    @abstractmethod
    def embed(self, obs: Array) -> PyTree: ...

    @abstractmethod
    def advance(self, x: PyTree, z: State) -> State: ...

    @abstractmethod
    def emit(self, x: PyTree, eta: State) -> Step: ...

    def __call__(self, obs: Array, z: State) -> Step:
        x = self.embed(obs)
        return self.emit(x, self.advance(x, z))

    def features(self, z: State) -> Float[Array, " features"]:
        """What critics see of z."""
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(z)] or [jnp.zeros(0)])


class NormalHead(eqx.Module):
    """Diagonal normal over actions with a learned standard deviation that does not depend on the context."""

    mean: Linear
    log_std: Float[Array, " size"]

    def __call__(self, x: Array) -> Normal:
        return Normal(self.mean(x), self.log_std)


class CategoricalHead(eqx.Module):
    """Logits of a discrete action."""

    logits: Linear

    def __call__(self, x: Array) -> Categorical:
        return Categorical(self.logits(x))


class StateNoise(eqx.Module):
    """z' ~ N(eta, Upsilon), Upsilon = diag(exp(2 log_std)); `learned` decides whether Upsilon is trained."""

    log_std: Float[Array, " size"]
    learned: bool = eqx.field(static=True)

    def __call__(self, eta: Array) -> Normal:
        return Normal(eta, self.log_std if self.learned else jax.lax.stop_gradient(self.log_std))


class NoNoise(eqx.Module):
    """z' = eta: no parameters, for rules that recompute the state."""

    def __call__(self, eta: State) -> PointMass:
        return PointMass(eta)


class Heads(NamedTuple):
    """What an algorithm and a memory rule ask of a kernel: builders of its two output heads."""

    action: Callable[[int, PRNGKeyArray], Callable[[Array], Distribution]]  # (inputs, key)
    state: Callable[[int], Callable[[Array], Distribution]]  # (size of z)


@runtime_checkable
class KernelBuilder(Protocol):
    """Makes a kernel that reads a vector of `inputs` numbers."""

    def __call__(self, inputs: int, heads: Heads, key: PRNGKeyArray) -> Kernel: ...


def plain_action_head(
    space: Box | Discrete, log_std: float
) -> Callable[[int, PRNGKeyArray], Callable[[Array], Distribution]]:
    """The unsquashed action head of on-policy algorithms; its mean starts near 0 so that first ratios are tame."""

    def build(inputs: int, key: PRNGKeyArray) -> NormalHead | CategoricalHead:
        last = Linear(inputs, space.size, key=key, gain=0.01)
        if isinstance(space, Discrete):
            return CategoricalHead(last)
        return NormalHead(last, jnp.full(space.size, log_std))

    return build
