"""Deep deterministic policy gradient over decisions: TD3 with one critic, no delay and no smoothing."""

from __future__ import annotations

from s2pg.algorithms.td3 import TD3
from s2pg.options import redefine


class DDPG(TD3):
    """Deterministic policy gradient in its plainest form."""

    critics: int = redefine(TD3, "critics", 1)
    gradient_steps: int = redefine(TD3, "gradient_steps", 1)
    policy_delay: int = redefine(TD3, "policy_delay", 1)
    smoothing_action: float = redefine(TD3, "smoothing_action", 0.0)
    smoothing_state: float = redefine(TD3, "smoothing_state", 0.0)
