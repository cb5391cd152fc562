"""Memory rules: how z' comes about, and what one training sample is.

| rule           | z' is                       | decision | one sample     | gradient through z        |
|----------------|-----------------------------|----------|----------------|---------------------------|
| `DrawRule`     | drawn from N(eta, Upsilon)  | (a, z')  | one transition | none: the draw shields it |
| `PathwiseRule` | the same, noise held fixed  | (a, z')  | a segment of n | through n steps, then V   |
| `UnrollRule`   | eta(o, z), recomputed       | a        | a segment of n | through n steps           |
| `CarryRule`    | a parameter-free map, or () | a        | one transition | nothing to flow           |

Algorithms are written over decisions and never ask which of the four they run under.
"""

from s2pg.memory.base import (
    DecisionRule,
    Evaluation,
    Memory,
    ReplayEvaluation,
    ReplaySample,
    Sample,
    Segments,
    Spans,
    restarts,
)
from s2pg.memory.carry import CarryRule
from s2pg.memory.draw import DrawRule
from s2pg.memory.pathwise import NoisyState, PathwiseRule
from s2pg.memory.unroll import UnrollRule

__all__ = [
    "CarryRule", "DecisionRule", "DrawRule", "Evaluation", "Memory", "NoisyState", "PathwiseRule", "ReplayEvaluation",
    "ReplaySample", "Sample", "Segments", "Spans", "UnrollRule", "restarts",
]  # fmt: skip
