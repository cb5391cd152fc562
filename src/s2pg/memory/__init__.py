"""Memory rules: how z' comes about, and what one training sample is.

| rule       | z' is                       | decision | one sample          | gradient through z        |
|------------|-----------------------------|----------|---------------------|---------------------------|
| `Sampled`  | drawn from N(eta, Upsilon)  | (a, z')  | one transition      | none: the draw shields it |
| `Unrolled` | eta(o, z), recomputed       | a        | a segment of n      | through n steps           |
| `Carried`  | a parameter-free map, or () | a        | one transition      | nothing to flow           |

Algorithms are written over decisions and never ask which of the three they run under.
"""

from s2pg.memory.base import Evaluation, Memory, Replayed, Sample, Segments, Unfolded, restarts
from s2pg.memory.carried import Carried
from s2pg.memory.sampled import Draw, Sampled
from s2pg.memory.unrolled import Unrolled

__all__ = [
    "Carried", "Draw", "Evaluation", "Memory", "Replayed", "Sample", "Sampled", "Segments", "Unfolded", "Unrolled",
    "restarts",
]  # fmt: skip
