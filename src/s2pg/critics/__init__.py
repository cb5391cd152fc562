"""Critics Q(s, z, u), of which V(s, z) is the one of the empty decision: each one file."""

from s2pg.critics.base import NOTHING, Critic, CriticBuilder, Recipe, Values, histories, state_value, unroll
from s2pg.critics.branched import BranchedCritic
from s2pg.critics.plain import PlainCritic
from s2pg.critics.recurrent import RecurrentCritic

__all__ = [
    "NOTHING", "BranchedCritic", "Critic", "CriticBuilder", "PlainCritic", "Recipe", "RecurrentCritic", "Values",
    "histories", "state_value", "unroll",
]  # fmt: skip
