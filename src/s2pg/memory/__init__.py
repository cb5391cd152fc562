"""Memory rules: how z' comes about, and what one training sample is.

| rule         | z' is                       | decision | one sample          | gradient through z        |
|--------------|-----------------------------|----------|---------------------|---------------------------|
| `DrawRule`   | drawn from N(eta, Upsilon)  | (a, z')  | one transition      | none: the draw shields it |
| `UnrollRule` | eta(o, z), recomputed       | a        | a segment of n      | through n steps           |
| `CarryRule`  | a parameter-free map, or () | a        | one transition      | nothing to flow           |

Algorithms are written over decisions and never ask which of the three they run under.
"""

from s2pg.memory.base import Evaluation, Memory, ReplayEvaluation, ReplaySample, Sample, Segments, Spans, restarts
from s2pg.memory.carry import CarryRule
from s2pg.memory.draw import DrawRule, NoisyState
from s2pg.memory.unroll import UnrollRule

__all__ = [
    "CarryRule", "DrawRule", "Evaluation", "Memory", "NoisyState", "ReplayEvaluation", "ReplaySample", "Sample",
    "Segments", "Spans", "UnrollRule", "restarts",
]  # fmt: skip
