"""Densities as pytrees of arrays: they pass through jit, vmap and scan like any other value.

Each is over one event (a vector, one class, or several) and has `sample`, `log_prob`, `entropy` and `mode`; those
that a trust region is drawn around have `kl` too.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
NEVER = -1e9  # the logit of a class that is not there; finite, as 0 times infinity is no number


class Distribution(eqx.Module):
    """A distribution of one value, whose parameters are arrays. Those with a closed form of KL(p || q) have a `kl`."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray) -> PyTree:
        """Draws a value, differentiably where that is possible."""

    @abstractmethod
    def log_prob(self, value: PyTree) -> Array:
        """The logarithm of the density at a value."""

    @abstractmethod
    def entropy(self) -> Array:
        """The entropy."""

    @abstractmethod
    def mode(self) -> PyTree:
        """The likeliest value."""

    def draw(self, key: PRNGKeyArray | None) -> tuple[PyTree, Array]:
        """A value and its log-probability; without a key, the mode."""
        value = self.mode() if key is None else self.sample(key)
        return value, self.log_prob(value)


class Normal(Distribution):
    """Diagonal normal N(mean, diag(exp(log_std))^2)."""

    mean: Float[Array, " size"]
    log_std: Float[Array, " size"]

    def sample(self, key: PRNGKeyArray) -> Array:
        noise = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.exp(self.log_std) * noise

    def log_prob(self, value: Array) -> Array:
        standard = (value - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * standard**2 - self.log_std - HALF_LOG_2PI, axis=-1)

    def entropy(self) -> Array:
        return jnp.sum(self.log_std + 0.5 + HALF_LOG_2PI, axis=-1)

    def kl(self, other: Normal) -> Array:
        """log(s'/s) + (s^2 + (m - m')^2) / 2s'^2 - 1/2, written so that small ones are not lost in rounding."""
        shrinkage = 2.0 * (self.log_std - other.log_std)
        standard = (self.mean - other.mean) * jnp.exp(-other.log_std)
        return 0.5 * jnp.sum(jnp.expm1(shrinkage) - shrinkage + standard**2, axis=-1)

    def mode(self) -> Array:
        return self.mean


def log_det_tanh(pre: Array) -> Array:
    """log(1 - tanh(x)^2), exact where tanh(x) rounds to 1: 2 (log 2 - x - softplus(-2x))."""
    return 2.0 * (jnp.log(2.0) - pre - jax.nn.softplus(-2.0 * pre))


class TanhNormal(Distribution):
    """tanh of a diagonal normal. `draw` takes the density from before the tanh: none is lost at saturation."""

    pre: Normal

    def sample_pre(self, key: PRNGKeyArray) -> Array:
        return self.pre.sample(key)

    def log_prob_pre(self, pre: Array) -> Array:
        """Density of tanh(pre), from the value before the squashing."""
        return self.pre.log_prob(pre) - jnp.sum(log_det_tanh(pre), axis=-1)

    def sample(self, key: PRNGKeyArray) -> Array:
        return jnp.tanh(self.sample_pre(key))

    def draw(self, key: PRNGKeyArray | None) -> tuple[Array, Array]:
        pre = self.pre.mode() if key is None else self.sample_pre(key)
        return jnp.tanh(pre), self.log_prob_pre(pre)

    def log_prob(self, value: Array) -> Array:
        """Density of a value in [-1, 1]; at the bounds, that of the nearest number inside them."""
        inside = jnp.finfo(value.dtype).epsneg
        return self.log_prob_pre(jnp.arctanh(jnp.clip(value, -1.0 + inside, 1.0 - inside)))

    def entropy(self) -> Array:
        """No closed form: the normal's entropy plus E[log(1 - tanh^2)], by 20-point Gauss-Hermite quadrature."""
        import numpy as np

        nodes, weights = np.polynomial.hermite_e.hermegauss(20)
        points = (
            self.pre.mean[None] + jnp.exp(self.pre.log_std)[None] * jnp.asarray(nodes, self.pre.mean.dtype)[:, None]
        )
        weights = jnp.asarray(weights / weights.sum(), self.pre.mean.dtype)
        return self.pre.entropy() + jnp.sum(weights @ log_det_tanh(points), axis=-1)

    def kl(self, other: TanhNormal) -> Array:
        """That of the normals: a bijection changes no divergence."""
        return self.pre.kl(other.pre)

    def mode(self) -> Array:
        """tanh of the normal's mode: the deterministic action (the density's own maximum may lie at a bound)."""
        return jnp.tanh(self.pre.mode())


