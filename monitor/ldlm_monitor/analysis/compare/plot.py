"""Losses and throughput of the runs of a comparison, over each other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ldlm_monitor.analysis.charts import Figure, Line, bucketed
from ldlm_monitor.analysis.compare.quantities import MEMORY_BY, SPEED_BY, learned
from ldlm_monitor.analysis.compare.sides import Side

GIB = 2.0**30
LEARNED = 6
"""Losses and accuracies that are drawn at most."""
_TITLES = {
    "samples_per_second": "samples/s",
    "tokens_per_second": "tokens/s",
    "step_seconds": "step time, seconds",
    "steps_per_second": "it/s",
}


def charts(sides: Sequence[Side]) -> list[Figure]:
    """Over steps, and the loss over time too where times are known."""
    names = {name for side in sides for name in side.readings.quantities()}
    wanted = learned(names)[:LEARNED]
    found = [_chart(quantity.title, quantity.name, sides) for quantity in wanted]
    if "loss" in names and (timed := list(_over_time(sides))):
        found.insert(1, Figure(title="loss over time", lines=timed, x_title="seconds"))
    pace = [name for name in SPEED_BY if any(side.has(name) for side in sides)]
    found += [_chart(_TITLES[name], name, sides) for name in pace[:1]]
    memory = [name for name in MEMORY_BY if any(side.has(name) for side in sides)]
    found += [
        _chart(name.removesuffix("_bytes").replace("_", " "), name, sides) for name in memory[:1]
    ]
    return [chart for chart in found if chart.lines]


def _chart(title: str, quantity: str, sides: Sequence[Side]) -> Figure:
    is_bytes = quantity.endswith("_bytes")
    lines = list(_lines(quantity, sides, GIB if is_bytes else 1.0))
    return Figure(title=title, lines=lines, unit="GiB" if is_bytes else "")


def _lines(quantity: str, sides: Sequence[Side], scale: float) -> Iterator[Line]:
    for index, side in enumerate(sides):
        column = side.column(quantity)
        if column is not None and (len(column) or column.nonfinite):
            values = [value / scale for value in column.values]
            yield bucketed(side.name, column.steps, values, column.nonfinite, color=index)


def _over_time(sides: Sequence[Side]) -> Iterator[Line]:
    for index, side in enumerate(sides):
        column = side.column("loss")
        started = side.readings.started
        if column is not None and len(column) and math.isfinite(started):
            clock = [at - started for at in column.times]
            if math.isfinite(clock[-1]):
                yield bucketed(side.name, clock, column.values, color=index)
