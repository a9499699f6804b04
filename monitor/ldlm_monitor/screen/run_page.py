"""The page of one run: state, loss, other values, ranks, alerts."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from statistics import fmean
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from ldlm_monitor.base.names import RATES
from ldlm_monitor.base.snapshot import CurveView, PastView, RunView
from ldlm_monitor.base.text.format import byte_size, counted, local_time, number, si_number
from ldlm_monitor.judge.core.run_health import what_now
from ldlm_monitor.judge.run.curve import is_charted
from ldlm_monitor.screen import ranks
from ldlm_monitor.screen.draw import (
    HEALTH_STYLE,
    STATE_STYLE,
    Glyphs,
    Line,
    StyledSpan,
    bar,
    columns,
    fit,
    safe,
)
from ldlm_monitor.screen.keys import Key, keys
from ldlm_monitor.screen.metric_chart import MetricChart
from ldlm_monitor.screen.page_context import (
    Curves,
    PageContext,
    age,
    alerts_of,
    baseline,
    current,
    severity_of,
    speed,
    whole_duration,
)
from ldlm_monitor.screen.screen_page import ScreenPage
from ldlm_monitor.screen.triage import triaged, why
from ldlm_monitor.screen.widgets import Painted, in_thread

_POINTS = 1024  # buckets of a curve: the 2 dots of each braille cell, up to 512 columns
_SMALL = (  # titles, and quantities: the first logged is drawn. A choice: four fit 80 cells
    ("grad norm", ("grad_norm",)),
    ("lr", ("learning_rate",)),
    ("speed", (*RATES, "step_seconds")),
    ("memory", ("memory_allocated_bytes", "memory_reserved_bytes")),
)
_FORMS = {"memory": byte_size, "speed": si_number}  # others are plain numbers
_RANKS_SHARE = 0.4  # of the height at most. A choice: more shrinks the loss, less hides ranks
_BATCH = "batch_ids"  # kind of the callback's events with the rows of a batch
_LOW = 28  # lines; a lower page has 3 for ranks. A choice: at the usual 24, the loss has more


class RunPage(ScreenPage):
    """One run on one page."""

    tab = "Run"
    BINDINGS: ClassVar[list[BindingType]] = keys(
        "Run",
        Key("left_square_bracket", "other(-1)", "Run before", "another run, as on page 1", "[ ]"),
        Key("right_square_bracket", "other(1)", "Next run"),
    )

    def __init__(self, context: PageContext) -> None:
        super().__init__(context)
        self._curves: dict[str, CurveView] = {}
        self._asked: tuple[object, ...] = ()
        self.chart = MetricChart(context, id="chart")

    def compose(self) -> ComposeResult:
        """State, loss, small curves, ranks, alerts."""
        yield Painted(self._state, id="standing")
        yield self.chart
        yield Painted(self._small, id="small")
        yield Painted(self._grid, id="grid")
        yield Painted(self._alerts, id="run-alerts")

    def look(self) -> None:
        """Show the last snapshot; query the curves if the snapshot or the run is new."""
        context, run = self._pages, self._pages.chosen()
        if run is not None and self._asked[:1] != (run.name,):
            self._curves = {}
            self.chart.action_whole()
            self.chart.show({})
        wanted = self._wanted(run) if run is not None else []
        asked = (run.name if run else None, context.snapshot.version, wanted)
        if run is not None and self._asked != asked:
            self._asked = asked
            in_thread(self, lambda: context.curves(wanted, _POINTS), self._take)
        self._lay_out(run)
        for widget in self.query(Painted):
            if widget is not self.chart:
                widget.refresh()

    def _wanted(self, run: RunView) -> list[tuple[str, str]]:
        """Runs and quantities to draw: all of the selected run, one of each picked run."""
        logged = (*run.statistics, "steps_per_second")  # a bar's rate, which has no statistics
        found = [(run.name, quantity) for quantity in logged if is_charted(quantity)]
        names = {each.name for each in self._pages.snapshot.runs}
        for other in self._pages.marked:
            if other != run.name and other in names:
                found += [(other, self.chart.metric), (other, "tokens_per_second")]
        return found

    def on_resize(self) -> None:
        """Divide the new height among the parts."""
        self._lay_out(self._pages.chosen())

    def action_other(self, by: int) -> None:
        """Show the run that is `by` runs further on by triage, or back if below 0."""
        names = [run.name for run in triaged(self._pages)]
        if names:
            here = names.index(self._pages.run) if self._pages.run in names else 0
            self._pages.run = names[(here + by) % len(names)]
            self.look()

    def _lay_out(self, run: RunView | None) -> None:
        # Fewer lines for the other parts on a low page, a choice: the loss has the rest, 6 or more.
        height = self.size.height
        self.query_one("#standing").styles.height = 4 if run is not None and run.reasons else 3
        wanted = ranks.needed_height(run, self.size.width) if run else 0
        share = 3 if height < _LOW else int(height * _RANKS_SHARE)
        self.query_one("#grid").styles.height = min(wanted, share)
        self.query_one("#small").styles.height = 4 if height >= 20 else 2 if height >= 16 else 1
        last = len(self._last_lines(run)) if run else 0
        self.query_one("#run-alerts").styles.height = min(last, 4 if height >= 30 else 2)

    def _take(self, found: Curves) -> None:
        shown = self._pages.run
        self._curves = {name: curve for (run, name), curve in found.items() if run == shown}
        self.chart.show(
            self._curves, {key: curve for key, curve in found.items() if key[0] != shown}
        )
        self.query_one("#small", Painted).refresh()

    def _state(self, width: int, height: int) -> list[Line]:
        run, glyphs = self._pages.chosen(), self._pages.glyphs
        if run is None:
            return [[StyledSpan(" no run yet: no file that was read contains a training", "dim")]]
        waited, style = age(run, self._pages.clock())
        style_of_health = HEALTH_STYLE[run.health]
        is_bad = STATE_STYLE.get(run.state) == "critical"
        world = f" on {counted(run.world_size, 'rank')}" if run.world_size else ""
        framework = safe(run.framework, glyphs) if run.framework != "unknown" else ""
        also = f" ({safe(run.also_called, glyphs)})" if run.also_called else ""
        first: Line = [
            StyledSpan(f" {safe(run.name, glyphs)}", "title"),
            StyledSpan(also, "dim"),
            StyledSpan(f"  {glyphs.health[run.health]} {run.health}", style_of_health),
            StyledSpan(f"  {run.state}", style_of_health if is_bad else ""),
            StyledSpan(f"  {run.unjudged(local_time) or f'{framework}{world}'}", "dim"),
            StyledSpan(f"  {safe(run.unseen, glyphs)}" if run.unseen else "", "warning"),
        ]
        if run.reasons:
            found = why(run, self._pages.snapshot)
            said = f"{found.what}{found.where}{run.others}"
            first[-2:] = [StyledSpan(f"  {safe(said, glyphs)}", style_of_health)]
        total = f"/{run.total_steps}" if run.total_steps else ""
        done = "" if run.progress is None else f" {run.progress * 100:.1f}%"
        second: Line = [  # the bar has a fifth of the width, 6 to 30 cells
            StyledSpan(f" step {'-' if run.step is None else run.step}{total} ", "title"),
            *(bar(run.progress, max(min(width // 5, 30), 6), glyphs) if run.progress else []),
            StyledSpan(f"{done}  left {whole_duration(run.eta_seconds)}"),
            StyledSpan("  last step ", "dim"),
            StyledSpan(safe(waited, glyphs), style),
            StyledSpan(safe(_guess(run), glyphs), "dim"),
        ]
        third: Line = [
            StyledSpan(" loss ", "dim"),
            StyledSpan(number(current(run, "loss")), "title"),
            StyledSpan("  grad norm ", "dim"),
            StyledSpan(number(current(run, "grad_norm"))),
            StyledSpan("  lr ", "dim"),
            StyledSpan(number(current(run, "learning_rate"))),
            StyledSpan("  speed ", "dim"),
            StyledSpan(f"{speed(run)} {baseline(run)}"),
        ]
        todo = what_now(run, self._pages.snapshot.alerts)
        fourth = [StyledSpan(" to do ", "dim"), StyledSpan(safe(todo, glyphs), "title")]
        return [first, second, third, *([fourth] if todo else [])]

    def _small(self, width: int, height: int) -> list[Line]:
        """Four small curves side by side; with a height of 1, only their names and last values."""
        run, glyphs = self._pages.chosen(), self._pages.glyphs
        if run is None:
            return []
        each = max(width // len(_SMALL), 8)  # at least 8 cells: a tiny screen cuts the last curves
        lines: list[Line] = [[] for _ in range(max(height, 1))]
        for title, names in _SMALL:
            name = next((name for name in names if name in self._curves), None)
            shown = _FORMS.get(title, number)(current(run, name) if name else None)
            if title == "speed" and name is None:
                shown = speed(run)
            label = title if name in (None, names[0]) or title != "speed" else (name or "")
            head = f" {label.replace('_per_second', '/s')} {shown}"
            lines[0].append(StyledSpan(fit(head, each, glyphs), "title" if name else "dim"))
            curve = self._curves.get(name or "")
            for line, drawn in zip(
                lines[1:], _rows(curve, each - 2, height - 1, glyphs), strict=True
            ):
                line += [StyledSpan(" "), *drawn, StyledSpan(" " * (each - 1 - max(each - 2, 0)))]
        return lines

    def _grid(self, width: int, height: int) -> list[Line]:
        run = self._pages.chosen()
        return ranks.grid(run, width, height, self._pages.glyphs) if run else []

    def _alerts(self, width: int, height: int) -> list[Line]:
        run = self._pages.chosen()
        return self._last_lines(run)[:height] if run else []

    def _last_lines(self, run: RunView) -> list[Line]:
        """The run's alerts, what is over, what has no input, and the batch at which its loss spiked
        or broke last, if it has one.
        """
        snapshot, glyphs = self._pages.snapshot, self._pages.glyphs
        lines: list[Line] = [
            [
                StyledSpan(f" {glyphs.marks.get(severity_of(alert), ' ')} ", severity_of(alert)),
                StyledSpan(safe(alert.name, glyphs), severity_of(alert)),
                StyledSpan("  " + safe(alert.annotations.get("summary", ""), glyphs)),
            ]
            for alert in alerts_of(run.name, snapshot.alerts)
        ]
        lines += [_past(each, glyphs) for each in reversed(run.past)]
        if run.not_checked:
            missing = ", ".join(each.why for each in run.not_checked)
            lines.append([StyledSpan(safe(f" not checked: {missing}", glyphs), "dim")])
        batches = (e for e in reversed(snapshot.events) if (e.run, e.kind) == (run.name, _BATCH))
        return lines + [[StyledSpan(f"   {safe(each.message, glyphs)}")] for each in batches][:1]


def _past(past: PastView, glyphs: Glyphs) -> Line:
    over = {
        "recovered": "recovered",
        "restart": "over by a restart",
        "run_end": "ended with the run",
    }
    lasted = whole_duration(past.end - past.begin)
    at = f"{local_time(past.begin)}, {over[past.over_by]} {lasted} later"
    name = past.name if past.kind == "alert" else past.text
    return [StyledSpan(safe(f" was: {name}  {at}", glyphs), "dim")]


def _guess(run: RunView) -> str:
    return "" if run.guess is None else f"  ≈: {run.guess.why}"


def _rows(curve: CurveView | None, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """A bar chart of `height` lines from zero over the run's steps; `✕`: values not finite."""
    width = max(width, 0)
    if curve is None or not curve.steps or height <= 0 or not width:
        return [[StyledSpan(" " * width)] for _ in range(height)]
    values, bad = resampled(curve, width)
    rows: list[Line] = []
    for index, drawn in enumerate(columns(values, height, glyphs.levels, base=0.0)):
        is_last = index == height - 1
        rows.append(
            [
                StyledSpan(glyphs.nonfinite, "critical")
                if is_last and bad[place]
                else StyledSpan(cell, "curve")
                for place, cell in enumerate(drawn)
            ]
        )
    return rows


def resampled(curve: CurveView, width: int) -> tuple[list[float], list[bool]]:
    """The mean in each of `width` equal parts of the steps, and whether values were not finite.

    A part without a sample has the value of the part before.
    """
    steps: Sequence[int] = curve.steps
    first, last = steps[0], max(steps[-1], steps[0] + 1)
    if any(step < first for step in steps) or sorted(steps) != list(steps):
        steps, first, last = range(len(steps)), 0, len(steps)  # a resume: in the order of the log
    values: list[float] = []
    bad: list[bool] = []
    for column in range(width):
        start = bisect_left(steps, first + (last - first) * column / width)
        end = bisect_left(steps, first + (last - first) * (column + 1) / width)
        end = len(steps) if column == width - 1 else end
        part = [value for value in curve.means[start:end] if math.isfinite(value)]
        bad.append(any(curve.nonfinite[start:end]))
        before = values[-1] if values and start == end else math.nan
        values.append(fmean(part) if part else before)
    return values, bad
