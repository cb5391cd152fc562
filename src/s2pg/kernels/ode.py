"""A neural ordinary differential equation, integrated over each control interval in steps of a fixed length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.errors import UserError
from s2pg.heads import Heads
from s2pg.kernels.recurrent import RecurrentKernel
from s2pg.networks import Cell, Linear, spread
from s2pg.options import Option


class Tableau(NamedTuple):
    """An explicit Runge-Kutta method: what each stage after the first adds of those before it, and what a step adds."""

    stages: tuple[tuple[float, ...], ...]
    step: tuple[float, ...]


# Written out, since a loop over stages would be a loop in compiled programs and exported files too.
SOLVERS = {
    "euler": Tableau((), (1.0,)),
    "heun": Tableau(((1.0,),), (1 / 2, 1 / 2)),
    "bosh3": Tableau(((1 / 2,), (0.0, 3 / 4)), (2 / 9, 1 / 3, 4 / 9)),
}
MOST_SUBSTEPS = 100  # each is compiled on its own


class NeuralODE(Cell):
    """dz/dt = fastest sigmoid(g + spread) (tanh(f) - z), (f, g) = W tanh(U x + V z): z moves to a goal, behind a gate.

    z stays in [-1, 1], and what a closed gate holds is kept. Time is in control intervals, in which x is constant.
    """

    inputs: Linear
    recurrent: Linear
    field: Linear
    fastest: float = eqx.field(static=True)
    solver: str = eqx.field(static=True)
    substeps: int = eqx.field(static=True)

    def __init__(
        self, inputs: int, size: int, *, field_width: int, fastest: float, solver: str, substeps: int, key: PRNGKeyArray
    ):
        input_key, recurrent_key, field_key = jax.random.split(key, 3)
        # Large at the start, so that z shows from the beginning what was seen, and there is something to learn from.
        self.inputs = Linear(inputs, field_width, key=input_key, gain=2.0)
        self.recurrent = Linear(size, field_width, key=recurrent_key)
        self.field = Linear(field_width, 2 * size, key=field_key, gain=2.0)
        self.fastest, self.solver, self.substeps = fastest, solver, substeps

    @property
    def size(self) -> int:
        return self.recurrent.weight.shape[0]

    def project(self, x: Array) -> Array:
        """All of the hidden layer that is the same in every stage, biases included."""
        return x @ self.inputs.weight + (self.inputs.bias + self.recurrent.bias)

    def pull(self, projected: Array, z: Array) -> Array:
        """dz/dt, in units of `fastest`."""
        hidden = jnp.tanh(projected + z @ self.recurrent.weight)
        shift = jnp.concatenate([jnp.zeros(self.size), spread(self.size)])
        goal, gate = jnp.split(hidden @ self.field.weight + (self.field.bias + shift), 2)
        return jax.nn.sigmoid(gate) * (jnp.tanh(goal) - z)

    def advance(self, projected: Array, z: Array) -> Array:
        stages, step = SOLVERS[self.solver]
        reach = self.fastest / self.substeps
        for _ in range(self.substeps):
            pulls = [self.pull(projected, z)]
            for weights in stages:
                pulls.append(self.pull(projected, _moved(z, reach, weights, pulls)))
            z = _moved(z, reach, step, pulls)
        return z


def _moved(z: Array, reach: float, weights: tuple[float, ...], pulls: list[Array]) -> Array:
    """Adds pulls of the same weight up before they are scaled: on a robot every operation counts."""
    shares: dict[float, Array] = {}
    for weight, pull in zip(weights, pulls, strict=True):
        shares[weight] = shares[weight] + pull if weight in shares else pull
    for weight, pull in shares.items():
        z = z + reach * weight * pull if weight else z
    return z


class ODEKernel(RecurrentKernel):
    """A neural differential equation: eta = z(1) from z(0) = z."""

    cell_type: ClassVar[Callable[..., Cell]] = NeuralODE

    def __init__(
        self,
        inputs: int,
        heads: Heads,
        key: PRNGKeyArray,
        *,
        size: int,
        width: int,
        encoder_width: int,
        fastest: Annotated[
            float, Option("largest rate at which z moves to its goal, per control interval", above=0)
        ] = 2.0,
        solver: Annotated[
            str, Option("of the differential equation: euler, heun or bosh3", choices=tuple(SOLVERS))
        ] = "heun",
        substeps: Annotated[int, Option("of the solver in a control interval", low=1, high=MOST_SUBSTEPS)] = 2,
    ):
        if fastest > substeps:
            raise UserError(
                f"kernel 'ode': {substeps} substeps at rates of up to {fastest:g} overshoot or diverge: take as many"
                " substeps as that, or more"
            )
        options = {"fastest": fastest, "solver": solver, "substeps": substeps}
        super().__init__(
            inputs, heads, key, size=size, width=width, encoder_width=encoder_width, field_width=width, **options
        )
