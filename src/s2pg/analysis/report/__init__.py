"""Reports: one page that compares runs, as a file or live."""

from s2pg.analysis.report.build import build, state
from s2pg.analysis.report.live import Server
from s2pg.analysis.report.page import Film, Report, render

__all__ = ["Film", "Report", "Server", "build", "render", "state"]
