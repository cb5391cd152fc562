"""A report as one HTML page that asks nothing of the network: style, script, charts and films are inside."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path

from s2pg.analysis.comparison import Comparison
from s2pg.analysis.plots import NAMES
from s2pg.analysis.report import cells, charts, tables, words
from s2pg.analysis.report.numbers import count
from s2pg.analysis.report.svg import swatch
from s2pg.analysis.scale import Scale
from s2pg.analysis.scores import DIMENSIONS, dimensions

BUSY = 4  # more labels than this, and bands are fainter
COLOURS = 7  # of the palette; further labels have them again with dashes
DASHES = ("", "6 3", "2 3", "8 3 2 3")


@dataclass(frozen=True)
class Film:
    """A policy at work, as an animated picture."""

    task: str
    label: str
    seed: int
    gif: bytes


@dataclass(frozen=True)
class Report:
    """All that a page shows."""

    title: str
    found: Comparison
    scales: Mapping[str, Scale]
    where: Mapping[Path, str]  # run folders as the page names them
    seconds: bool = True
    films: Sequence[Film] = ()
    about: str = ""


def render(report: Report, live: str = "") -> str:
    """The page; with `live`, the version that it shows, it looks for newer ones at its own address."""
    scripts = [_asset("script.js"), _asset("live.js")] if live else [_asset("script.js")]
    policy = "; ".join([
        "default-src 'none'", "img-src data:", "style-src 'unsafe-inline'", "base-uri 'none'", "form-action 'none'",
        f"script-src {' '.join(map(_fingerprint, scripts))}", *(["connect-src 'self'"] if live else []),
    ])  # fmt: skip
    found = report.found
    runs = count(sum(len(cell.scores) for cell in found.cells.values()), "training run")
    sub = f"{count(len(found.labels), 'label')} on {count(len(found.tasks), 'task')}, {runs}"
    made = f"{'Live' if live else 'Made'} {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by s2pg {_version()}"
    body = "".join(_section(*each) for each in _sections(report))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(report.title)}</title>
<link rel="icon" href="data:,">
<style>{_asset("style.css")}</style>
<style id="labels">{_label_styles(len(found.labels))}</style>
</head>
<body>
<header><div><h1>{escape(report.title)}</h1><p id="sub" data-version="{escape(live)}">{sub}. {made}.</p></div>
<button id="theme" type="button" aria-label="Switch between light and dark">Dark</button></header>
{_legend(found)}
<main{' class="busy"' if len(found.labels) > BUSY else ""}>{body}</main>
<div id="tip" hidden></div>
{"".join(f"<script>{script}</script>" for script in scripts)}
</body>
</html>
"""


def _sections(report: Report) -> list[tuple[str, str, str]]:
    """(id, title, content) of all that there is something to say about."""
    found, scales = report.found, report.scales
    if not found.cells:
        return [("summary", "Summary", "<p>No run has returns yet.</p>"), _failures(report)]
    value = NAMES.get(found.value, found.value)
    lead, *rest = words.summary(found, scales)
    told = {task: words.on_task(found.on(task), scales[task], report.seconds) for task in found.tasks}
    tasks = "".join(f"<li>{_marked(f'`{task}`: {text}')}</li>" for task, text in told.items())
    summary = f"<p class=note>{escape(report.about)}</p>" if report.about else ""
    summary += f'<p class="lead">{_marked(lead)}</p>' + "".join(f"<p>{_marked(text)}</p>" for text in rest)
    layout = "two" if len(found.tasks) <= words.FEW else "stacked"
    made = [("summary", "Summary", f'<div class="{layout}"><div>{summary}</div><ul class="tasks">{tasks}</ul></div>')]
    note = (
        f"Interquartile mean over seeds of the last {escape(value)}, with its 95 % bootstrap interval. <i>Over"
        " training</i> is the mean height of the curve over steps. The target is nine tenths of a task's scale; it"
        " counts when the median seed reaches it."
    )
    made.append(("returns", "Returns", f"<p class=note>{note}</p>{tables.returns(found, scales, report.seconds)}"))
    note = "Lines are interquartile means over seeds, bands their 95 % bootstrap intervals. Click a label to hide it."
    drawn = "".join(charts.curves(found, task, report.seconds) for task in found.tasks)
    made.append(("curves", "Curves", f"<p class=note>{note}</p>{drawn}"))
    made += _over_tasks(report)
    if report.films:
        note = "One episode of a trained policy; beneath it its internal state z, a row for each unit, over time."
        shown = "".join(map(_film, report.films))
        made.append(("films", "Films", f'<p class=note>{note}</p><div class="films">{shown}</div>'))
    made.append(_failures(report))
    made.append(("settings", "Settings and provenance", cells.settings(found, report.where)))
    return made


