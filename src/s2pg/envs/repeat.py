"""Two tasks of POPGym (Morad et al., ICLR 2023) rewritten for the device: name a card's suit that was shown before.

A shuffled deck is shown card by card, suits alone. A right answer earns 1 / n and a wrong one loses as much, n being
the number of answers that count: a perfect episode is worth 1, blind guessing -1/2.
"""

from __future__ import annotations

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from s2pg.envs import draw
from s2pg.envs.base import Env, EnvState
from s2pg.errors import UserError
from s2pg.options import check_fields, option
from s2pg.types import CRITIC, POLICY, Discrete, Obs

SUITS, CARDS = 4, 52
COLOURS = (draw.BLUE, draw.ORANGE, draw.GREEN, draw.RED)

Deck = Int[Array, " cards"]


def shuffled(decks: int, key: PRNGKeyArray) -> Deck:
    """The suits of so many decks, in any order."""
    return jax.random.permutation(key, jnp.tile(jnp.arange(SUITS), decks * CARDS // SUITS))


def remaining(deck: Deck, elapsed: Array) -> Array:
    """The share of each suit that has not been shown yet, which the critic may know."""
    shown = jnp.arange(deck.shape[0]) <= elapsed
    seen = jnp.sum(jnp.where(shown[:, None], jax.nn.one_hot(deck, SUITS), 0.0), axis=0)
    return 1.0 - seen * SUITS / deck.shape[0]


def picture(deck: np.ndarray, elapsed: int, asked: int, previous: np.ndarray) -> np.ndarray:
    """Draws the cards shown so far in the colours of their suits, a ring about the one asked for.

    The ring has the colour of the latest answer.
    """
    columns = math.ceil(math.sqrt(len(deck)))
    canvas, answered = draw.Canvas(-0.1, columns + 0.1), bool(np.any(previous))
    for card, suit in enumerate(deck):
        row, column = divmod(card, columns)
        centre = column + 0.5, columns - row - 0.5
        if card == asked:
            canvas.disc(centre, 0.5, COLOURS[int(np.argmax(previous))] if answered else draw.GREY)
            canvas.disc(centre, 0.42, draw.PAPER)
        canvas.disc(centre, 0.32, COLOURS[int(suit)] if card <= elapsed else draw.PALE)
    return canvas.picture()


class CardTask(Env):
    """Names suits while a deck is shown card by card."""

    shows_action: ClassVar[bool] = False

    decks: int = option(1, "of 52 cards: an episode has one step less than it has cards", low=1)

    @property
    def horizon(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The last card is shown when all is over."""
        return self.decks * CARDS - 1

    @property
    def action(self) -> Discrete:
        return Discrete(SUITS)

    def begin(self, key: PRNGKeyArray) -> Deck:
        return shuffled(self.decks, key)


class RepeatPrevious(CardTask):
    """Name the suit of the card shown k - 1 steps ago.

    That is asked at every step; k = 1 is the card in view. The critic sees the last k cards, and how many of each
    suit are left."""

    k: int = option(4, "which card: 1 is the one in view, 4 the one of three steps ago", low=1)

    def __check_init__(self):
        check_fields(self, "repeat-previous")
        if self.k >= self.decks * CARDS:
            raise UserError(f"k of repeat-previous must be less than the {self.decks * CARDS} cards, not {self.k}")

    def move(self, inner: Deck, elapsed: Array, action: Array, key: PRNGKeyArray) -> tuple[Deck, Array, Array]:
        asked = elapsed + 1 - self.k
        right = jnp.where(action == inner[jnp.maximum(asked, 0)], 1.0, -1.0)
        reward = jnp.where(asked >= 0, right / (self.decks * CARDS - self.k), 0.0)
        return inner, reward, elapsed + 1 >= self.horizon

    def views(self, inner: Deck, elapsed: Array) -> Obs:
        when = elapsed - jnp.arange(self.k)
        last = jnp.where((when >= 0)[:, None], jax.nn.one_hot(inner[jnp.maximum(when, 0)], SUITS), 0.0)
        return {POLICY: last[0], CRITIC: jnp.concatenate([last.reshape(-1), remaining(inner, elapsed)])}

    def scripted(self, inner: Deck, elapsed: Array) -> Array:
        """Answers as an oracle would."""
        return inner[jnp.maximum(elapsed + 1 - self.k, 0)]

    def render(self, state: EnvState) -> np.ndarray:
        """Draws the cards shown so far, a ring in the colour of the latest answer about the one asked for."""
        elapsed = int(state.elapsed)
        return picture(np.asarray(state.inner), elapsed, elapsed + 1 - self.k, np.asarray(state.previous))


class RepeatFirst(CardTask):
    """Name the suit of the first card, at every step.

    Nothing but the start of the episode tells which card was the first. The critic sees it all along."""

    def __check_init__(self):
        check_fields(self, "repeat-first")

    def move(self, inner: Deck, elapsed: Array, action: Array, key: PRNGKeyArray) -> tuple[Deck, Array, Array]:
        reward = jnp.where(action == inner[0], 1.0, -1.0) / self.horizon
        return inner, reward, elapsed + 1 >= self.horizon

    def views(self, inner: Deck, elapsed: Array) -> Obs:
        now, first = (jax.nn.one_hot(inner[at], SUITS) for at in (elapsed, 0))
        return {POLICY: now, CRITIC: jnp.concatenate([first, now, remaining(inner, elapsed)])}

    def scripted(self, inner: Deck, elapsed: Array) -> Array:
        """Answers as an oracle would."""
        return inner[0]

    def render(self, state: EnvState) -> np.ndarray:
        """Draws the cards shown so far, a ring in the colour of the latest answer about the first."""
        return picture(np.asarray(state.inner), int(state.elapsed), 0, np.asarray(state.previous))
