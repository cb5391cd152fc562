"""An algorithm, a kernel and a task of one's own: importing this package makes them known."""

import s2pg
from extras.algorithm import Lookalike
from extras.kernel import LeakyKernel
from extras.task import blind_pendulum

s2pg.register_algorithm("lookalike", Lookalike, wraps="ppo")
s2pg.register_kernel("leaky", LeakyKernel)
s2pg.register_task("blind-pendulum", blind_pendulum)
