"""Coupled oscillators (a central pattern generator): z moves by itself, and actions are read off it.

    d psi_i / dt   = 2 pi v_i + sum_j r_j w_ij sin(psi_j - psi_i - phi_ij)
    d2 r_i / dt2   = c_i (c_i / 4 (b_i - r_i) - d r_i / dt)            r goes to b, as fast as without overshoot

v, b, c, w and phi are learned. a ~ head(mlp(r cos psi)), with the observation beside it unless `blind`.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from s2pg.errors import UserError
from s2pg.heads import ActionHead, Heads, StateHead
from s2pg.kernel import Kernel, Step
from s2pg.networks import MLP
from s2pg.options import Option

TURN, MOST_AMPLITUDE, MOST_PULL, MOST_COUPLING = 2 * math.pi, 2.0, 10.0, 1.0  # of phi, b, c and w
# 1 - x + ... for dz/dt = -rate z and x = rate dt: what a step makes of a deviation. Beyond 1 it grows.
SOLVERS = {"euler": (1.0, -1.0), "rk4": (1.0, -1.0, 1 / 2, -1 / 6, 1 / 24)}


class Swing(NamedTuple):
    """The state of n oscillators in natural units: phases in radians, amplitudes and how fast those change."""

    phase: Array
    amplitude: Array
    change: Array


# What z' is drawn in, so that its noise means something for each: half turns, the largest
# amplitude, and a rate of the size that amplitudes reach.
UNITS = (math.pi, MOST_AMPLITUDE, MOST_PULL * MOST_AMPLITUDE / 4)


class Oscillators(eqx.Module):
    """The learned parameters, each as most sigmoid(raw / most)."""

    frequency: Float[Array, " n"]  # v, in Hz
    goal: Float[Array, " n"]  # b
    pull: Float[Array, " n"]  # c
    coupling: Float[Array, "n n"]  # w
    shift: Float[Array, "n n"]  # phi
    most_frequency: float = eqx.field(static=True)

    def __init__(self, n: int, most_frequency: float, *, key: PRNGKeyArray):
        def drawn(key: PRNGKeyArray, shape: tuple[int, ...], mean: float, std: float) -> Array:
            return mean + std * jax.random.normal(key, shape)

        keys = jax.random.split(key, 5)
        self.frequency = drawn(keys[0], (n,), 0.05, 0.01)
        self.goal = drawn(keys[1], (n,), 0.1, 0.1)
        self.pull = drawn(keys[2], (n,), 2.0, 0.1)
        self.coupling = drawn(keys[3], (n, n), 0.1, 0.05)
        self.shift = drawn(keys[4], (n, n), 0.1, 0.05)
        self.most_frequency = most_frequency

    @property
    def hertz(self) -> Array:
        return _within(self.frequency, self.most_frequency)

    def rates(self, swing: Swing) -> Swing:
        """d/dt of everything."""
        goal, pull = _within(self.goal, MOST_AMPLITUDE), _within(self.pull, MOST_PULL)
        # An oscillator's difference to itself would give w_ii sin(-phi_ii): no coupling.
        others = 1.0 - jnp.eye(goal.shape[0])
        weight = others * _within(self.coupling, MOST_COUPLING) * swing.amplitude[None, :]
        apart = swing.phase[None, :] - swing.phase[:, None] - _within(self.shift, TURN)
        return Swing(
            TURN * self.hertz + jnp.sum(weight * jnp.sin(apart), axis=1),
            swing.change,
            pull * (pull / 4.0 * (goal - swing.amplitude) - swing.change),
        )


def _within(raw: Array, most: float) -> Array:
    return most * jax.nn.sigmoid(raw / most)


def _moved(swing: Swing, rates: Swing, dt: float) -> Swing:
    return jax.tree.map(lambda x, rate: x + dt * rate, swing, rates)


def integrate(oscillators: Oscillators, swing: Swing, dt: float, solver: str) -> Swing:
    """One step."""
    one = oscillators.rates(swing)
    if solver == "euler":
        return _moved(swing, one, dt)
    two = oscillators.rates(_moved(swing, one, dt / 2))
    three = oscillators.rates(_moved(swing, two, dt / 2))
    four = oscillators.rates(_moved(swing, three, dt))
    slope = jax.tree.map(lambda a, b, c, d: (a + 2 * b + 2 * c + d) / 6, one, two, three, four)
    return _moved(swing, slope, dt)


def growth(solver: str, x: float) -> float:
    """What one step of length x, in units of a time constant, makes of a deviation of 1."""
    return abs(sum(factor * x**power for power, factor in enumerate(SOLVERS[solver])))


class CPGKernel(Kernel):
    """Coupled oscillators: z moves by itself.

    eta is z one control step later, by explicit Euler (the paper) or Runge-Kutta (the authors' code)."""

    bounded: ClassVar[bool] = False
    oscillators: Oscillators
    body: MLP
    action_head: ActionHead
    state_head: StateHead
    dt: float = eqx.field(static=True)
    solver: str = eqx.field(static=True)
    blind: bool = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        heads: Heads,
        key: PRNGKeyArray,
        *,
        width: int,
        dt: float,
        oscillators: Annotated[int, Option("how many; z has three numbers for each", low=1)] = 8,
        most_frequency: Annotated[float, Option("in Hz: what oscillators may learn to swing with", above=0)] = 5.0,
        solver: Annotated[str, Option("of their equation: euler or rk4", choices=tuple(SOLVERS))] = "euler",
        blind: Annotated[bool, Option("read no observation: nothing but oscillators")] = True,
    ):
        if growth(solver, dt * MOST_PULL / 2) > 1.0:  # amplitudes decay with exp(-c t / 2)
            raise UserError(
                f"kernel 'cpg': steps of {dt:g} s, as this task has them or says nothing of, diverge under {solver}"
            )
        own, body, action = jax.random.split(key, 3)
        self.oscillators = Oscillators(oscillators, most_frequency, key=own)
        self.body = MLP([oscillators + inputs * (not blind), width, width], key=body, last_gain=2.0**0.5)
        self.action_head = heads.action(width, action)
        self.state_head = heads.state(3 * oscillators, width, jax.random.fold_in(action, 0))
        self.dt, self.solver, self.blind = dt, solver, blind

    @property
    def count(self) -> int:
        return self.oscillators.frequency.shape[0]

    def initial(self) -> Float[Array, " size"]:
        """Evenly round the circle, at half of the largest amplitude, at rest.

        Oscillators that began alike would stay alike until noise told them apart, and a policy without noise would not
        be the one that was trained.
        """
        zero = jnp.zeros(self.count)
        return _pack(Swing(TURN * jnp.arange(self.count) / self.count, zero + MOST_AMPLITUDE / 2, zero))

    def embed(self, obs: Array) -> Array:
        return obs[:0] if self.blind else obs

    def advance(self, x: Array, z: Array) -> Array:
        return _pack(integrate(self.oscillators, _unpack(z), self.dt, self.solver))

    def emit(self, x: Array, eta: Array) -> Step:
        swing = _unpack(eta)
        hidden = jax.nn.relu(self.body(jnp.concatenate([swing.amplitude * jnp.cos(swing.phase), x])))
        return Step(self.action_head(hidden), self.state_head(eta, hidden))

    def features(self, z: Array) -> Array:
        """(r sin psi, r cos psi, dr/dt): nothing that depends on how often a phase has gone round."""
        phase, amplitude, change = _unpack(z)
        return jnp.concatenate([amplitude * jnp.sin(phase), amplitude * jnp.cos(phase), change])

    def facts(self) -> dict[str, Array]:
        own = self.oscillators
        return {"frequencies in Hz": own.hertz, "amplitudes": _within(own.goal, MOST_AMPLITUDE)}


def _pack(swing: Swing) -> Array:
    return jnp.concatenate([part / unit for part, unit in zip(swing, UNITS, strict=True)])


def _unpack(z: Array) -> Swing:
    """Phases within half a turn of 0, and amplitudes within their bounds, wherever noise has carried z."""
    phase, amplitude, change = (part * unit for part, unit in zip(jnp.split(z, 3), UNITS, strict=True))
    return Swing(phase - TURN * jnp.round(phase / TURN), jnp.clip(amplitude, 0.0, MOST_AMPLITUDE), change)
