"""The columns of the overview: which of them fit, and what each shows of a run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ldlm_monitor.base.snapshot import CurveView, RunView
from ldlm_monitor.base.text.format import local_time, number
from ldlm_monitor.screen.draw import (
    HEALTH_STYLE,
    STATE_STYLE,
    Glyphs,
    Line,
    StyledSpan,
    bar,
    fit,
    safe,
    spark,
)
from ldlm_monitor.screen.hold_back import muted
from ldlm_monitor.screen.page_context import (
    PageContext,
    age_style,
    baseline,
    current,
    speed,
    whole_duration,
)
from ldlm_monitor.screen.triage import middle_cut, row_text, since, why

SPARK = 16  # values, a cell each. A choice: fewer hide the shape of a loss, more displace columns
_LEAST_NAME, _MOST_NAME = 10, 32  # cells. A choice: fewer make names alike, more displace reasons
_LEAST_WHY, _GOOD_WHY = 42, 60
"""Cells for `NaN/Inf at step 44, rank 1` and what to do. Columns give way to the first, and to half
of a wider list, but not beyond the second."""
_MARGIN = 3  # cells for the cursor, the mark of the health and a blank


@dataclass(frozen=True, slots=True)
class RunRow:
    """The data of one row; `curve` is the run's loss, None until it was read."""

    run: RunView
    curve: CurveView | None
    context: PageContext


@dataclass(frozen=True, slots=True)
class _TableColumn:
    """`width` is in cells. Columns of the highest `rank` are left out first where room is short."""

    title: str
    width: int
    rank: int
    draw: Callable[[RunRow], Line]


def _state(row: RunRow) -> Line:
    return [StyledSpan(row.run.state, STATE_STYLE.get(row.run.state, ""))]


def _steps(run: RunView) -> str:
    total = f"/{run.total_steps}" if run.total_steps else ""
    return "-" if run.step is None else f"{run.step}{total}"


def _loss(row: RunRow) -> Line:
    text = number(current(row.run, "loss"), 4)
    return [StyledSpan(text, "critical" if text in ("NaN", "Inf", "-Inf") else "")]


def _spark(row: RunRow) -> Line:
    if row.curve is None:
        return []
    return spark(row.curve.means, row.curve.nonfinite, SPARK, row.context.glyphs)


def _speed(row: RunRow) -> Line:
    # A choice, above ThroughputDrop's 0.7: a drop shows before its alert, small ones do not.
    slow = row.run.detected.get("throughput_ratio", 1.0) < 0.8
    return [
        StyledSpan(speed(row.run)),
        StyledSpan(f" {baseline(row.run)}", "warning" if slow else "dim"),
    ]


def _since(row: RunRow) -> Line:
    at, now = since(row.run, row.context), row.context.clock()
    waits = not row.run.reasons and row.run.ended_at is None
    style = age_style(row.run, now) if waits else "" if row.run.reasons else "dim"
    if at is None:
        return [StyledSpan("-", style)]
    age, about = whole_duration(now - at), row.context.about(row.run.name, at)
    return [StyledSpan(about + age.split()[0] if about else age, style)]  # a guess is not so exact


