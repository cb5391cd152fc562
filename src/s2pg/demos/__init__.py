"""Demonstrations of an expert: as data, and as files of several layouts (docs/demos.md)."""

from s2pg.clip import Clip
from s2pg.demos.convert import expert
from s2pg.demos.data import Demonstrations
from s2pg.demos.files import layout, read, read_clips, write

__all__ = ["Clip", "Demonstrations", "expert", "layout", "read", "read_clips", "write"]
