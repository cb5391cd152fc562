"""The smallest task that needs memory: see a cue once, act on it k steps later."""

from __future__ import annotations

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from s2pg.envs import draw
from s2pg.envs.base import Env, EnvState
from s2pg.options import check_fields, option
from s2pg.types import CRITIC, POLICY, Box, Discrete, Obs


class Recall(Env):
    """A cue shown at the first step, asked for at the k-th.

    A bit earns 1 if it is answered rightly. With `cue="real"` the cue x is uniform on [-1, 1], and the reward of the
    last action a is 1 - (a - x)^2.
    """

    shows_action: ClassVar[bool] = False

    k: int = option(8, "length of an episode: the cue is shown at its first step and asked for at its last", low=1)
    cue: str = option("bit", "bit, or real for a number in [-1, 1]", choices=("bit", "real"))

    def __check_init__(self):
        check_fields(self, "recall")

    @property
    def horizon(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The step of the question."""
        return self.k

    @property
    def action(self) -> Box | Discrete:
        return Discrete(2) if self.cue == "bit" else Box((-1.0,), (1.0,))

    def begin(self, key: PRNGKeyArray) -> Float[Array, ""]:
        cue = jax.random.uniform(key, minval=-1.0, maxval=1.0)
        return cue if self.cue == "real" else jnp.where(cue > 0, 1.0, -1.0)

    def move(self, inner: Array, elapsed: Array, action: Array, key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        if self.cue == "bit":
            reward = jnp.where((action == 1) == (inner > 0), 1.0, 0.0)
        else:
            reward = 1.0 - (action[0] - inner) ** 2
        # The episode is over because the question was asked, not because time ran out: there is no value beyond.
        asked = elapsed == self.k - 1
        return inner, jnp.where(asked, reward, 0.0), asked

    def views(self, inner: Array, elapsed: Array) -> Obs:
        shown = (elapsed == 0).astype(inner.dtype)
        return {POLICY: jnp.stack([shown * inner, shown]), CRITIC: jnp.stack([inner, elapsed / self.k])}

    def scripted(self, inner: Array) -> Array:
        """Answers as an oracle would: with the cue at every step, of which the last one counts."""
        return (inner > 0).astype(jnp.int32) if self.cue == "bit" else inner[None]

    def render(self, state: EnvState) -> np.ndarray:
        """Draws a winding corridor of k cells; the cue fills the first while shown and rings the last.

        The walker wears the colour of its latest answer, of which the one in the ring counts.
        """
        inner, elapsed = float(state.inner), int(state.elapsed)
        columns = math.ceil(math.sqrt(self.k))
        rows = math.ceil(self.k / columns)
        canvas = draw.Canvas(-0.1, columns + 0.1)

        def centre(cell: int) -> tuple[float, float]:
            row, column = divmod(cell, columns)
            return (columns - column if row % 2 else column + 1) - 0.5, columns / 2 + rows / 2 - row - 0.5

        for cell in range(1, self.k):
            canvas.line(centre(cell - 1), centre(cell), 0.24, draw.PALE)
        for cell in range(self.k):
            x, y = centre(cell)
            canvas.rectangle((x - 0.42, y - 0.42), (x + 0.42, y + 0.42), draw.PALE)
        colour = draw.mix(draw.BLUE, draw.ORANGE, (inner + 1) / 2)
        if elapsed == 0:
            x, y = centre(0)
            canvas.rectangle((x - 0.42, y - 0.42), (x + 0.42, y + 0.42), colour)
        canvas.ring(centre(self.k - 1), 0.36, 0.1, colour)
        here = centre(min(int(elapsed), self.k - 1))
        canvas.disc(here, 0.21, draw.PAPER)
        canvas.disc(here, 0.17, self._answer_colour(np.asarray(state.previous), elapsed))
        return canvas.picture()

    def _answer_colour(self, previous: np.ndarray, elapsed: int) -> draw.Colour:
        if elapsed == 0:
            return draw.INK
        answer = previous[1] if self.cue == "bit" else (previous[0] + 1) / 2
        return draw.mix(draw.BLUE, draw.ORANGE, float(answer))
