"""Kernels pi(a, z' | o, z), each one file."""

import inspect

from s2pg.errors import UserError, unknown
from s2pg.kernel import Kernel
from s2pg.kernels.cpg import CPGKernel
from s2pg.kernels.gru import GRUKernel
from s2pg.kernels.lstm import LSTMKernel
from s2pg.kernels.mingru import MinGRUKernel
from s2pg.kernels.mlp import MLPKernel
from s2pg.kernels.ode import ODEKernel
from s2pg.kernels.rnn import RNNKernel
from s2pg.kernels.window import WindowKernel

GIVEN = ("size", "width", "encoder_width", "length", "dt")  # what every kernel may ask for

KERNELS: dict[str, type[Kernel]] = {
    "gru": GRUKernel, "lstm": LSTMKernel, "rnn": RNNKernel, "mingru": MinGRUKernel, "ode": ODEKernel, "cpg": CPGKernel,
    "mlp": MLPKernel, "window": WindowKernel,
}  # fmt: skip


def find_kernel(name: str) -> type[Kernel]:
    """The kernel of this name; one line where there is none."""
    if name not in KERNELS:
        raise unknown("kernel", name, KERNELS)
    return KERNELS[name]


def register_kernel(name: str, kernel: type) -> None:
    """Makes a kernel of your own known as `name`: to `s2pg.train(..., kernel=name)`, and to `s2pg.load` of its runs."""
    if not (isinstance(kernel, type) and issubclass(kernel, Kernel)):
        raise UserError(f"kernel '{name}' must be a subclass of s2pg.kernel.Kernel, not {kernel!r}")
    known = KERNELS.get(name, kernel)
    if (known.__module__, known.__qualname__) != (kernel.__module__, kernel.__qualname__):
        raise UserError(f"there is a kernel '{name}' already: {known.__name__}")
    for each in inspect.signature(kernel).parameters.values():
        if each.kind is each.KEYWORD_ONLY and each.default is each.empty and each.name not in GIVEN:
            raise UserError(f"kernel '{name}': its option '{each.name}' needs a default")
    KERNELS[name] = kernel
