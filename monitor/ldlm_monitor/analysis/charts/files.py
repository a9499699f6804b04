"""Charts as a file, SVG or PNG."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ldlm_monitor.analysis.charts.chart import Figure, axis_of, stretches
from ldlm_monitor.analysis.charts.svg import APART, GUTTER, HEIGHT, STYLE, svg
from ldlm_monitor.model.errors import UsageError
from ldlm_monitor.text.sanitize import plain

WIDTH = 860
"""Pixels; a page in portrait at 96 dpi, with room for the axis."""
_MARGIN = 16
_LEGEND = 110
"""Characters of all names, at about seven pixels each in `WIDTH`."""
_COLORS = ("#0072b2", "#b85c00", "#007a5a", "#a0437a", "#7a6200")
SUFFIXES = (".svg", ".png")


def check(path: Path, where: str) -> None:
    """Raises `UsageError` where no chart can be written under that name."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(
            f'cannot draw as "{path.suffix}"',
            where=f"{where} {path}",
            remedy="end the name in .svg or .png",
        )


def write(charts: Sequence[Figure], path: Path, where: str) -> None:
    """The charts below each other, by the name's ending. `where` is the flag that named it.

    Raises `UsageError` for a place that cannot be written, and for PNG without matplotlib.
    """
    try:
        if path.suffix.lower() == ".svg":
            path.write_text(page(charts), encoding="utf-8")
        else:
            _write_png(charts, path, where)
    except OSError as error:
        raise UsageError(
            f"cannot be written ({error.strerror})",
            where=f"{where} {path}",
            remedy="name a file in a folder that you may write to",
        ) from error


def page(charts: Sequence[Figure]) -> str:
    """One SVG document that any browser shows, light or dark."""
    height = len(charts) * (HEIGHT + _MARGIN) + _MARGIN
    inner = "".join(
        svg(chart, y=_MARGIN + index * (HEIGHT + _MARGIN), legend=_LEGEND)
        for index, chart in enumerate(charts)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" width="{WIDTH}" '
        f'height="{height}" viewBox="0 0 {WIDTH} {height}"><style>{STYLE}</style>'
        '<rect width="100%" height="100%" style="fill:var(--ground)"/>'
        f'<svg x="{_MARGIN + GUTTER}" width="{WIDTH - 2 * _MARGIN - GUTTER}" overflow="visible">'
        f"{inner}</svg></svg>\n"
    )


def _write_png(charts: Sequence[Figure], path: Path, where: str) -> None:
    try:
        figures: Any = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise UsageError(
            "matplotlib is not installed",
            where=f"{where} {path}",
            remedy="pip install 'ldlm-monitor[plots]', or end the name in .svg",
        ) from error
    figure = figures.Figure(figsize=(9, 2.6 * len(charts)), dpi=130, layout="constrained")
    for axes, chart in zip(figure.subplots(len(charts), squeeze=False)[:, 0], charts, strict=True):
        _draw(axes, chart)
    figure.savefig(path)


def _draw(axes: Any, chart: Figure) -> None:
    span = axis_of(value for line in chart.lines for value in (*line.lows, *line.highs))
    unit = f" [{chart.unit}]" if chart.unit else ""
    axes.set_title(plain(chart.title) + unit, loc="left", fontsize=10, fontweight="bold")
    axes.set_yscale("log" if span.logarithmic else "linear")
    places = [x for line in chart.lines for x in (*line.xs, *line.nonfinite)]
    reach = APART * (max(places, default=0.0) - min(places, default=0.0))
    for line in chart.lines:
        color = _COLORS[line.color % len(_COLORS)]
        axes.fill_between(line.xs, line.lows, line.highs, color=color, alpha=0.2, linewidth=0)
        axes.plot(line.xs, line.means, color=color, linewidth=1.3, label=plain(line.name, 40))
        for stretch in stretches(line.nonfinite, reach):
            axes.axvline(stretch.first, color="#c03000", linewidth=0.8)
            axes.axvspan(stretch.first, stretch.last, color="#c03000", alpha=0.16, linewidth=0)
    axes.set_ylim(span.low, span.high)
    axes.set_xlabel(chart.x_title, fontsize=8)
    axes.tick_params(labelsize=8)
    axes.grid(color="#dfe3e8", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if len(chart.lines) > 1:
        axes.legend(fontsize=8, frameon=False)
    for mark in chart.marks:
        if math.isfinite(mark.x):
            axes.axvline(mark.x, color="#5f6773", linewidth=0.8, linestyle=":")
