"""Learning algorithms, each one file, each for every memory rule."""

from s2pg.algorithms.base import Algorithm
from s2pg.algorithms.gpomdp import GPOMDP
from s2pg.algorithms.ppo import PPO
from s2pg.algorithms.reinforce import REINFORCE

ALGORITHMS: dict[str, type[Algorithm]] = {"ppo": PPO, "reinforce": REINFORCE, "gpomdp": GPOMDP}
