"""The overview: one row for each run, in as many columns as fit."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Vertical

from ldlm_monitor.core.health import HEALTH
from ldlm_monitor.model.view import CurveView, RunView, Snapshot
from ldlm_monitor.text.format import number
from ldlm_monitor.tui.desk import (
    Curves,
    Desk,
    OpenRun,
    age,
    alerts_of,
    baseline,
    current,
    severity_of,
    speed,
    whole_duration,
)
from ldlm_monitor.tui.draw import (
    HEALTH_STYLE,
    STATE_STYLE,
    Glyphs,
    Line,
    StyledSpan,
    bar,
    fit,
    safe,
    spark,
    width_of,
)
from ldlm_monitor.tui.widgets import Painted, RowList, in_thread

_LEAST_NAME = 22  # cells for `train_20261121_083515`; 80 cells then hold the columns of `rank` 0
_CURVES_SECONDS = 2.0  # between queries for shown curves. A choice: old curves, or more requests
SPARK = 16  # values, a cell each. A choice: fewer hide the shape of a loss, more displace columns


@dataclass(frozen=True, slots=True)
class RunRow:
    """The data of one row; `curve` is the run's loss, None until it was read."""

    run: RunView
    curve: CurveView | None
    desk: Desk


@dataclass(frozen=True, slots=True)
class _TableColumn:
    """`width` is in cells. Columns of the highest `rank` are left out first where room is short."""

    title: str
    width: int
    rank: int
    draw: Callable[[RunRow], Line]


def _health(row: RunRow) -> Line:
    health = row.run.health
    return [StyledSpan(f"{row.desk.glyphs.dot} {health}", HEALTH_STYLE[health])]


def _state(row: RunRow) -> Line:
    return [StyledSpan(row.run.state, STATE_STYLE.get(row.run.state, ""))]


def _step(row: RunRow) -> Line:
    run = row.run
    total = f"/{run.total_steps}" if run.total_steps else ""
    return [StyledSpan("-" if run.step is None else f"{run.step}{total}")]


def _value(row: RunRow, quantity: str, digits: int) -> Line:
    text = number(current(row.run, quantity), digits)
    return [StyledSpan(text, "critical" if text in ("NaN", "Inf", "-Inf") else "")]


def _spark(row: RunRow) -> Line:
    if row.curve is None:
        return []
    return spark(row.curve.means, row.curve.nonfinite, SPARK, row.desk.glyphs)


def _speed(row: RunRow) -> Line:
    # A choice, above ThroughputDrop's 0.7: a drop shows before its alert, small ones do not.
    slow = row.run.detected.get("throughput_ratio", 1.0) < 0.8
    return [
        StyledSpan(speed(row.run)),
        StyledSpan(f" {baseline(row.run)}", "warning" if slow else "dim"),
    ]


def _alerts(row: RunRow) -> Line:
    line: Line = []
    for alert in alerts_of(row.run.name, row.desk.snapshot.alerts):
        name = safe(alert.name, row.desk.glyphs)
        line.append(StyledSpan(f" {name}" if line else name, severity_of(alert)))
    return line


# Title, cells for usual values, and rank: columns of rank 0 are shown at any width.
_COLUMNS = (
    _TableColumn("HEALTH", 11, 0, _health),
    _TableColumn("STATE", 13, 2, _state),
    _TableColumn("STEP", 13, 0, _step),
    _TableColumn("DONE", 8, 6, lambda row: bar(row.run.progress, 8, row.desk.glyphs)),
    _TableColumn("ETA", 7, 4, lambda row: [StyledSpan(whole_duration(row.run.eta_seconds))]),
    _TableColumn("LOSS", 8, 0, lambda row: _value(row, "loss", 4)),
    _TableColumn("LOSS SO FAR", SPARK, 3, _spark),
    _TableColumn("GRAD", 8, 5, lambda row: _value(row, "grad_norm", 3)),
    _TableColumn("SPEED", 17, 4, _speed),
    _TableColumn(
        "LAST STEP/LIMIT", 15, 1, lambda row: [StyledSpan(*age(row.run, row.desk.clock()))]
    ),
    _TableColumn("ALERTS", 15, 0, _alerts),
)


def _chosen(width: int) -> tuple[list[_TableColumn], int]:
    columns = list(_COLUMNS)
    while True:
        left = width - 2 - sum(column.width + 1 for column in columns)
        last = max(columns, key=lambda column: column.rank)
        if left >= _LEAST_NAME or last.rank == 0:
            return columns, max(min(left, 40), 1)  # a choice: 40 cut few names; more spread a row
        columns.remove(last)


