"""The training loop proper, on the device and on the host: both turn a `Loop` into a later one and some metrics."""

from s2pg.loops.base import EVALUATE, INIT, TRAIN, WARMUP, Loop, Looper, seed_keys, settled, stream
from s2pg.loops.device import DeviceLoop
from s2pg.loops.host import HostLoop

__all__ = [
    "EVALUATE", "INIT", "TRAIN", "WARMUP", "DeviceLoop", "HostLoop", "Loop", "Looper", "seed_keys", "settled", "stream",
]  # fmt: skip
