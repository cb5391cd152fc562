"""`s2pg COMMAND ...`: which commands there are, and what becomes of mistakes."""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Protocol

import tyro

from s2pg import __version__
from s2pg.cli.bench import Bench
from s2pg.cli.demo import Demo
from s2pg.cli.demos import Demos
from s2pg.cli.distill import Distill
from s2pg.cli.evaluate import Eval
from s2pg.cli.expert import MakeExpert
from s2pg.cli.export import Export
from s2pg.cli.listing import List
from s2pg.cli.plot import Plot
from s2pg.cli.record import Record
from s2pg.cli.report import MakeReport
from s2pg.cli.study import RunStudy
from s2pg.cli.theory import Theory
from s2pg.cli.train import Train
from s2pg.cli.watch import Watch
from s2pg.configure import compilation_cache
from s2pg.errors import DivergenceError, UserError

DESCRIPTION = """\
Policies with memory at the price of policies without.

A policy with memory draws an action and its next internal state together: (a, z') ~ pi(. | o, z).
A method is a point in the product of three axes, each chosen on its own:
  kernel       what computes a and z'                    --kernel gru | lstm | ode | cpg | ...
  memory rule  how z' learns, and from which samples     --memory s2pg | s2pg-pathwise | bptt-N | ...
  algorithm    what the update is                        ppo | trpo | sac | td3 | ddpg | ...

Start here:
  s2pg demo                                         watch four memory labels learn (minutes)
  s2pg list                                         every task, algorithm, memory rule and kernel
  s2pg train ppo --task recall --memory bptt-8      train, into runs/recall-ppo-bptt-8
  s2pg eval runs/recall-ppo-bptt-8 --video out.gif  watch what it does
  s2pg COMMAND --help                               all there is to a command\
"""
FAILED, MISTAKE, STOPPED = 1, 2, 130


class Command(Protocol):
    """A command with its options filled in."""

    computes: ClassVar[bool]  # with JAX, so that compiled code should be kept for the next time

    def __call__(self) -> int: ...


COMMANDS: dict[str, type[Command]] = {
    "train": Train, "eval": Eval, "plot": Plot, "report": MakeReport, "watch": Watch, "list": List, "bench": Bench,
    "demo": Demo, "theory": Theory, "record": Record, "demos": Demos, "expert": MakeExpert, "study": RunStudy,
    "distill": Distill, "export": Export,
}  # fmt: skip


def _laid_out(text: str) -> str:
    """The text for tyro, which joins lines that begin with a letter: a space of no width keeps them apart."""
    return "\n".join(line if line.startswith(" ") else "\u200b" + line for line in text.splitlines())


def _parser(argv: Sequence[str]) -> Any:
    """All commands as one type: described in one line each, or at length once one of them has been chosen."""
    chosen = argv[0] if argv else None
    kinds = []
    for name, cls in COMMANDS.items():
        text = inspect.getdoc(cls) or ""
        told = _laid_out(text) if name == chosen else text.partition("\n")[0]
        kinds.append(Annotated[cls, tyro.conf.subcommand(name, description=told)])
    return functools.reduce(operator.or_, kinds)


def main(args: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code: 1 failed, 2 a mistake of the user's, 130 stopped by Ctrl-C."""
    try:
        argv = sys.argv[1:] if args is None else args
        if list(argv) == ["--version"]:
            print(f"s2pg {__version__}")
            return 0
        description, config = _laid_out(DESCRIPTION), (tyro.conf.FlagCreatePairsOff,)
        command: Command = tyro.cli(_parser(argv), prog="s2pg", description=description, args=argv, config=config)
        if command.computes:
            compilation_cache()
        return command()
    except UserError as error:
        return _say(error, MISTAKE)
    except OSError as error:  # a file that cannot be written, a full disk: a traceback would tell nobody more
        return _say(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", MISTAKE)
    except DivergenceError as error:
        return _say(error, FAILED)
    except KeyboardInterrupt as stopped:
        return _say(stopped if stopped.args else "stopped", STOPPED)


def _say(what: object, code: int) -> int:
    print("s2pg:", " ".join(str(what).split()), file=sys.stderr)
    return code
