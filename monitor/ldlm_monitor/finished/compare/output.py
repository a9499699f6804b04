"""A comparison as text, a line for each run under each quantity, and as charts."""

import math
from collections.abc import Iterator, Sequence

from ldlm_monitor.base.text.format import byte_size, duration, number
from ldlm_monitor.base.text.sanitize import plain
from ldlm_monitor.finished.charts import Figure, Line
from ldlm_monitor.finished.compare.comparison import Cell, Comparison, Row, RunSummary
from ldlm_monitor.finished.compare.difference_words import (
    MEMORY,
    MEMORY_BY,
    PACE,
    SPEED_BY,
    Quantity,
    learned,
    percent,
    signed,
)
from ldlm_monitor.finished.compare.sides import Side

_NAMES = 24, 40
"""Least and greatest columns of the names: a choice; wider hides verdicts, narrower cuts names."""
_VALUE = 12
"""Columns of a value with its unit, such as `1023.9 KiB`."""
_REACHED = {"reached": "reached", "missed": "missed", "open": "not known yet"}  # words
GIB = 2.0**30  # bytes
LEARNED = 6
"""Losses and accuracies drawn at most: a choice; more fill over two screens, fewer hide parts."""
BUCKETS = 400
"""Points of a curve at most: a page's chart has about two pixels for each."""


def table(comparison: Comparison) -> str:
    """The runs, the rows, the missing quantities and the notes, as lines; names are sanitised."""
    return "\n".join(_lines(comparison)) + "\n"


def _lines(comparison: Comparison) -> Iterator[str]:
    for index, run in enumerate(comparison.runs):
        yield _run(run, "candidate" if index else "baseline")
    yield ""
    share = percent(comparison.confidence)
    least, most = _NAMES
    wide = min(max(least, *(len(plain(run.name)) for run in comparison.runs)), most)
    yield f"{'':<{wide + 4}}{'value':>{_VALUE}}{'change':>10}   verdict, [{share} % interval]"
    for row in comparison.rows:
        yield row.title + (f" {row.at}" if row.at else "")
        for cell in row.cells:
            yield _cell(cell, row, wide)
    yield ""
    if comparison.missing:
        yield f"Not in any run: {', '.join(comparison.missing)}."
    for note in comparison.notes:
        yield plain(note)


def _run(run: RunSummary, role: str) -> str:
    parts = [f"{role:<11}{plain(run.name, 60)}"]  # cut: the rest of the line matters, too
    if run.first_step is not None:
        parts.append(f"steps {run.first_step} to {run.last_step}")
    if run.seconds is not None:
        parts.append(duration(run.seconds))
    if run.warm_up_steps:
        first = "step" if run.warm_up_steps == 1 else f"{run.warm_up_steps} steps"
        parts.append(f"the first {first} left out as warm-up")
    return ", ".join(parts)


def _cell(cell: Cell, row: Row, wide: int) -> str:
    change = "" if cell.change is None else f"{signed(cell.change)} %"
    said = "-" if cell.verdict == "baseline" else cell.said
    if cell.target is not None:
        said += f"; target {signed(cell.target.change)} %: {_REACHED[cell.target.result]}"
    name = plain(cell.run, wide)
    return f"    {name:<{wide}}{value(cell.value, row.unit):>{_VALUE}}{change:>10}   {said}"


def value(amount: float | None, unit: str) -> str:
    """The amount with its unit, bytes in a binary multiple; `-` for None."""
    if amount is None:
        return "-"
    if unit == "B":
        return byte_size(amount)
    if unit == "s":
        return duration(amount)
    return f"{amount:.5g}{unit}" if unit else number(amount)


def charts(sides: Sequence[Side]) -> list[Figure]:
    """Losses and accuracies, then the best measures of speed and memory that a run has."""
    names = {name for side in sides for name in side.readings.quantities()}
    found = [_chart(quantity, sides) for quantity in learned(names)[:LEARNED]]
    for measures in (SPEED_BY, MEMORY_BY):
        best = next((name for name in measures if any(side.column(name) for side in sides)), "")
        found += [_chart(each, sides) for each in (*PACE, *MEMORY) if each.name == best]
    return [chart for chart in found if chart.lines]


def _chart(quantity: Quantity, sides: Sequence[Side]) -> Figure:
    unit = {"B": "GiB", "s": "s"}.get(quantity.unit, "")
    lines = list(_curves(quantity.name, sides, GIB if unit == "GiB" else 1.0))
    return Figure(title=quantity.title, lines=lines, unit=unit)


def _curves(quantity: str, sides: Sequence[Side], scale: float) -> Iterator[Line]:
    for index, side in enumerate(sides):
        column = side.column(quantity)
        if column is not None and (len(column) or column.nonfinite):
            values = [value / scale for value in column.values]
            yield bucketed(side.name, column.steps, values, column.nonfinite, color=index)


def bucketed(
    name: str,
    steps: Sequence[float],
    values: Sequence[float],
    nonfinite: Sequence[float] = (),
    *,
    color: int = 0,
) -> Line:
    """A curve of `BUCKETS` buckets at most; their extremes keep spikes. `nonfinite`: steps."""
    width = math.ceil(len(values) / BUCKETS) or 1
    parts = [values[at : at + width] for at in range(0, len(values), width)]
    return Line(
        name=name,
        xs=list(steps[::width]),
        means=[sum(part) / len(part) for part in parts],
        lows=[min(part) for part in parts],
        highs=[max(part) for part in parts],
        nonfinite=nonfinite,
        color=color,
    )
