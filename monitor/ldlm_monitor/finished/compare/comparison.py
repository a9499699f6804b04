"""The comparison of several runs with the first of them."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import median
from typing import Final, Literal, TypeAlias

from pydantic import Field

from ldlm_monitor import __version__
from ldlm_monitor.base.incident_view import View
from ldlm_monitor.finished.compare.difference_words import (
    ALWAYS,
    MEMORY,
    PACE,
    Kind,
    Quantity,
    Reached,
    Target,
    Word,
    learned,
    signed,
    verdict,
)
from ldlm_monitor.finished.compare.intervals import Difference, median_of, of_logarithms, unknown
from ldlm_monitor.finished.compare.learned import Point, RunCell, Span, look, places
from ldlm_monitor.finished.compare.sides import Side

SCHEMA: Final = "ldlm.compare/1"  # the number rises with an incompatible change
CONFIDENCE = 0.95
"""Share of intervals that should contain the truth: the usual value; `--confidence` sets it."""


class TargetResult(View):
    """A target of `compare --target` and its result."""

    name: str = Field(description="speed, memory, or the name of a quantity")
    change: float = Field(description="the wanted change at least, as a share: 0.3 is 30 % more")
    result: Reached = Field(
        description="reached: the whole interval is at or beyond it; missed: no part; open: a part"
    )


class Cell(View):
    """One run in one row. Changes are against the baseline, as a share: 0.3 is 30 % more.

    A change is of the quantity itself: a step time that falls by a fifth is -0.2, and `said` calls
    the run 25 % faster. A change that is not known is null.
    """

    run: str = Field(description="the run's name in `runs`")
    value: float | None = Field(
        description="in the row's unit: a median (pace, memory) or a mean (losses, accuracies)"
    )
    count: int = Field(description="values that `value` was made of")
    change: float | None = None
    low: float | None = Field(default=None, description="lower end of the confidence interval")
    high: float | None = Field(default=None, description="upper end of the confidence interval")
    p: float | None = Field(default=None, description="two-sided p-value of no difference")
    verdict: Word = Field(
        description="better, worse, same: no difference found; unclear: not known; "
        "missing: not in this run, or not in the baseline; baseline"
    )
    said: str = Field(description="the verdict in words; empty for the baseline")
    target: TargetResult | None = None


class Row(View):
    """One quantity of all runs, in the order of `runs`."""

    quantity: str = Field(description="the quantity's name, as in `parse` and /metrics")
    title: str
    kind: Kind
    unit: str = Field(description="of the values: s, /s, B (bytes), or nothing")
    at: str = Field(default="", description="`span` in words; empty for pace and memory")
    span: Span | None = Field(
        default=None, description="null for pace and memory: all that is no warm-up"
    )
    cells: tuple[Cell, ...]


class RunSummary(View):
    """A run that was compared."""

    name: str = Field(description="the run's name in this table, unique")
    run: str = Field(description="the run's name in its log or bench record")
    files: tuple[str, ...]
    first_step: int | None
    last_step: int | None
    warm_up_steps: int = Field(description="first steps that pace and memory leave out")
    seconds: float | None = Field(description="from the first logged step to the last")


class Comparison(View):
    """What `compare --json` writes; the first run is the baseline."""

    schema_: Literal["ldlm.compare/1"] = Field(default=SCHEMA, alias="schema")
    version: str = Field(description="of the monitor")
    confidence: float = Field(description="share of intervals that should contain the truth")
    runs: tuple[RunSummary, ...]
    rows: tuple[Row, ...] = Field(description="quantities that at least one run has")
    missing: tuple[str, ...] = Field(description="titles of quantities that no run has")
    notes: tuple[str, ...] = Field(description="remarks on the figures")


def compare(
    sides: Sequence[Side],
    *,
    targets: Sequence[Target] = (),
    at: Sequence[Point] = (),
    confidence: float = CONFIDENCE,
) -> Comparison:
    """Compare all sides with the first, and with `targets`; losses also at the points `at`."""
    table = [*_steady(sides, confidence), *_learned(sides, at, confidence)]
    shared = [quantity.name for quantity, _, seen in table if all(each.count for each in seen)]
    goals = {target.stands_for(shared): target for target in targets}
    known = {quantity.name for quantity, _, _ in table}
    known.update(name for side in sides for name in side.readings.quantities())
    return Comparison(
        version=__version__,
        confidence=confidence,
        runs=tuple(_summary(side) for side in sides),
        rows=tuple(
            _row(quantity, place, seen, sides, goals.get(quantity.name))
            for quantity, place, seen in table
        ),
        missing=tuple(each.title for each in ALWAYS if each.name not in known),
        notes=(
            *(note for side in sides for note in side.notes()),
            *_apart(sides, table),
            *(
                f"target {target.quantity} {signed(target.change)} %: not in all runs"
                for name, target in goals.items()
                if name not in shared
            ),
        ),
    )


_Entry: TypeAlias = tuple[Quantity, Span | None, list[RunCell]]
"""A row before its verdict: the quantity, its span (None: pace and memory), each run's value."""


