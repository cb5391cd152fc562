"""A sequential latent-variable model of what a policy sees and earns, two layers of latents z1 and z2 to each step.

    z1_t ~ p(z1_t | z2_{t-1}, a_{t-1})            x_t ~ p(x_t | z_t)                z_t = (z1_t, z2_t)
    z2_t ~ p(z2_t | z1_t, z2_{t-1}, a_{t-1})      r_t ~ p(r_t | z_t, a_t, z_{t+1})
    z1_t ~ q(z1_t | x_t, z2_{t-1}, a_{t-1}) in the posterior, which draws z2_t as the prior does

    log p(x_{1:n+1}, r_{1:n} | a_{1:n}) >= E_q [sum_t log p(x_t | z_t) - KL(q(z1_t) || p(z1_t)) + log p(r_t | ...)]

Before the first step of a segment stands a learned z2_0 and no action: p(z1_1) and q(z1_1 | x_1) are those of later
steps from there. All distributions are diagonal normals; those of x and r have one learned deviation for each number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from s2pg.distributions import Normal
from s2pg.networks import MLP, spread


class Segment(NamedTuple):
    """n rows of one episode, padded in front where it began later; the observation after the last row is x_{n+1}."""

    obs: Float[Array, "n+1 size"]
    action: Float[Array, "n actions"]
    reward: Float[Array, " n"]
    valid: Bool[Array, " n"]


class Sizes(NamedTuple):
    """Numbers in an observation, an action, z1 and z2, and the units of each hidden layer."""

    obs: int
    action: int
    first: int
    second: int
    hidden: tuple[int, ...]

    @property
    def latents(self) -> int:
        """Numbers in (z1, z2)."""
        return self.first + self.second


class Inference(NamedTuple):
    """What a segment tells of the latents, at each of its observations; that of padding means nothing."""

    latents: Float[Array, "n+1 latents"]  # (z1, z2), drawn from the posterior
    posterior: Normal  # of z1
    context: Float[Array, "n+1 context"]  # (z2, a) of the step before


class Bound(NamedTuple):
    """The terms of a segment's lower bound: sums over its valid steps, and how many observations there are."""

    obs: Array  # log p(x | z)
    reward: Array  # log p(r | z, a, z')
    divergence: Array  # KL(q || p)
    number: Array

    @property
    def total(self) -> Array:
        """The bound itself."""
        return self.obs + self.reward - self.divergence


class Gaussian(eqx.Module):
    """A perceptron to a normal whose deviation is `level` softplus(.), never below a thousandth."""

    body: MLP
    level: float = eqx.field(static=True)

    def __init__(self, inputs: int, outputs: int, hidden: Sequence[int], *, key: PRNGKeyArray, level: float = 1.0):
        self.body = MLP([inputs, *hidden, 2 * outputs], key=key)
        self.level = level

    def __call__(self, *inputs: Array) -> Normal:
        mean, raw = jnp.split(self.body(jnp.concatenate(inputs)), 2)
        return Normal(mean, jnp.log(1e-3 + self.level * jax.nn.softplus(raw)))


class Gated(eqx.Module):
    """A perceptron to a normal around (1 - u) tanh(.) + u z2, z2 being that of the step before: some units keep it."""

    body: MLP
    level: float = eqx.field(static=True)

    def __init__(self, inputs: int, size: int, hidden: Sequence[int], *, key: PRNGKeyArray, level: float):
        self.body = MLP([inputs, *hidden, 3 * size], key=key)
        self.level = level

    def __call__(self, kept: Array, *inputs: Array) -> Normal:
        gate, new, raw = jnp.split(self.body(jnp.concatenate(inputs)), 3)
        gate = jax.nn.sigmoid(gate - spread(kept.shape[0]))
        return Normal(gate * kept + (1.0 - gate) * jnp.tanh(new), jnp.log(1e-3 + self.level * jax.nn.softplus(raw)))


