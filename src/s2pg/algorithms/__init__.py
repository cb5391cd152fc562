"""Learning algorithms, each one file, each for every memory rule."""

from s2pg.algorithms.base import Algorithm
from s2pg.algorithms.ddpg import DDPG
from s2pg.algorithms.gpomdp import GPOMDP
from s2pg.algorithms.offpolicy import OffPolicy
from s2pg.algorithms.ppo import PPO
from s2pg.algorithms.reinforce import REINFORCE
from s2pg.algorithms.sac import SAC
from s2pg.algorithms.td3 import TD3
from s2pg.algorithms.trpo import TRPO

__all__ = ["ALGORITHMS", "Algorithm", "OffPolicy"]

ALGORITHMS: dict[str, type[Algorithm]] = {
    "ppo": PPO, "trpo": TRPO, "sac": SAC, "td3": TD3, "ddpg": DDPG, "reinforce": REINFORCE, "gpomdp": GPOMDP,
}  # fmt: skip
