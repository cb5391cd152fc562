"""`s2pg list`."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional, arg

from s2pg.algorithms import ALGORITHMS, traits
from s2pg.config import hyper, labels, presets
from s2pg.config.presets.base import Preset, Situation, rank
from s2pg.envs.tasks import TASKS, about, descriptions, prefix_of, task_settings
from s2pg.errors import unknown
from s2pg.kernels import KERNELS
from s2pg.options import Setting


@dataclass(frozen=True)
class List:
    """List tasks, algorithms, memory labels and kernels; with a name, all there is to it.

    Examples:
      s2pg list
      s2pg list recall
      s2pg list ppo
    """

    computes: ClassVar[bool] = False

    name: Annotated[Positional[str | None], arg(metavar="[NAME]", help_behavior_hint="(default: all)")] = None
    """a task, an algorithm, a memory label or a kernel"""

    def __call__(self) -> int:
        console = Console()
        for part in _everything() if self.name is None else _one(self.name):
            console.print(part)
        return 0


def _short(cls: type) -> str:
    return (inspect.getdoc(cls) or "").partition("\n")[0]


def _long(cls: type) -> str:
    """What the file of a class of ours says, with its formulas; of somebody else's class, its docstring."""
    own = cls.__module__.startswith("s2pg.")
    return inspect.cleandoc((sys.modules[cls.__module__].__doc__ if own else cls.__doc__) or "")


def _flowing(text: str) -> str:
    """Joins the lines of each paragraph, so that it fits any width; formulas, which are indented, stay."""
    parts = text.split("\n\n")
    return "\n\n".join(part if re.search(r"^ ", part, re.MULTILINE) else part.replace("\n", " ") for part in parts)


def _table(title: str, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> Group:
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    *left, last = columns
    for name in left:
        shown.add_column(name, no_wrap=True)
    shown.add_column(last)
    for row in rows:
        shown.add_row(*(Text(str(cell)) for cell in row))  # as Text: brackets in formulas are no markup
    return Group(Text(title, "bold"), shown)


def _settings(title: str, settings: Mapping[str, Setting], defaults: Mapping[str, Any]) -> Group:
    def default(name: str, setting: Setting) -> Any:
        if setting.option.said is not None:
            return setting.option.said
        return defaults.get(name, "" if setting.required else setting.default)

    rows = [(name, default(name, each), each.option.help) for name, each in settings.items()]
    return _table(title, ("name", "default", "what it is"), rows)


def _presets(found: Iterable[tuple[str, Preset]]) -> Iterable[Group]:
    rows = [
        (where, " ".join(preset.match.values()) or "all", " ".join(f"{k}={v}" for k, v in preset.values.items()))
        for where, preset in found
    ]
    if rows:
        yield _table("presets, the more specific one wins", ("algorithm", "for", "what they set"), rows)


def _everything() -> Iterable[Group]:
    columns = ("name", "what it is")
    yield _table("tasks (--task)", columns, descriptions().items())
    yield _table("algorithms", columns, [(name, _short(entry.cls)) for name, entry in ALGORITHMS.items()])
    yield _table("memory (--memory)", columns, [(name, label.text) for name, label in labels.LABELS.items()])
    yield _table("kernels (--kernel)", columns, [(name, _short(cls)) for name, cls in KERNELS.items()])
    yield Group(Text("s2pg list NAME shows all there is to one of them."))


def _one(name: str) -> Iterable[Group]:
    if name in ALGORITHMS:
        yield from _algorithm(name)
    elif name in TASKS or prefix_of(name):
        yield from _task(name)
    elif name in KERNELS:
        yield from _kernel(name)
    else:
        yield _label(name)


def _algorithm(name: str) -> Iterable[Group]:
    entry = ALGORITHMS[name]
    yield Group(Text(name, "bold"), Text(_flowing(_long(entry.cls)) + "\n"))
    known = hyper.settings(name, "gru")  # which has no options of its own
    # Those that depend on the task have no default; whole episodes have as many steps as it says.
    steps = {"steps": "the horizon"} if traits(name).whole_episodes else {}
    preset = presets.values(name, Situation(""))
    yield _settings("hyper-parameters (--hyper)", known, steps | preset.hyper)
    if preset.critic == "critic":
        yield Group(Text("Its critic reads the full state unless --critic policy is given.\n"))
    yield from _presets((name, each) for each in presets.of_algorithm(name) if each.match)


def _task(name: str) -> Iterable[Group]:
    prefix = prefix_of(name)
    yield Group(Text(name, "bold"), Text(_flowing(about(name)) + "\n"))
    yield _settings("options (--set)", task_settings(name), {})
    places = [Situation(f"{prefix}ID" if prefix else name, backend) for backend in (None, "gymnasium", "mjx", "warp")]
    yield from _presets(
        (algorithm, each)
        for algorithm, given in presets.PRESETS.items()
        for each in given
        if "task" in each.match and any(_matches(each, place) for place in places)
    )


def _matches(preset: Preset, place: Situation) -> bool:
    """Whether a preset holds at a place under some label and kernel."""
    match = preset.match
    return rank(preset, place._replace(label=match.get("label", ""), kernel=match.get("kernel", ""))) is not None


def _kernel(name: str) -> Iterable[Group]:
    yield Group(Text(name, "bold"), Text(_flowing(_long(KERNELS[name])) + "\n"))
    if own := hyper.kernel_settings(name):
        yield _settings("its own hyper-parameters (--hyper)", own, {})
    given = {"": presets.common.PRESETS, **presets.PRESETS}
    yield from _presets(
        (algorithm or "all", each) for algorithm, some in given.items() for each in some
        if each.match.get("kernel") == name
    )  # fmt: skip


def _label(name: str) -> Group:
    if name in labels.LABELS:
        label = labels.LABELS[name]
    elif name.startswith(tuple(pattern.partition("-")[0] for pattern in labels.LABELS)):
        label = labels.parse(name).label
    else:
        raise unknown("name", name, [*TASKS, *ALGORITHMS, *KERNELS, *labels.LABELS])
    return Group(Text(name, "bold"), Text(label.details))
