"""A neural ordinary differential equation, integrated over each control interval by diffrax."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from s2pg.errors import UserError
from s2pg.heads import Heads
from s2pg.kernels.recurrent import RecurrentKernel
from s2pg.networks import Cell, Linear, spread
from s2pg.options import Option

# The usual loop over a solver's stages takes ten times as long, and cannot be differentiated forwards, as TRPO does.
_stages = {"scan_kind": "bounded"}
SOLVERS: dict[str, Any] = {
    "euler": diffrax.Euler,
    "heun": functools.partial(diffrax.Heun, **_stages),
    "bosh3": functools.partial(diffrax.Bosh3, **_stages),
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
        return self.inputs(x)

    def rate(self, projected: Array, z: Array) -> Array:
        """dz/dt."""
        goal, gate = jnp.split(self.field(jnp.tanh(projected + self.recurrent(z))), 2)
        return self.fastest * jax.nn.sigmoid(gate + spread(self.size)) * (jnp.tanh(goal) - z)

    def advance(self, projected: Array, z: Array) -> Array:
        # Steps of a fixed length need none of the machinery that diffrax has around its solvers.
        terms, solver = diffrax.ODETerm(lambda t, z, x: self.rate(x, z)), SOLVERS[self.solver]()
        times = [i / self.substeps for i in range(self.substeps + 1)]
        state = solver.init(terms, times[0], times[1], z, projected)
        for before, after in itertools.pairwise(times):
            z, _, _, state, _ = solver.step(terms, before, after, z, projected, state, made_jump=False)
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
