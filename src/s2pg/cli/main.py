"""`s2pg COMMAND ...`: which commands there are, and what becomes of mistakes."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import operator
import sys
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol

import tyro

from s2pg import __version__
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


class Entry(NamedTuple):
    """Where a command is, which is imported when it is chosen, and the first line of what its class says of it."""

    module: str
    name: str
    line: str


COMMANDS: dict[str, Entry] = {
    "train": Entry(
        "train", "Train", "Train a policy: one algorithm on one task under one memory rule, for some seeds."
    ),
    "eval": Entry("evaluate", "Eval", "Evaluate the policies of a run, seed by seed, and film them."),
    "plot": Entry("plot", "Plot", "Compare runs: curves over steps and over seconds, and a table of where they ended."),
    "report": Entry(
        "report",
        "MakeReport",
        "Compare runs in one page: who is ahead and how sure that is, curves, profiles, settings.",
    ),
    "watch": Entry(
        "watch", "Watch", "Watch runs in a browser: the page of `s2pg report`, kept up to date while they train."
    ),
    "list": Entry(
        "listing", "List", "List tasks, algorithms, memory labels and kernels; with a name, all there is to it."
    ),
    "bench": Entry("bench", "Bench", "Measure speed on this machine: all labels in one alternating run."),
    "demo": Entry("demo", "Demo", "Watch memory being learned: PPO on recall, four memory labels side by side."),
    "theory": Entry(
        "theory", "Theory", "Draw the theory: variance of gradient estimators with their bounds, bias of truncation."
    ),
    "record": Entry(
        "record",
        "Record",
        "Record demonstrations: whole episodes of a trained policy, into a file that imitation learns from.",
    ),
    "demos": Entry(
        "demos", "Demos", "Look into a file of demonstrations: what it holds, and a picture of its first episodes."
    ),
    "expert": Entry(
        "expert",
        "MakeExpert",
        "Make an expert: train a policy that sees everything to follow a motion, and record its episodes.",
    ),
    "study": Entry(
        "study", "RunStudy", "Train a grid of runs that a file describes: the same command starts, goes on and reports."
    ),
    "distill": Entry(
        "distill", "Distill", "Teach what a run can do to a policy with memory, which may see less than its teacher."
    ),
    "export": Entry("export", "Export", "Export a policy as one file that a robot runs, without JAX: ONNX."),
}


def load(entry: Entry) -> Any:
    """The class of a command."""
    return getattr(importlib.import_module(f"s2pg.cli.{entry.module}"), entry.name)


def _laid_out(text: str) -> str:
    """The text for tyro, which joins lines that begin with a letter: a space of no width keeps them apart."""
    return "\n".join(line if line.startswith(" ") else "\u200b" + line for line in text.splitlines())


def _parser(argv: Sequence[str]) -> Any:
    """All commands as one type: described in one line each, or at length once one of them has been chosen."""
    chosen = argv[0] if argv else None
    kinds = []
    for name, entry in COMMANDS.items():
        # The others need not be imported to be told apart from it.
        cls = load(entry) if name == chosen else dataclasses.make_dataclass(entry.name, [])
        told = _laid_out(inspect.getdoc(cls) or "") if name == chosen else entry.line
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
