"""Any quantity of a run over its steps: a chart with a cursor, a window, and marks of events.

Zoomed in, the source is asked for the window in detail: in memory a long run has only means.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from ldlm_monitor.base.snapshot import CurveView, RunView
from ldlm_monitor.base.text.format import number
from ldlm_monitor.screen.axis import ALONG, Along, along_axis, is_loss, label_along, metrics
from ldlm_monitor.screen.chart import AXIS, Chart, Viewport, draw_chart, marks_of, nearest, placed
from ldlm_monitor.screen.draw import CURVES, Line, StyledSpan, safe, width_of
from ldlm_monitor.screen.keys import Key, keys
from ldlm_monitor.screen.page_context import Curves, OpenLog, PageContext
from ldlm_monitor.screen.triage import middle_cut
from ldlm_monitor.screen.widgets import Painted, in_thread

_SMOOTHINGS = (0.0, 0.9, 0.98)  # weights of the past: none, ~10, ~50 values. A choice: noise or lag
_POINTS = 1024  # buckets of a window in detail: the 2 dots of each cell, up to 512 columns
_LEGEND = 24  # cells of a run's name. A choice: five names fit a wide screen


class MetricChart(Painted, can_focus=True):
    """A quantity over the steps, with marks of alerts and events below."""

    BINDINGS: ClassVar[list[BindingType]] = keys(
        "Run",
        Key(
            "left", "cursor(-1)", "Cursor left", "a cursor over the steps, read above", "left right"
        ),
        Key("right", "cursor(1)", "Cursor right"),
        # A quarter of the window is a choice: less takes more keys, more loses what was in view.
        Key(
            "shift+left", "pan(-0.25)", "Pan left", "move the window; dragging does", "Shift+arrows"
        ),
        Key("shift+right", "pan(0.25)", "Pan right"),
        Key("plus,equals_sign", "zoom(0.5)", "Zoom", "zoom in, out; the wheel does", "+ -", True),
        Key("minus", "zoom(2)", "Zoom out"),
        Key("0", "whole", "Whole run", "the whole run", "0"),
        Key("v", "metric(1)", "Metric", "another quantity, such as grad norm", "v V", True),
        Key("V", "metric(-1)", "Metric before"),
        Key("z", "full", "Full screen", "the chart on the whole page, and back", "z"),
        Key("l", "log_axis", "Log axis", "linear or logarithmic axis", "l"),
        Key("s", "smooth", "Smooth", "smoothing, above the raw values: none, 0.9, 0.98", "s"),
        Key("c", "components", "Components", "components of the loss: total, each, all", "c"),
        Key("x", "along", "Axis", "by step, by time, or by tokens", "x"),
        Key("enter", "to_line", "Line", "the line of the log at the cursor", "Enter", True),
    )

    def __init__(self, context: PageContext, *, id: str) -> None:  # noqa: A002
        super().__init__(self._lines, id=id)
        self._pages = context
        self.chart = Chart(curves=())
        self._curves: Mapping[str, CurveView] = {}
        self._others: Curves = {}
        self._fine: tuple[Viewport, str, Mapping[str, CurveView]] = (Viewport(), "", {})
        self._which = 0
        self.metric = "loss"
        self._along: Along = "step"
        self._legend: Line = []
        self._dragged_from: tuple[int, Viewport] | None = None

    def show(self, curves: Mapping[str, CurveView], others: Curves | None = None) -> None:
        """Draw the selected run's `curves`, by quantity; `others` are those of picked runs."""
        self._curves, self._others = curves, others or {}
        if self._curves and self.metric not in metrics(self._curves):
            self.metric = metrics(self._curves)[0]
        self._arrange()
        self._ask_detail()

    def _arrange(self) -> None:
        run = self._pages.chosen()
        if run is None:
            return
        names = self._shown()
        view, of, fine = self._fine
        is_fine = view == self.chart.view and of == run.name
        rates = {run.name: self._curves.get("tokens_per_second")} | {
            name: curve for (name, what), curve in self._others.items() if what != self.metric
        }
        drawn, legend = [], []
        for name, style in names:
            curve = fine.get(name) if is_fine else None
            curve = curve or self._curves[name]
            if name == "eval_loss" and "loss" in self._curves:
                curve = placed(curve, self._curves["loss"])
            drawn.append((along_axis(curve, self._along, rates[run.name]), style))
            legend.append(StyledSpan(f" {safe(name)}", style))
        for index, ((name, what), curve) in enumerate(self._others.items()):
            if what == self.metric and name != run.name:
                style = CURVES[(index + 1) % len(CURVES)]
                drawn.append((along_axis(curve, self._along, rates.get(name)), style))
                shown = middle_cut(safe(name), min(len(name), _LEGEND), self._pages.glyphs)
                legend.append(StyledSpan(f" {shown}", style))
        self._legend = legend
        marks = self._marks(run, names[0][0]) if names else ()
        whole = Chart(curves=[(self._curves[name], "") for name, _ in names]).span()
        is_alone = self._along == "step" and len(drawn) == len(names)
        self._set(curves=drawn, marks=marks, along=self._along, whole=whole if is_alone else None)

    def _marks(self, run: RunView, quantity: str) -> object:
        if self._along != "step":
            return ()
        return marks_of(run, self._curves[quantity], self._pages.snapshot, self._pages.glyphs)

    def action_cursor(self, by: int) -> None:
        """Move the cursor by columns, left if below 0; a new one starts at the last step shown."""
        start, end = self.chart.view.within(*self.chart.span())
        one = (end - start) / max(self.size.width - AXIS - 1, 1)
        here = end if self.chart.cursor is None else self.chart.cursor + by * one
        self._set(cursor=max(min(here, end), start))

    def action_pan(self, share: float) -> None:
        """Move the window by a share of its width, to earlier steps if below 0."""
        self._look_at(self.chart.view.pan(share, *self.chart.span()))

    def action_zoom(self, factor: float, centre: float | None = None) -> None:
        """Show `factor` times as many steps around step `centre` (None: cursor or middle)."""
        span_of = self.chart.span()
        start, end = self.chart.view.within(*span_of)
        if centre is None:
            centre = self.chart.cursor if self.chart.cursor is not None else (start + end) / 2
        self._look_at(self.chart.view.zoom(factor, centre, *span_of))

    def action_whole(self) -> None:
        """Show the whole run, and remove the cursor."""
        self._look_at(Viewport())
        self._set(cursor=None)

    def action_metric(self, by: int) -> None:
        """Show the next quantity, or if `by` is below 0 the one before."""
        if found := metrics(self._curves):
            here = found.index(self.metric) if self.metric in found else 0
            self.metric = found[(here + by) % len(found)]
            self._pages.redraw()
            self.show(self._curves, self._others)

    def action_full(self) -> None:
        """Show the chart on the whole page, or the other parts again."""
        self.screen.toggle_class("full")

    def action_log_axis(self) -> None:
        """Switch between a linear and a logarithmic axis."""
        self._set(log_axis=not self.chart.log_axis)

    def action_smooth(self) -> None:
        """Change to the next strength of smoothing."""
        index = _SMOOTHINGS.index(self.chart.smoothing)
        self._set(smoothing=_SMOOTHINGS[(index + 1) % len(_SMOOTHINGS)])

    def action_components(self) -> None:
        """Draw the total, then each component, then all together."""
        count = sum(is_loss(name) for name in self._curves)
        self._which = (self._which + 1) % (count + 1 if count > 1 else 1)
        self.metric = "loss" if count else self.metric
        self._arrange()

    def action_along(self) -> None:
        """Draw over steps, over time since the run's start, or over tokens."""
        self._along = ALONG[(ALONG.index(self._along) + 1) % len(ALONG)]
        self._pages.redraw()
        self.action_whole()
        self._arrange()

    def action_to_line(self) -> None:
        """Open the log at the line of the cursor's step, or without a cursor of the last step."""
        if not self.chart.curves:
            return
        curve = self.chart.curves[0][0]
        step = self.chart.cursor if self.chart.cursor is not None else self.chart.span()[1]
        index = nearest(curve, step)
        if index is not None:
            self.post_message(OpenLog(curve.position(index)))

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the pointer; a double click opens the line of its step."""
        self._set(cursor=self.chart.step_at(event.x, self.size.width))
        if event.chain > 1:
            self.action_to_line()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Zoom in at the pointer, by less than the key `+`: a wheel turns several notches."""
        self.action_zoom(0.8, self.chart.step_at(event.x, self.size.width))
        event.stop()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Zoom out at the pointer, by the inverse of the factor that zooms in."""
        self.action_zoom(1.25, self.chart.step_at(event.x, self.size.width))
        event.stop()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Start to drag the window."""
        self._dragged_from = (event.x, self.chart.view)
        self.capture_mouse()

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """Stop dragging."""
        self._dragged_from = None
        self.release_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Drag the window."""
        if self._dragged_from is not None:
            x, view = self._dragged_from
            share = (x - event.x) / max(self.size.width - AXIS, 1)
            self._look_at(view.pan(share, *self.chart.span()))

    def _look_at(self, view: Viewport) -> None:
        if view != self.chart.view:
            self._set(view=view)
            self._arrange()
            self._ask_detail()

    def _set(self, **changes: object) -> None:
        self.chart = replace(self.chart, **changes)  # type: ignore[arg-type]
        self.refresh()

    def _ask_detail(self) -> None:
        """Query the window in detail, if it is one: the coarse curve is shown until then."""
        view, run = self.chart.view, self._pages.run or ""
        if view == Viewport() or self._along != "step":
            return
        start, end = (round(each) for each in view.within(*self.chart.span()))
        wanted = [name for name, _ in self._shown() if name != "eval_loss"]
        source = self._pages.source

        def ask() -> Mapping[str, CurveView]:
            found = {
                name: source.series(run, name, max(start - 1, 0), end + 1, _POINTS)
                for name in wanted
            }
            return {name: curve for name, curve in found.items() if curve is not None}

        def take(found: Mapping[str, CurveView]) -> None:
            self._fine = view, run, found
            self._arrange()

        in_thread(self, ask, take, group="detail")

    def _shown(self) -> list[tuple[str, str]]:
        """Names and styles of the run's curves to draw: a quantity, or components of the loss."""
        if self.metric != "loss":
            return [(self.metric, CURVES[0])] if self.metric in self._curves else []
        names = sorted(filter(is_loss, self._curves), key=lambda name: (name != "loss", name))
        if names and self._which == len(names):
            return [(name, CURVES[i % len(CURVES)]) for i, name in enumerate(names)]
        self._which = min(self._which, max(len(names) - 1, 0))
        found = [(name, CURVES[0]) for name in names[self._which :][:1]]
        if found and "eval_loss" in self._curves and self._which == 0:
            found.append(("eval_loss", CURVES[1]))
        return found

    def _lines(self, width: int, height: int) -> list[Line]:
        chart = self.chart
        title = self._legend or [StyledSpan(" no loss yet")]
        if chart.curves:
            title = title + self._reading(chart.curves[0][0])
        how = ["log"] if chart.log_axis else []
        how += [f"smoothed {chart.smoothing}"] if chart.smoothing else []
        how += [f"by {chart.along}"] if chart.along != "step" else []
        how += ["zoomed"] if chart.view != Viewport() else []
        note = "  ".join(how)
        room = width - width_of(title) - len(note) - 1
        title = [*title, StyledSpan(" " * max(room, 1)), StyledSpan(note, "dim")]
        if not chart.curves:
            return [title]
        return [title, *draw_chart(chart, width, max(height - 1, 3), self._pages.glyphs)]

    def _reading(self, curve: CurveView) -> Line:
        step = self.chart.cursor
        index = nearest(curve, step) if step is not None else len(curve.steps) - 1
        if index is None or index < 0:
            return []
        low, high, mean = curve.lows[index], curve.highs[index], curve.means[index]
        place = label_along(curve.steps[index], self._along)
        line = [
            StyledSpan(f"  {self._along} {place}  ", "dim"),
            StyledSpan(number(mean), "title"),
        ]
        if high > low:
            line.append(StyledSpan(f"  {number(low)} to {number(high)}", "dim"))
        if bad := curve.nonfinite[index]:
            line.append(StyledSpan(f"  {bad} not finite", "critical"))
        at = self._pages.local_time(self._pages.run, curve.times[index])
        return [*line, StyledSpan(f"  {at}", "dim")]