def _failures(report: Report) -> tuple[str, str, str]:
    lines = "".join(f"<li>{_marked(line)}</li>" for line in cells.failures(report.found))
    return "failures", "What failed", f"<ul>{lines}</ul>" if lines else "<p>Nothing: every cell is complete.</p>"


def _over_tasks(report: Report) -> list[tuple[str, str, str]]:
    """Aggregates, profiles and improvements, over all tasks that labels share and over the paper's two groups."""
    found = report.found
    shared, _ = found.block(found.tasks)
    groups = {"": shared} | {
        group: [task for task in shared if dimensions(task.partition(",")[0]) == group] for group in DIMENSIONS
    }
    if not all(groups.values()):
        groups = {"": shared}
    numbers, parts = tables.names(found), []
    for group, wanted in groups.items():
        tasks, labels = found.block(wanted)
        if len(labels) < 2:
            continue
        scores = {label: [report.scales[task](found.cells[task, label]) for task in tasks] for label in labels}
        parts.append(f"<h3>{group.capitalize()} tasks</h3>" if group else "")
        parts.append(f"<p class=note>{', '.join(map(escape, tasks))}</p>" if group else "")
        parts.append(tables.aggregates(scores, numbers))
        if not group:
            better = "Chance that a seed of the row beats one of the column on the same task; bold if surely not 1/2."
            pair = f"<div><h4>Performance profile</h4>{charts.profiles(scores, numbers)}</div>"
            pair += f"<div><h4>Improvement</h4>{tables.improvements(scores, numbers)}<p class=note>{better}</p></div>"
            parts.append(f'<div class="charts">{pair}</div>')
    if not parts:
        return []
    rules = "; ".join(f"{task}: {_scale(report.scales[task])}" for task in shared)
    note = f"<p class=note>Normalised returns. {escape(rules)}.</p>"
    return [("aggregates", "Over all tasks" if len(shared) > 1 else "Normalised", note + "".join(parts))]


def _scale(scale: Scale) -> str:
    return f"{scale.floor:,.4g} is 0 and {scale.ceiling:,.4g} is 1 ({scale.source})"


def _section(name: str, title: str, content: str) -> str:
    return f'<section id="{name}"><h2>{title}</h2>{content}</section>'


def _legend(found: Comparison) -> str:
    buttons = "".join(
        f'<button type="button" data-toggle="{i}" aria-pressed="true">{swatch(i)}{escape(label)}</button>'
        for i, label in enumerate(found.labels)
    )
    kind = "legend" if len(found.labels) <= 16 else "legend long"
    return f'<nav class="{kind}" aria-label="Labels: click to hide">{buttons}</nav>'


def _label_styles(labels: int) -> str:
    """The colour of each label, and its dashes."""
    rules = []
    for i in range(labels):
        dash = DASHES[i // COLOURS % len(DASHES)]
        rules.append(f".s{i}{{--c:var(--p{i % COLOURS});{f'stroke-dasharray:{dash};' if dash else ''}}}")
    return "".join(rules)


def _film(film: Film) -> str:
    data = base64.b64encode(film.gif).decode()
    text = f"{escape(film.task)}: {escape(film.label)}, seed {film.seed}"
    return f'<figure><img alt="{text}" src="data:image/gif;base64,{data}"><figcaption>{text}</figcaption></figure>'


def _marked(text: str) -> str:
    """Text for a page; names between backticks stand out."""

    def strong(found: re.Match[str]) -> str:
        kind = ' class="name"' if len(found[1]) <= 24 else ""  # short ones are not broken at their hyphens
        return f"<b{kind}>{found[1]}</b>"

    return re.sub(r"`([^`]*)`", strong, escape(text)).replace(" %", "\N{NO-BREAK SPACE}%")


def _fingerprint(script: str) -> str:
    """The one script that may run, by its hash: text that found its way into the page stays text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    return files("s2pg.analysis.report").joinpath(name).read_text()


def _version() -> str:
    try:
        return version("s2pg")
    except PackageNotFoundError:  # a checkout that was not installed
        return "(not installed)"
