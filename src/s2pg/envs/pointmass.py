"""The paper's two point-mass tasks: a heading per step, constant speed, and a goal or doors seen only at the start.

The action a in [-1, 1] is the heading phi = pi (a + 1); the mass then moves `speed` * 0.2 * 3 units, 1.8 by
default, and cannot stand still. Positions are in field units, 0 ... 150; views show them scaled to -1 ... 1.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from s2pg.envs import draw
from s2pg.envs.base import Env, EnvState
from s2pg.options import check_fields, option
from s2pg.types import CRITIC, POLICY, Box, Obs

FIELD = 150.0
DT, SUBSTEPS = 0.2, 3
PENALTY = -2.0

COLUMNS, START_Y, GOAL_Y = (25.0, 57.0, 88.0, 120.0), 15.0, 130.0
GOAL_SEEN = 30.0

DOOR_START, DOOR_GOAL = (75.0, 10.0), (75.0, 140.0)
WALLS, HALF_WALL = (60.0, 90.0), 2.5
DOOR_EDGES, DOOR_WIDTH, RADIUS = (10.0, 100.0), 40.0, 2.0
DOORS_SEEN = 20.0
FASTEST = 2 * HALF_WALL / DT  # a longer substep could jump over a wall, which is tested where substeps end

GOAL_RADIUS = 5.0  # of the pictures; the reward knows only the distance


def _scaled(position: Array) -> Array:
    return position / (FIELD / 2) - 1.0


def _distance(a: Array | np.ndarray, b: Array | np.ndarray) -> Array:
    return jnp.sqrt(jnp.sum((a - b) ** 2))


def _towards(position: Array, target: Array) -> Float[Array, " 1"]:
    """Heads straight for the target."""
    east, north = target - position
    return jnp.mod(jnp.arctan2(north, east), 2 * jnp.pi)[None] / jnp.pi - 1.0


class _PointMass(Env):
    """What both tasks share: heading, speed and time limit."""

    stagger: ClassVar[bool] = True  # nothing ends an episode of a good policy but the horizon
    dt: ClassVar[float] = DT * SUBSTEPS

    horizon: int = option(200, "steps after which an episode is cut", low=1)
    speed: float = option(
        3.0,
        "of the point, in units a second; the field is 150 units wide, an action lasts 0.6 s",
        above=0,
        high=FASTEST,
    )

    def __check_init__(self):
        check_fields(self, "a point mass")

    @property
    def action(self) -> Box:
        return Box((-1.0,), (1.0,))

    def _substep(self, action: Array) -> Float[Array, " 2"]:
        heading = jnp.pi * (action[0] + 1.0)
        return self.speed * DT * jnp.stack([jnp.cos(heading), jnp.sin(heading)])


class GoalState(NamedTuple):
    """Where the mass is, where it began and where it should be."""

    position: Float[Array, " 2"]
    start: Float[Array, " 2"]
    goal: Float[Array, " 2"]


class PointMassGoal(_PointMass):
    """Point mass with one of four goals, seen near the start.

    It must remember which, and the border of the field ends the episode.
    """

    def begin(self, key: PRNGKeyArray) -> GoalState:
        start, goal = jnp.asarray(COLUMNS)[jax.random.randint(key, (2,), 0, len(COLUMNS))]
        start = jnp.stack([start, jnp.asarray(START_Y)])
        return GoalState(start, start, jnp.stack([goal, jnp.asarray(GOAL_Y)]))

    def move(
        self, inner: GoalState, elapsed: Array, action: Array, key: PRNGKeyArray
    ) -> tuple[GoalState, Array, Array]:
        # A straight line that leaves a square does not come back, so its end tells of all substeps.
        reached = inner.position + SUBSTEPS * self._substep(action)
        position = jnp.clip(reached, 0.0, FIELD)
        left = jnp.any(reached != position)
        reward = jnp.where(left, PENALTY, jnp.exp(-0.1 * _distance(position, inner.goal)))
        return inner._replace(position=position), reward, left

    def sees(self, inner: GoalState) -> Bool[Array, ""]:
        """Tells whether the policy sees the goal."""
        return _distance(inner.position, inner.start) <= GOAL_SEEN

    def views(self, inner: GoalState, elapsed: Array) -> Obs:
        position, start, goal = map(_scaled, inner)
        seen = self.sees(inner).astype(position.dtype)
        return {
            POLICY: jnp.concatenate([position, seen * goal, seen[None]]),
            CRITIC: jnp.concatenate([position, goal, seen[None], start]),
        }

    def scripted(self, inner: GoalState) -> Float[Array, " 1"]:
        """Steers as an oracle would: straight to the goal, then to and fro across it."""
        return _towards(inner.position, inner.goal)

    def render(self, state: EnvState) -> np.ndarray:
        """Draws the field from above, with the places where the goal could be."""
        inner: GoalState = state.inner
        canvas = draw.Canvas(0.0, FIELD)
        position, start, goal = map(np.asarray, inner)
        canvas.disc(start, GOAL_SEEN, draw.PALE)
        for x in COLUMNS:  # the other places where the goal could have been
            canvas.ring((x, GOAL_Y), GOAL_RADIUS, 1.0, draw.GREY)
        return _finish(canvas, position, start, goal, bool(self.sees(inner)))


class DoorState(NamedTuple):
    """Where the mass and the doors are."""

    position: Float[Array, " 2"]
    doors: Float[Array, " 2"]  # left edges, the lower door first


class PointMassDoor(_PointMass):
    """Point mass and two walls, doors seen near the start.

    It must remember where the doors are, and touching a wall ends the episode.
    """

    def begin(self, key: PRNGKeyArray) -> DoorState:
        low, high = DOOR_EDGES
        return DoorState(jnp.asarray(DOOR_START), jax.random.uniform(key, (2,), minval=low, maxval=high))

    def touches(self, inner: DoorState) -> Bool[Array, ""]:
        """Tells whether the mass touches a wall."""
        x, y = inner.position
        inside = jnp.abs(y - jnp.asarray(WALLS)) <= HALF_WALL
        free = (inner.doors + RADIUS < x) & (x < inner.doors + DOOR_WIDTH - RADIUS)
        return jnp.any(inside & ~free)

    def move(
        self, inner: DoorState, elapsed: Array, action: Array, key: PRNGKeyArray
    ) -> tuple[DoorState, Array, Array]:
        substep, touched = self._substep(action), jnp.zeros((), bool)
        for _ in range(SUBSTEPS):
            position = jnp.clip(inner.position + substep, 0.0, FIELD)
            inner = inner._replace(position=jnp.where(touched, inner.position, position))
            # Tested where the substep ends. The authors test where it began, so that a touch costs one substep later.
            touched = touched | self.touches(inner)
        closeness = 10.0 * jnp.exp(-0.03 * _distance(inner.position, jnp.asarray(DOOR_GOAL)))
        return inner, jnp.where(touched, PENALTY, closeness), touched

    def sees(self, inner: DoorState) -> Bool[Array, ""]:
        """Tells whether the policy sees the doors."""
        return _distance(inner.position, jnp.asarray(DOOR_START)) <= DOORS_SEEN

    def views(self, inner: DoorState, elapsed: Array) -> Obs:
        low, high = DOOR_EDGES
        position, doors = _scaled(inner.position), (inner.doors - low) / ((high - low) / 2) - 1.0
        seen = self.sees(inner).astype(position.dtype)
        return {
            POLICY: jnp.concatenate([position, seen * doors, seen[None]]),
            CRITIC: jnp.concatenate([position, doors, seen[None]]),
        }

    def scripted(self, inner: DoorState) -> Float[Array, " 1"]:
        """Steers as an oracle would: through the middle of both doors, to the goal, then to and fro across it."""
        target, (x, y) = jnp.asarray(DOOR_GOAL), inner.position
        for wall, door in zip(reversed(WALLS), reversed(inner.doors), strict=True):
            middle, near = door + DOOR_WIDTH / 2, wall - HALF_WALL
            # Up to the wall's near face, then straight through: no corner of the door is cut.
            waypoint = jnp.where(y < near, jnp.stack([middle, jnp.asarray(near)]), jnp.stack([x, jnp.asarray(FIELD)]))
            target = jnp.where(y <= wall + HALF_WALL, waypoint, target)
        return _towards(inner.position, target)

    def render(self, state: EnvState) -> np.ndarray:
        """Draws the field from above, with doors in colour while they are seen."""
        inner: DoorState = state.inner
        canvas = draw.Canvas(0.0, FIELD)
        canvas.disc(DOOR_START, DOORS_SEEN, draw.PALE)
        seen = bool(self.sees(inner))
        for wall, door in zip(WALLS, np.asarray(inner.doors).tolist(), strict=True):
            passage = (draw.PAPER, draw.mix(draw.PAPER, draw.GREEN, 0.6))[seen]
            ends = ((0.0, door, draw.INK), (door, door + DOOR_WIDTH, passage), (door + DOOR_WIDTH, FIELD, draw.INK))
            for left, right, colour in ends:
                canvas.rectangle((left, wall - HALF_WALL), (right, wall + HALF_WALL), colour)
        return _finish(canvas, np.asarray(inner.position), DOOR_START, DOOR_GOAL, True)


def _finish(
    canvas: draw.Canvas, position: draw.Point, start: draw.Point, goal: draw.Point, visible: bool
) -> np.ndarray:
    """Draws start, goal (hollow while the policy cannot see it), agent and the border, over what is drawn already."""
    canvas.disc(start, 2.0, draw.GREY)
    canvas.disc(goal, GOAL_RADIUS, draw.GREEN)
    if not visible:
        canvas.disc(goal, GOAL_RADIUS - 1.8, draw.PAPER)
    canvas.disc(position, 4.0, draw.PAPER)
    canvas.disc(position, 3.2, draw.BLUE)
    for corner in ((0.0, 0.0), (FIELD, FIELD)):
        for other in ((0.0, FIELD), (FIELD, 0.0)):
            canvas.line(corner, other, 2.0, draw.GREY)
    return canvas.picture()