def header(width: int) -> Line:
    """The columns' titles."""
    columns, name = _chosen(width)
    line = [StyledSpan("  " + fit("RUN", name) + " ", "dim")]
    return line + [StyledSpan(fit(column.title, column.width) + " ", "dim") for column in columns]


def row(facts: RunRow, width: int, *, chosen: bool) -> Line:
    """The row of one run, at the cursor if `chosen`; the last column has the remaining width."""
    columns, name = _chosen(width)
    glyphs = facts.desk.glyphs
    line = [
        StyledSpan(f"{glyphs.cursor if chosen else ' '} ", "key"),
        StyledSpan(fit(safe(facts.run.name, glyphs), name, glyphs) + " ", "title"),
    ]
    for column in columns[:-1]:
        line += _cell(column.draw(facts), column.width, glyphs)
    last = columns[-1].draw(facts)
    room = width - width_of(line)
    return line + (last if width_of(last) <= room else _cell(last, room, glyphs))


def _cell(spans: Sequence[StyledSpan], width: int, glyphs: Glyphs) -> Line:
    left, line = width, []
    for text, style in spans:
        shown = text if len(text) <= left else fit(text, left, glyphs)
        line.append(StyledSpan(shown, style))
        left -= len(shown)
    return [*line, StyledSpan(" " * (left + 1))]


def summary(snapshot: Snapshot, glyphs: Glyphs) -> Line:
    """The number of all runs, of running runs by health, and of ended runs by state."""
    counts = Counter[str](run.health for run in snapshot.runs if run.ended_at is None)
    ended = Counter(run.state for run in snapshot.runs if run.ended_at is not None)
    plural = "" if len(snapshot.runs) == 1 else "s"
    line = [StyledSpan(f" {len(snapshot.runs)} run{plural}", "title")]
    for health, style in HEALTH_STYLE.items():
        if count := counts.get(health):
            line.append(StyledSpan(f"   {glyphs.dot} {count} {health}", style))
    for state, count in sorted(ended.items()):
        line.append(StyledSpan(f"   {count} {state}", STATE_STYLE.get(state, "")))
    return line


def sorted_runs(snapshot: Snapshot) -> list[RunView]:
    """Running runs before ended ones, then the worst health first, then by name."""
    return sorted(
        snapshot.runs,
        key=lambda run: (run.ended_at is not None, -HEALTH.index(run.health), run.name),
    )


class OverviewPage(Vertical):
    """A row for each run; Enter opens it."""

    def __init__(self, desk: Desk, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self._desk = desk
        self._runs = sorted_runs(desk.snapshot)
        self._curves: Curves = {}
        self._asked_at = 0.0
        self.rows = RowList(self._row, id="runs")

    def compose(self) -> ComposeResult:
        """Summary, titles, rows."""
        yield Painted(lambda width, height: [summary(self._desk.snapshot, self._desk.glyphs)])
        yield Painted(lambda width, height: [header(width)])
        yield self.rows

    def look(self) -> None:
        """Show the runs of the last snapshot."""
        here = self._runs[self.rows.cursor].name if self._runs else None
        self._runs = sorted_runs(self._desk.snapshot)
        names = [run.name for run in self._runs]
        self.rows.show(len(names))
        if here in names:
            self.rows.cursor = names.index(here)
        now = self._desk.clock()
        if abs(now - self._asked_at) >= _CURVES_SECONDS:  # `abs`: a playback's clock may go back
            self._asked_at = now
            # Height 0 before the first layout: 10, a choice. Fewer miss rows, more are not shown.
            top, height = self.rows.scroll_offset.y, max(self.rows.size.height, 10)
            wanted = [(name, "loss") for name in names[top : top + height]]
            in_thread(self, lambda: self._desk.curves(wanted, SPARK), self._take)
        for widget in self.query(Painted):
            widget.refresh()

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Open the page of the run."""
        self.post_message(OpenRun(self._runs[event.index].name))

    def _take(self, found: Curves) -> None:
        self._curves |= found
        self.rows.refresh()

    def _row(self, index: int, width: int) -> Line:
        run = self._runs[index]
        facts = RunRow(run, self._curves.get((run.name, "loss")), self._desk)
        return row(facts, width, chosen=index == self.rows.cursor)
