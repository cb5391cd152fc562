"""A GRU (gated recurrent unit): its output is the mean of z' and feeds the action, beside a skip path."""

from __future__ import annotations

from jaxtyping import PRNGKeyArray

from s2pg.heads import Heads
from s2pg.kernels.recurrent import RecurrentKernel
from s2pg.networks import GRU


class GRUKernel(RecurrentKernel):
    """eta = GRU(relu(W o), z)."""

    def __init__(
        self, inputs: int, heads: Heads, key: PRNGKeyArray, *, size: int = 64, width: int = 64, encoder_width: int = 0
    ):
        super().__init__(inputs, heads, key, GRU, size=size, width=width, encoder_width=encoder_width)
