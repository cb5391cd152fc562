"""The command line, one file per command."""

from s2pg.cli.main import main

__all__ = ["main"]
