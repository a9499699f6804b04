"""Which charts a report shows of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from ldlm_monitor.analysis.charts import Figure, FigureMark, Line
from ldlm_monitor.report.document import Curve, ReportRun

GIB = 2.0**30
LINES = 5
"""Curves of one chart at most; colours are no more."""
_CHARTS = (
    ("loss", "", ("loss", "eval_loss")),
    ("loss components", "", ("loss_",)),
    ("accuracy", "", ("accuracy", "accuracy_")),
    ("gradient norm", "", ("grad_norm",)),
    ("learning rate", "", ("learning_rate",)),
    ("loss scale", "", ("loss_scale",)),
    ("memory", "GiB", ("memory_allocated_bytes", "memory_reserved_bytes")),
)
"""Title, unit, and names of quantities, or how they begin where that ends with `_`."""
_PACE = {
    "samples_per_second": ("throughput", "samples/s"),
    "tokens_per_second": ("throughput", "tokens/s"),
    "step_seconds": ("step time", "s"),
    "steps_per_second": ("throughput", "it/s"),
}
"""The first of these that the run has is shown."""


def graphs(run: ReportRun) -> Iterator[Figure]:
    """Losses, accuracies, gradient norm, learning rate, memory, throughput, where the run has them
    at more than one step.
    """
    marks = tuple(_marks(run))
    pace = [(*_PACE[name], (name,)) for name in _PACE if name in run.curves]
    for title, unit, wanted in (*_CHARTS, *pace[:1]):
        scale = GIB if unit == "GiB" else 1.0
        lines = [
            _line(_short(name, wanted), run.curves[name], scale)
            for name in _named(wanted, run.curves)
        ]
        if any(len(line.xs) > 1 for line in lines):
            yield Figure(title=title, unit=unit, lines=lines[:LINES], marks=marks)


def _named(wanted: Sequence[str], available: Iterable[str]) -> Iterator[str]:
    for name in sorted(available):
        part_of = any(name.startswith(each) for each in wanted if each.endswith("_"))
        if name in wanted or (part_of and name != "loss_scale"):
            yield name


def _short(name: str, wanted: Sequence[str]) -> str:
    """Without what the chart's title says already."""
    for each in wanted:
        if each.endswith("_") and name.startswith(each):
            return name.removeprefix(each)
    return name.removesuffix("_bytes")


def _line(name: str, curve: Curve, scale: float = 1.0) -> Line:
    """Where the step falls, the line is broken."""
    xs: list[float] = []
    columns: tuple[list[float], list[float], list[float]] = ([], [], [])
    sources: Sequence[Sequence[float | None]] = (curve.means, curve.lows, curve.highs)
    for index, step in enumerate(curve.steps):
        if xs and step < xs[-1]:
            xs.append(step)
            for column in columns:
                column.append(math.nan)
        xs.append(step)
        for column, source in zip(columns, sources, strict=True):
            value = source[index]
            column.append(math.nan if value is None else value / scale)
    bad = [step for step, count in zip(curve.steps, curve.nonfinite, strict=True) if count]
    means, lows, highs = columns
    return Line(name=name, xs=xs, means=means, lows=lows, highs=highs, nonfinite=bad)


def _marks(run: ReportRun) -> Iterator[FigureMark]:
    for incident in run.incidents:
        if incident.last_step is not None:
            yield FigureMark(incident.last_step, incident.title, "incident")
    for step in run.resumed_at:
        yield FigureMark(step, f"resumed at step {step}", "resume")
