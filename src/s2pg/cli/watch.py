"""`s2pg watch`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from tyro.conf import arg

from s2pg.analysis.report import Server, build, render, state
from s2pg.cli.report import Folders, Normalise, rules
from s2pg.errors import UserError
from s2pg.io.folder import READABLE


@dataclass(frozen=True)
class Watch:
    """Watch runs in a browser: the page of `s2pg report`, kept up to date while they train.

    Serves it on this machine alone (127.0.0.1), at an address that holds a token. Ctrl-C ends it.

    Examples:
      s2pg watch runs/recall-ppo-s2pg
      s2pg watch studies/memory --port 8765
    """

    computes: ClassVar[bool] = False

    folders: Folders
    """run folders, or folders with runs below them"""
    port: Annotated[int, arg(metavar="N", help_behavior_hint="(default: any that is free)")] = 0
    """port to serve at"""
    value: Annotated[str, arg(metavar="NAME")] = "eval_return"
    """what to compare: eval_return, eval_return_stochastic, eval_length or train_return"""
    normalise: Normalise = None
    """what counts as 0 and as 1 on every task: returns, or memory labels such as none and oracle"""
    seconds: bool = True
    """show times too; leave out where runs shared a machine"""

    def __call__(self) -> int:
        if not self.folders:
            raise UserError("no folder was named")
        if not 0 <= self.port < 2**16:
            raise UserError(f"--port must lie between 0 and 65535, not {self.port}")

        def page(version: str) -> str:
            report = build(self.folders, READABLE, self.value, self.seconds, rules(self.normalise))
            return render(report, live=version)

        with Server(lambda: state(self.folders), page, self.port) as server:
            server.current()  # what cannot be shown is said at once
            print(f"watching at {server.address}\nCtrl-C ends it", flush=True)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                return 0
        return 0
