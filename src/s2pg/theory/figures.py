"""The two figures of the theory, drawn from what `studies` measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from s2pg.io.atomic import replacing
from s2pg.io.figures import figure_class

# Okabe and Ito's palette.
COLOURS = {"bptt": "#0072B2", "s2pg": "#D55E00", "pathwise": "#009E73"}
CUT_COLOURS = ("#9ecae1", "#6baed6", "#3f8fc5", "#1f6fb0", "#08519c")  # the longer the cut, the closer to full BPTT
NAMES = {"bptt": "BPTT", "s2pg": "S2PG", "pathwise": "pathwise"}
MAPS = {
    "fold": "triangle wave, slope {z:g}",
    "sine": "chaos: $\\eta=\\sin({z:g}\\,z+\\ldots)$",
    "rotation": "rotation, $|W|_F={z:g}$: no explosion",
}
GROWTH = {"linear": "linearly", "polynomial": "polynomially", "exponential": "exponentially"}


def figure(out: Path, columns: int, rows: int, size: tuple[float, float]) -> Any:
    """An empty figure; what cannot be drawn is said before anything is measured."""
    drawn = figure_class(out)(figsize=size, layout="constrained", dpi=150)
    for panel in np.ravel(drawn.subplots(rows, columns)):
        panel.grid(color="#dddddd", linewidth=0.7)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    return drawn


def _save(drawn: Any, out: Path) -> None:
    handles: dict[str, Any] = {}
    for panel in drawn.axes:
        for handle, text in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(text, handle)
    columns = len(handles) if len(handles) <= 6 else 4
    drawn.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns, frameon=False)
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as file:
        drawn.savefig(file, format=out.suffix[1:].lower())


def _note(panel: Any, lines: list[tuple[str, str]], corner: tuple[float, float] = (0.03, 0.97)) -> None:
    for i, (text, colour) in enumerate(lines):
        panel.annotate(
            text, corner, xycoords="axes fraction", xytext=(0, -12 * i), textcoords="offset points", va="top",
            fontsize=8.5, color=colour, bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
        )  # fmt: skip


def _law(case: dict[str, Any], row: dict[str, Any]) -> str:
    """How the measured variance grows, in words short enough for a corner."""
    if "rate" not in row:
        return ""
    exploding = row["estimator"] == "bptt" and case["lyapunov"] > 1e-3
    grown = f"$e^{{{row['rate']:.3f}\\,T}}$" if exploding else f"$T^{{\\,{row['power']:.2f}}}$"
    return f"{NAMES[row['estimator']]} grows like {grown}"


def _measured(panel: Any, x: Any, row: dict[str, Any], scale: np.ndarray) -> None:
    """Mean over seeds with the range of seeds, and the bound, dashed."""
    colour, name = COLOURS[row["estimator"]], NAMES[row["estimator"]]
    middle, low, high, bound = (
        np.asarray(row[key], float) / scale for key in ("variance", "variance_low", "variance_high", "bound")
    )
    panel.plot(x, middle, color=colour, marker="o", markersize=4, linewidth=1.8, label=f"{name} measured")
    panel.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
    panel.plot(x, bound, color=colour, linestyle=(0, (4, 2)), linewidth=1.4, label=f"{name} bound")


def variance(report: dict[str, Any], out: Path) -> None:
    """Variance and bound against length in every case, and against the noise of z."""
    drawn = figure(out, 3, 2, (12.5, 7.4))
    panels = drawn.axes
    for panel, case in zip(panels, report["cases"], strict=False):
        for row in case["rows"]:
            _measured(panel, row["lengths"], row, np.asarray(row["prefactor"]))
        side = "<1" if case["z"] < 1 else ">1" if case["z"] > 1 else ""
        panel.set_title(f"$Z={case['z']:g}{side}$: bound grows {GROWTH[case['bound_grows']]}", fontsize=10.5)
        told = [(MAPS[case["map"]].format(z=case["z"]), "#444444")]
        told.append((f"Lyapunov exponent {case['lyapunov']:.3f}", "#444444"))
        _note(panel, told + [(_law(case, row), COLOURS[row["estimator"]]) for row in case["rows"]])
        panel.set_yscale("log")
        panel.set_xlabel("trajectory length $T$")
        panel.set_xlim(left=0)
    _share_range(panels[:3])
    _noise(panels[-1], report["noise"])
    for panel in (panels[0], panels[3]):
        panel.set_ylabel("variance / prefactor")
    _save(drawn, out)


def _share_range(panels: Any) -> None:
    """One vertical scale for panels side by side, so that an explosion looks like one."""
    limits = [panel.get_ylim() for panel in panels]
    for panel in panels:
        panel.set_ylim(min(low for low, _ in limits), max(high for _, high in limits) * 10)


def _noise(panel: Any, rows: list[dict[str, Any]]) -> None:
    """Variance against the standard deviation of z, at the middle length."""
    at = len(rows[0]["lengths"]) // 2
    for label in ("s2pg", "pathwise"):
        mine = [row for row in rows if row["estimator"] == label]
        lines = {key: [row[key][at] for row in mine] for key in ("variance", "variance_low", "variance_high", "bound")}
        scale = np.array([row["prefactor"][at] for row in mine])
        _measured(panel, [row["state_std"] for row in mine], {"estimator": label} | lines, scale)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("standard deviation of the noise of $z$")
    panel.set_title(f"noise of $z$, at $Z=0.8$, $T={rows[0]['lengths'][at]}$", fontsize=10.5)


def bias(report: dict[str, Any], out: Path) -> None:
    """Relative bias against where the unroll is cut, and against trajectory length."""
    drawn = figure(out, 2, 1, (11.0, 4.6))
    by_cut, by_length = drawn.axes
    rows = report["rows"]
    lengths, cuts = sorted({row["length"] for row in rows}), sorted({row["cut"] for row in rows if row["cut"]})
    shades = dict(zip(cuts, CUT_COLOURS[-len(cuts) :], strict=False))
    # Side by side, or they would hide each other at 0.
    for label, colour, shift in (("s2pg", None, 0.93), ("bptt", "#000000", 1.0), ("pathwise", None, 1.07)):
        mine = [row for row in rows if row["estimator"] == label]
        x = [shift * row["length"] for row in mine]
        _points(by_length, x, mine, colour or COLOURS[label], f"{NAMES[label]}, whole")
    for cut in cuts:
        mine = [row for row in rows if row["cut"] == cut]
        x, expected = [row["length"] for row in mine], [row["expected_bias"] for row in mine]
        by_length.plot(x, expected, color=shades[cut], linewidth=1.4)
        _points(by_length, x, mine, shades[cut], f"BPTT cut every {cut}")
    greys = np.linspace(0.72, 0.1, len(lengths))
    for grey, length in zip(greys, lengths, strict=True):
        mine = [row for row in rows if row["cut"] and row["length"] == length]
        x = [row["cut"] for row in mine]
        by_cut.plot(x, [row["expected_bias"] for row in mine], color=str(grey), linewidth=1.4)
        by_cut.plot(x, [row["bias"] for row in mine], "o", color=str(grey), markersize=4.5)
        by_cut.annotate(f"$T={length}$", (x[0], mine[0]["expected_bias"]), xytext=(-6, 0), textcoords="offset points",
                        ha="right", va="center", fontsize=8.5, color=str(grey))  # fmt: skip
    for panel, name, ticks in ((by_cut, "steps between cuts", cuts), (by_length, "trajectory length $T$", lengths)):
        panel.set_xscale("log", base=2)
        panel.set_xticks(ticks, [str(tick) for tick in ticks])
        panel.set_xlabel(name)
    by_cut.set_xlim(left=cuts[0] / 1.7)
    by_cut.set_ylabel("relative bias  $|E\\hat g-\\nabla J|\\,/\\,|\\nabla J|$")
    by_cut.set_title("truncated BPTT: lines exact, dots measured", fontsize=10.5)
    by_length.set_title("all estimators; bars: one standard error of the gradient", fontsize=10.5)
    _save(drawn, out)


def _points(panel: Any, x: list[Any], rows: list[dict[str, Any]], colour: str, label: str) -> None:
    middle, error = (np.array([row[key] for row in rows]) for key in ("bias", "noise_floor"))
    down = np.minimum(error, middle)  # a norm is not negative
    style = {"fmt": "o", "markersize": 4.5, "capsize": 2, "linewidth": 1.1}
    panel.errorbar(x, middle, [down, error], color=colour, label=label, **style)
