"""The charts of a run's report, and their values as the page's script reads them."""

import json
import math
import re
from collections.abc import Iterator
from html import escape

from ldlm_monitor.base.names import RATES
from ldlm_monitor.base.text.sanitize import plain
from ldlm_monitor.finished.charts import Figure, FigureMark, Line
from ldlm_monitor.finished.report.document import Curve, ReportRun

GIB = 2.0**30  # bytes
LINES = 5
"""Curves of one chart at most: chart.css has five colours."""
_CHARTS = (
    ("loss", "", r"(?:eval_)?loss"),
    ("loss components", "", r"loss_(?!scale$)(.+)"),
    ("accuracy", "", r"accuracy(?:_(.+))?"),
    ("gradient norm", "", r"grad_norm"),
    ("learning rate", "", r"learning_rate"),
    ("loss scale", "", r"loss_scale"),
    ("memory", "GiB", r"(memory_(?:allocated|reserved))_bytes"),
)
"""Title, unit, and a pattern of quantities, whose group (if any) is the name of a line."""
_PACE = (
    *(("throughput", name.replace("_per_second", "/s"), name) for name in RATES),
    ("step time", "s", "step_seconds"),
)
"""Candidates for the chart of the pace, the best first: title, unit and quantity."""


def is_charted(quantity: str) -> bool:
    """Whether a chart shows the quantity; a run may have hundreds of others."""
    patterns = (*(names for *_, names in _CHARTS), *(name for *_, name in _PACE))
    return any(re.fullmatch(pattern, quantity) for pattern in patterns)


def figures(run: ReportRun) -> Iterator[Figure]:
    """The charts of _CHARTS and of the pace; charts of one step alone are left out."""
    marks = tuple(_marks(run))
    pace = [chart for chart in _PACE if chart[2] in run.curves]
    for title, unit, names in (*_CHARTS, *pace[:1]):
        scale = GIB if unit == "GiB" else 1.0
        matches = (re.fullmatch(names, name) for name in sorted(run.curves))
        lines = [
            _line(match[match.lastindex or 0], run.curves[match[0]], scale, color)
            for color, match in enumerate(filter(None, matches))
        ]
        if any(len(line.xs) > 1 for line in lines):
            yield Figure(title=title, unit=unit, lines=lines[:LINES], marks=marks)


def _line(name: str, curve: Curve, scale: float, color: int) -> Line:
    """The curve as a line in units of `scale`, with a gap wherever the step decreases."""
    points: list[tuple[float, ...]] = []
    for step, *values in zip(curve.steps, curve.means, curve.lows, curve.highs, strict=True):
        if points and step < points[-1][0]:
            points.append((step, math.nan, math.nan, math.nan))
        points.append((step, *(math.nan if each is None else each / scale for each in values)))
    bad = [step for step, count in zip(curve.steps, curve.nonfinite, strict=True) if count]
    xs, means, lows, highs = zip(*points, strict=True) if points else [()] * 4
    return Line(name=name, xs=xs, means=means, lows=lows, highs=highs, nonfinite=bad, color=color)


def _marks(run: ReportRun) -> Iterator[FigureMark]:
    for incident in run.incidents:
        if incident.last_step is not None:
            yield FigureMark(incident.last_step, incident.title, "bad")
    for step in run.resumed_at:
        yield FigureMark(step, f"resumed at step {step}", "resume")


def plotted(figure: Figure) -> str:
    """What the script reads of a chart: the ends of its axis, and the lines' values."""
    xs = [x for line in figure.lines for x in (*line.xs, *line.nonfinite)]
    lines = [
        {
            "name": plain(line.name),
            "steps": line.xs,
            "means": [float(f"{mean:.5g}") if math.isfinite(mean) else None for mean in line.means],
        }
        for line in figure.lines
    ]
    plot = {"title": figure.title, "low": min(xs), "high": max(xs), "lines": lines}
    return escape(json.dumps(plot, separators=(",", ":")))
