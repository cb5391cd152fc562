"""A user's mistake, told in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user can mend; the command line prints it as one line and exits with 2."""


class OutOfMemoryError(UserError):
    """The device has no memory left: others may share it, so that another time may do."""


class DivergenceError(Exception):
    """Training produced a number that is not finite; the last good checkpoint stays."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """`unknown task 'recal'; did you mean recall?`, or the whole list where nothing is near."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
    return UserError(f"unknown {kind} '{name}'; {hint}")