class ClippedNormal(Distribution):
    """A value with exploration noise, clipped to [-1, 1]: what a deterministic policy acts with (TD3, DDPG)."""

    mean: Float[Array, " size"]
    std: float = eqx.field(static=True)

    def sample(self, key: PRNGKeyArray) -> Array:
        noise = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return jnp.clip(self.mean + self.std * noise, -1.0, 1.0)

    def log_prob(self, value: Array) -> Array:
        """Density inside the bounds, probability at them. Without noise there is none: 0."""
        if self.std == 0.0:
            return jnp.zeros(())
        standard = (value - self.mean) / self.std
        inside = -0.5 * standard**2 - math.log(self.std) - HALF_LOG_2PI
        outside = jax.scipy.stats.norm.logcdf(-jnp.abs(standard))
        return jnp.sum(jnp.where(jnp.abs(value) >= 1.0, outside, inside))

    def entropy(self) -> Array:
        raise NotImplementedError("a deterministic policy has no entropy to speak of")

    def mode(self) -> Array:
        return self.mean


class Categorical(Distribution):
    """One of n classes, from unnormalised logits. Leading axes are as many distributions side by side."""

    logits: Float[Array, "*axes n"]

    def sample(self, key: PRNGKeyArray) -> Int[Array, "*axes"]:
        return jax.random.categorical(key, self.logits)

    def log_prob(self, value: Array) -> Array:
        log_p = jax.nn.log_softmax(self.logits)
        return jnp.sum(log_p * jax.nn.one_hot(value, log_p.shape[-1], dtype=log_p.dtype), axis=-1)

    def entropy(self) -> Array:
        log_p = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)

    def kl(self, other: Categorical) -> Array:
        log_p, log_q = jax.nn.log_softmax(self.logits), jax.nn.log_softmax(other.logits)
        return jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)

    def mode(self) -> Int[Array, "*axes"]:
        return jnp.argmax(self.logits, axis=-1)


class Categoricals(Distribution):
    """Independent classes, one for each axis: all but values are sums over the axes.

    Axes with fewer classes than others have logits of `NEVER` behind their own.
    """

    each: Categorical

    def sample(self, key: PRNGKeyArray) -> Int[Array, " axes"]:
        return self.each.sample(key)

    def log_prob(self, value: Array) -> Array:
        return jnp.sum(self.each.log_prob(value), axis=-1)

    def entropy(self) -> Array:
        return jnp.sum(self.each.entropy(), axis=-1)

    def kl(self, other: Categoricals) -> Array:
        return jnp.sum(self.each.kl(other.each), axis=-1)

    def mode(self) -> Int[Array, " axes"]:
        return self.each.mode()


class PointMass(Distribution):
    """All probability on one value: what `UnrollRule` makes of a state without noise."""

    value: PyTree

    def sample(self, key: PRNGKeyArray) -> PyTree:
        return self.value

    def log_prob(self, value: PyTree) -> Array:
        """0 at the value, minus infinity elsewhere."""
        same = [jnp.all(a == b) for a, b in zip(jax.tree.leaves(value), jax.tree.leaves(self.value), strict=True)]
        return jnp.where(jnp.all(jnp.stack(same)), 0.0, -jnp.inf)

    def entropy(self) -> Array:
        return jnp.zeros(())

    def kl(self, other: PointMass) -> Array:
        """0 at the same value, infinite elsewhere."""
        return -other.log_prob(self.value)

    def mode(self) -> PyTree:
        return self.value