class Decoder(eqx.Module):
    """A perceptron to a normal with learned deviations that depend on nothing and stay above `least`."""

    body: MLP
    raw: Float[Array, " outputs"]
    least: float = eqx.field(static=True)

    def __init__(self, inputs: int, outputs: int, hidden: Sequence[int], *, least: float, key: PRNGKeyArray):
        self.body = MLP([inputs, *hidden, outputs], key=key)
        # 0.31 at the start: Adam moves deviations slowly, and while they are large the latents need to tell nothing.
        self.raw, self.least = jnp.full(outputs, -1.0), least

    def __call__(self, *inputs: Array) -> Normal:
        return Normal(self.body(jnp.concatenate(inputs)), jnp.log(self.least + jax.nn.softplus(self.raw)))


class LatentModel(eqx.Module):
    """The distributions of the model, its posterior, and the learned z2_0."""

    start: Float[Array, " second"]
    first_prior: Gaussian
    first_posterior: Gaussian
    second: Gated
    obs: Decoder
    reward: Decoder
    sizes: Sizes = eqx.field(static=True)

    def __init__(self, sizes: Sizes, least_std: float, *, key: PRNGKeyArray):
        keys, (obs, action, first, second, hidden) = jax.random.split(key, 5), sizes
        self.sizes, self.start, context = sizes, jnp.zeros(second), second + action
        self.first_prior = Gaussian(context, first, hidden, key=keys[0])
        self.first_posterior = Gaussian(obs + context, first, hidden, key=keys[1])
        # What z2 keeps has to outlast the noise of many steps, so it begins with little.
        self.second = Gated(first + context, second, hidden, key=keys[2], level=0.1)
        self.obs = Decoder(sizes.latents, obs, hidden, least=least_std, key=keys[3])
        self.reward = Decoder(2 * sizes.latents + action, 1, hidden, least=least_std, key=keys[4])

    def infer(self, segment: Segment, key: PRNGKeyArray) -> Inference:
        """Draws latents from the posterior along a segment, beginning anew at its first valid row."""
        begins = jnp.concatenate([jnp.ones(1, bool), ~segment.valid])
        action = jnp.concatenate([jnp.zeros((1, self.sizes.action)), segment.action])

        def step(second: Array, at: tuple) -> tuple[Array, Inference]:
            obs, action, begins, noise = at
            first_noise, second_noise = jnp.split(noise, [self.sizes.first])
            before = jnp.where(begins, self.start, second)
            context = jnp.concatenate([before, jnp.where(begins, 0.0, action)])
            posterior = self.first_posterior(obs, context)
            first = posterior.mean + jnp.exp(posterior.log_std) * first_noise
            moved = self.second(before, first, context)
            second = moved.mean + jnp.exp(moved.log_std) * second_noise
            return second, Inference(jnp.concatenate([first, second]), posterior, context)

        noise = jax.random.normal(key, (begins.shape[0], self.sizes.latents))
        return jax.lax.scan(step, self.start, (segment.obs, action, begins, noise))[1]

    def bound(self, segment: Segment, key: PRNGKeyArray) -> Bound:
        """Estimates the lower bound of log p(x, r | a) from one draw of the latents."""
        latents, posterior, context = self.infer(segment, key)
        seen = jnp.append(segment.valid, True)
        obs = jax.vmap(lambda z, x: self.obs(z).log_prob(x))(latents, segment.obs)
        reward = jax.vmap(lambda z, a, ahead, r: self.reward(z, a, ahead).log_prob(r[None]))(
            latents[:-1], segment.action, latents[1:], segment.reward
        )
        divergence = posterior.kl(jax.vmap(self.first_prior)(context))
        summed = lambda x, mask: jnp.sum(jnp.where(mask, x, 0.0))  # noqa: E731
        return Bound(
            summed(obs, seen), summed(reward, segment.valid), summed(divergence, seen), jnp.sum(seen).astype(float)
        )
