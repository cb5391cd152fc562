"""A GRU (gated recurrent unit): its output is the mean of z' and feeds the action, beside a skip path."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from s2pg.kernels.recurrent import RecurrentKernel
from s2pg.networks import GRU, Cell


class GRUKernel(RecurrentKernel):
    """A gated recurrent unit: eta = GRU(relu(W o), z)."""

    cell_type: ClassVar[Callable[..., Cell]] = GRU
