"""Deep deterministic policy gradient over decisions: TD3 with one critic, no delay and no smoothing."""

from __future__ import annotations

import equinox as eqx

from s2pg.algorithms.td3 import TD3


class DDPG(TD3):
    """The stateful deterministic policy gradient in its plainest form."""

    critics: int = eqx.field(static=True, default=1)
    gradient_steps: int = eqx.field(static=True, default=1)
    policy_delay: int = eqx.field(static=True, default=1)
    smoothing_action: float = eqx.field(static=True, default=0.0)
    smoothing_state: float = eqx.field(static=True, default=0.0)
