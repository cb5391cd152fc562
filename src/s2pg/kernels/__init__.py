"""Kernels pi(a, z' | o, z), each one file."""

from s2pg.kernel import Kernel
from s2pg.kernels.gru import GRUKernel
from s2pg.kernels.mlp import MLPKernel
from s2pg.kernels.window import WindowKernel

KERNELS: dict[str, type[Kernel]] = {"gru": GRUKernel, "mlp": MLPKernel, "window": WindowKernel}