def _steady(sides: Sequence[Side], confidence: float) -> Iterator[_Entry]:
    for quantity in (*PACE, *MEMORY):
        columns = [side.steady(quantity.name) for side in sides]
        if not any(columns):
            continue
        spread = [median_of([math.log(value) for value in column]) for column in columns]
        seen = []
        for side, column, location in zip(sides, columns, spread, strict=True):
            why = _unsettled(sides[0], side) if quantity.kind == "pace" else ""
            why = why or unknown(location, len(column))
            why = why or unknown(spread[0], len(columns[0]), " of the baseline")
            difference = None
            if spread[0] is not None and location is not None and side is not sides[0] and not why:
                difference = of_logarithms(spread[0], location, confidence)
            seen.append(RunCell(median(column) if column else None, len(column), difference or why))
        yield quantity, None, seen


def _unsettled(*sides: Side) -> str:
    """Why the paces of these runs cannot be compared; empty if they can."""
    names = [side.name for side in dict.fromkeys(sides) if not side.is_settled]
    return f"the pace of {' and '.join(names)} kept changing" if names else ""


def _learned(sides: Sequence[Side], at: Sequence[Point], confidence: float) -> Iterator[_Entry]:
    starts = [next(iter(side.readings.steps.times), math.nan) for side in sides]
    for quantity in learned({name for side in sides for name in side.readings.quantities()}):
        columns = [side.readings.column(quantity.name) for side in sides]
        for place in places(columns, starts, at):
            yield quantity, place, list(look(columns, starts, place, confidence))


def _apart(sides: Sequence[Side], table: Sequence[_Entry]) -> Iterator[str]:
    """Notes on losses and accuracies that several runs have, but not over the same steps."""
    shared = {
        quantity.name for quantity, place, _ in table if place is not None and place.unit == "step"
    }
    counts = Counter(name for side in sides for name in side.readings.quantities())
    for quantity in learned(counts):
        if counts[quantity.name] > 1 and quantity.name not in shared:
            yield f"{quantity.title}: the runs have too few steps in common to be compared there"


def _row(
    quantity: Quantity,
    span: Span | None,
    seen: Sequence[RunCell],
    sides: Sequence[Side],
    target: Target | None,
) -> Row:
    cells = []
    for side, each in zip(sides, seen, strict=True):
        found = each.difference if isinstance(each.difference, Difference) else None
        word, said = _judged(quantity, each, seen[0], "" if span is None else " there")
        cells.append(
            Cell(
                run=side.name,
                value=each.value,
                count=each.count,
                **(asdict(found) if found else {}),
                verdict=word,
                said=said,
                target=_against(target, quantity, found) if target and found else None,
            )
        )
    return Row(
        quantity=quantity.name,
        title=quantity.title,
        kind=quantity.kind,
        unit=quantity.unit,
        at="" if span is None else str(span),
        span=span,
        cells=tuple(cells),
    )


def _judged(quantity: Quantity, seen: RunCell, base: RunCell, there: str) -> tuple[Word, str]:
    if not seen.count:
        return "missing", f"not in this run{there}"
    if seen is base:
        return "baseline", ""
    if not base.count:
        return "missing", "not in the baseline"
    if isinstance(seen.difference, str):
        return "unclear", f"unclear: {seen.difference}"
    return verdict(quantity, seen.difference)


def _against(target: Target, quantity: Quantity, found: Difference) -> TargetResult:
    """The target's result. `speed` refers to the inverse of a step time, not to the time."""
    of_speed = quantity.inverse and target.quantity == "speed"
    result = target.judge(found.inverted() if of_speed else found)
    return TargetResult(name=target.quantity, change=target.change, result=result)


def _summary(side: Side) -> RunSummary:
    readings = side.readings
    return RunSummary(
        name=side.name,
        run=readings.name,
        files=tuple(readings.files),
        first_step=readings.first_step,
        last_step=readings.last_step,
        warm_up_steps=side.warm_up_steps,
        seconds=readings.seconds,
    )
