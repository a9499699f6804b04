"""One run beside the list: its loss, why it needs a look and what to do, its last lines."""

from textual.app import ComposeResult
from textual.containers import Vertical

from ldlm_monitor.base.queries import LogLine, LogQuery
from ldlm_monitor.base.snapshot import RunView
from ldlm_monitor.base.text.format import local_time, number
from ldlm_monitor.judge.core.run_health import what_now
from ldlm_monitor.screen import ranks
from ldlm_monitor.screen.chart import Chart, draw_chart, marks_of
from ldlm_monitor.screen.draw import CURVES, HEALTH_STYLE, Line, StyledSpan, labelled, safe, wrap
from ldlm_monitor.screen.page_context import Curves, PageContext, current, speed, whole_duration
from ldlm_monitor.screen.triage import why
from ldlm_monitor.screen.widgets import Painted, in_thread

_LINES = 12  # of the log's end. A choice: a traceback's last frames; more displace the chart
_POINTS = 256  # buckets of the curve: the 2 dots of each cell of the widest card


class RunCard(Vertical):
    """The selected run, drawn again with each snapshot and each move of the cursor."""

    def __init__(self, context: PageContext) -> None:
        super().__init__(id="card")
        self._pages = context
        self._shown: tuple[str | None, int] = (None, -1)
        self._curves: Curves = {}
        self._lines: tuple[LogLine, ...] = ()

    def compose(self) -> ComposeResult:
        """Cause, chart, last lines."""
        yield Painted(self._cause, id="card-cause")
        yield Painted(self._chart, id="card-chart")
        yield Painted(self._log, id="card-log")

    def look(self) -> None:
        """Show the selected run, and query its curve and last lines if it has news."""
        run = self._pages.chosen()
        now = (run.name if run else None, self._pages.snapshot.version)
        if run is not None and now != self._shown:
            if now[0] != self._shown[0]:
                self._curves, self._lines = {}, ()
            self._shown = now
            in_thread(self, lambda: self._ask(run), self._take)
        if run is not None:
            lines = self._cause(self.size.width or 60, 12)
            self.query_one("#card-cause").styles.height = len(lines)
        for widget in self.query(Painted):
            widget.refresh()

    def _ask(self, run: RunView) -> tuple[Curves, tuple[LogLine, ...]]:
        curves = self._pages.curves([(run.name, "loss")], _POINTS)
        lines: tuple[LogLine, ...] = ()
        if run.files:
            lines = self._pages.source.log(LogQuery(path=run.files[0], before=_LINES)).lines
        return curves, lines

    def _take(self, found: tuple[Curves, tuple[LogLine, ...]]) -> None:
        self._curves, self._lines = found
        for widget in self.query(Painted):
            widget.refresh()

    def _cause(self, width: int, height: int) -> list[Line]:
        run, glyphs = self._pages.chosen(), self._pages.glyphs
        if run is None:
            return []
        style = HEALTH_STYLE[run.health]
        lines: list[Line] = [
            [
                StyledSpan(f" {glyphs.health[run.health]} {run.health}", style),
                StyledSpan(f"  {safe(run.name, glyphs)}", "title"),
                StyledSpan(f"  {run.unjudged(local_time) or run.state}", "dim"),
            ],
            [
                StyledSpan(f"  loss {number(current(run, 'loss'))}  {speed(run)}  "),
                StyledSpan(f"left {whole_duration(run.eta_seconds)}", "dim"),
            ],
        ]
        inner = max(width - 12, 10)  # cells beside the heads of `labelled`, and a margin
        if run.reasons:
            found = why(run, self._pages.snapshot)
            text = f"{found.what}{found.where}"
            lines += labelled("why", safe(text, glyphs), inner, style)
            for reason in run.reasons[1:3]:  # a choice: more displace the chart
                lines += labelled("", safe(reason.text, glyphs), inner, "dim")
            if todo := what_now(run, self._pages.snapshot.alerts):
                lines += labelled("to do", safe(todo, glyphs), inner, "title")
            if found.tries:
                lines += labelled("try", safe(found.tries, glyphs), inner, "dim")
        lines += ranks.verdict(run, glyphs)
        return lines

    def _chart(self, width: int, height: int) -> list[Line]:
        run, context = self._pages.chosen(), self._pages
        curve = self._curves.get((run.name, "loss")) if run else None
        if run is None or curve is None or not curve.steps:
            return [[StyledSpan(" no loss yet", "dim")]] if run else []
        marks = marks_of(run, curve, context.snapshot, context.glyphs)
        return draw_chart(
            Chart(curves=((curve, CURVES[0]),), marks=marks), width, height, context.glyphs
        )

    def _log(self, width: int, height: int) -> list[Line]:
        glyphs = self._pages.glyphs
        styles = {"error": "error", "warning": "warning"}
        rows: list[Line] = []
        for line in self._lines:
            rows += wrap(
                safe(line.text, glyphs), max(width - 2, 10), styles.get(line.level or "", "")
            )
        return [[StyledSpan(" "), *row] for row in rows[-height:]]