# Title, cells for usual values, and rank: columns of rank 0 are shown at any width.
_AFTER_WHY = (
    _TableColumn("STEP", 13, 2, lambda row: [StyledSpan(_steps(row.run))]),
    _TableColumn("DONE", 8, 8, lambda row: bar(row.run.progress, 8, row.context.glyphs)),
    _TableColumn("LOSS", 8, 3, _loss),
    _TableColumn("LOSS SO FAR", SPARK, 7, _spark),
    _TableColumn("SPEED", 16, 6, _speed),
    _TableColumn("ETA", 8, 5, lambda row: [StyledSpan(whole_duration(row.run.eta_seconds))]),
    _TableColumn("SINCE", 7, 1, _since),
)
_STATE = _TableColumn("STATE", 13, 4, _state)


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns that fit a width, the cells of names and reasons, what all names begin with."""

    columns: tuple[_TableColumn, ...]
    name: int
    why: int
    prefix: str

    @classmethod
    def of(cls, width: int, runs: Sequence[RunView], prefix: str) -> "Layout":
        """The layout for runs whose names begin with `prefix`, in a list `width` cells wide."""
        longest = max((len(run.name) - len(prefix) for run in runs), default=0)
        wanted = min(max(longest, _LEAST_NAME), _MOST_NAME)
        steps = max((len(_steps(run)) for run in runs), default=0)
        columns = [_STATE, *_AFTER_WHY]
        columns[1] = replace(columns[1], width=min(max(steps, 4), columns[1].width))
        while True:
            left = width - _MARGIN - sum(each.width + 1 for each in columns)
            if left >= wanted + 1 + max(_LEAST_WHY, min(width // 2, _GOOD_WHY)) or not columns:
                break
            columns.remove(max(columns, key=lambda each: each.rank))
            if not columns:
                left = width - _MARGIN
                break
        name = max(min(wanted, left // 2), 1)
        return cls(tuple(columns), name, max(left - name - 1, 1), prefix)

    def header(self, sorted_by: str) -> list[tuple[str, StyledSpan]]:
        """Titles with the text that fills their columns, the `sorted_by` one underlined."""
        titles = [("RUN", self.name + 1), ("WHY, WHAT NOW", self.why + 1)]
        cells = [(each.title, each.width + 1) for each in self.columns]
        if self.columns[:1] == (_STATE,):
            titles, cells = [cells[0], *titles], cells[1:]
        line = [("", StyledSpan(" " * _MARGIN))]
        for title, width in titles + cells:
            style = "key" if title == sorted_by else "dim"
            line.append((title, StyledSpan(fit(title, width), style)))
        return line

    def row(self, facts: RunRow, *, chosen: bool) -> Line:
        """The row of one run, at the cursor if `chosen`."""
        run, context, glyphs = facts.run, facts.context, facts.context.glyphs
        mark = glyphs.cursor if chosen else glyphs.picked if run.name in context.marked else " "
        own = safe(run.name.removeprefix(self.prefix), glyphs)
        line = [
            StyledSpan(mark, "key"),
            StyledSpan(f"{glyphs.health[run.health]} ", HEALTH_STYLE[run.health]),
        ]
        columns, shows_state = self.columns, self.columns[:1] == (_STATE,)
        if shows_state:
            line += _cell(_STATE.draw(facts), _STATE.width, glyphs)
            columns = columns[1:]
        line.append(StyledSpan(middle_cut(own, self.name, glyphs) + " ", "title"))
        line += _cell(_why(facts, self.why, shows_state=shows_state), self.why, glyphs)
        for column in columns:
            line += _cell(column.draw(facts), column.width, glyphs)
        return line


def _why(facts: RunRow, width: int, *, shows_state: bool) -> Line:
    run, context = facts.run, facts.context
    if until := muted(run.name, context.held_back):
        return [StyledSpan(f"muted until {until}", "info")]
    if run.reasons:
        found = row_text(why(run, context.snapshot), width, context.glyphs)
        return [StyledSpan(found, HEALTH_STYLE[run.health])]
    if unjudged := run.unjudged(local_time):
        return [StyledSpan(unjudged, "dim")]
    if run.ended_at is not None:
        return [StyledSpan(row_text(why(run, context.snapshot), width, context.glyphs), "dim")]
    return [] if shows_state or run.state == "running" else [StyledSpan(run.state, "dim")]


def _cell(spans: Sequence[StyledSpan], width: int, glyphs: Glyphs) -> Line:
    left, line = width, []
    for text, style in spans:
        shown = text if len(text) <= left else fit(text, left, glyphs)
        line.append(StyledSpan(shown, style))
        left -= len(shown)
    return [*line, StyledSpan(" " * (left + 1))]
