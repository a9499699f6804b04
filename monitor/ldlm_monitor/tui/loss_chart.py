"""The loss of a run over its steps: a chart with a cursor, a window, and marks of events."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from ldlm_monitor.model.view import CurveView
from ldlm_monitor.text.format import local_time, number
from ldlm_monitor.tui.chart import AXIS, Chart, Mark, Viewport, draw_chart, nearest, step_of
from ldlm_monitor.tui.desk import Desk, OpenLog
from ldlm_monitor.tui.draw import CURVES, Line, StyledSpan, safe, width_of
from ldlm_monitor.tui.widgets import Painted

_SMOOTHINGS = (0.0, 0.9, 0.98)  # weights of the past: none, ~10, ~50 values. A choice: noise or lag


class LossChart(Painted, can_focus=True):
    """The loss over the steps, with marks of alerts and events below."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "cursor(-1)", "Cursor", show=False),
        Binding("right", "cursor(1)", "Cursor", show=False),
        # A quarter of the window is a choice: less takes more keys, more loses what was in view.
        Binding("shift+left", "pan(-0.25)", "Pan", show=False),
        Binding("shift+right", "pan(0.25)", "Pan", show=False),
        Binding("plus,equals_sign", "zoom(0.5)", "Zoom", key_display="+"),
        Binding("minus", "zoom(2)", "Zoom out", show=False),
        Binding("0", "whole", "Whole", show=False),
        Binding("l", "log_axis", "Log axis"),
        Binding("s", "smooth", "Smooth"),
        Binding("c", "components", "Components"),
        Binding("enter", "to_line", "Line"),
    ]

    def __init__(self, desk: Desk, *, id: str) -> None:  # noqa: A002
        super().__init__(self._lines, id=id)
        self._desk = desk
        self.chart = Chart(curves=())
        self._curves: Mapping[str, CurveView] = {}
        self._which = 0
        self._legend: Line = []
        self._dragged_from: tuple[int, Viewport] | None = None

    def show(self, curves: Mapping[str, CurveView]) -> None:
        """Draw curves of the loss and its components; `curves` has them by quantity."""
        self._curves = curves
        shown = self._shown()
        drawn = [(curves[name], style) for name, style in shown]
        self._legend = [StyledSpan(f" {safe(name)}", style) for name, style in shown]
        self._change(curves=drawn, marks=self._marks(drawn[0][0]) if drawn else ())

    def action_cursor(self, by: int) -> None:
        """Move the cursor by columns, left if below 0; a new one starts at the last step shown."""
        start, end = self.chart.view.within(*self.chart.span())
        one = (end - start) / max(self.size.width - AXIS - 1, 1)
        here = end if self.chart.cursor is None else self.chart.cursor + by * one
        self._change(cursor=max(min(here, end), start))

    def action_pan(self, share: float) -> None:
        """Move the window by a share of its width, to earlier steps if below 0."""
        self._change(view=self.chart.view.pan(share, *self.chart.span()))

    def action_zoom(self, factor: float, centre: float | None = None) -> None:
        """Show `factor` times as many steps around step `centre` (None: cursor or middle)."""
        span_of = self.chart.span()
        start, end = self.chart.view.within(*span_of)
        if centre is None:
            centre = self.chart.cursor if self.chart.cursor is not None else (start + end) / 2
        self._change(view=self.chart.view.zoom(factor, centre, *span_of))

    def action_whole(self) -> None:
        """Show the whole run, and remove the cursor."""
        self._change(view=Viewport(), cursor=None)

    def action_log_axis(self) -> None:
        """Switch between a linear and a logarithmic axis."""
        self._change(log_axis=not self.chart.log_axis)

    def action_smooth(self) -> None:
        """Change to the next strength of smoothing."""
        index = _SMOOTHINGS.index(self.chart.smoothing)
        self._change(smoothing=_SMOOTHINGS[(index + 1) % len(_SMOOTHINGS)])

    def action_components(self) -> None:
        """Draw the total, then each component, then all together."""
        self._which = (self._which + 1) % (len(self._curves) + 1 if len(self._curves) > 1 else 1)
        self.show(self._curves)

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
        self._change(cursor=self.chart.step_at(event.x, self.size.width))
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
            self._change(view=view.pan(share, *self.chart.span()))

    def _change(self, **changes: object) -> None:
        self.chart = replace(self.chart, **changes)  # type: ignore[arg-type]
        self.refresh()

    def _shown(self) -> list[tuple[str, str]]:
        """Names and styles of the curves to draw: the total, one component, or all of them."""
        names = sorted(self._curves, key=lambda name: (name != "loss", name))
        if names and self._which == len(names):
            return [(name, CURVES[i % len(CURVES)]) for i, name in enumerate(names)]
        self._which = min(self._which, max(len(names) - 1, 0))
        return [(name, CURVES[0]) for name in names[self._which :][:1]]

    def _marks(self, curve: CurveView) -> list[Mark]:
        """Events and alerts of the run, at their own step or at the step of their time."""
        snapshot, shown, glyphs = self._desk.snapshot, self._desk.run, self._desk.glyphs
        found: list[tuple[object, float | None, str]] = [
            (event.fields.get("step"), event.time, event.severity)
            for event in snapshot.events
            if event.run == shown and event.severity != "info"
        ]
        found += [
            (passed.step, passed.time, passed.labels.get("severity", "info"))
            for passed in snapshot.transitions
            if passed.labels.get("run") == shown and passed.state == "firing"
        ]
        marks = []
        for own, time, severity in found:
            step = float(own) if isinstance(own, int) else None
            if step is None and time is not None:
                step = step_of(curve, time)
            if step is not None and severity in glyphs.marks:
                marks.append(Mark(step, glyphs.marks[severity], severity))
        return marks

    def _lines(self, width: int, height: int) -> list[Line]:
        chart = self.chart
        title = self._legend or [StyledSpan(" no loss yet")]
        if chart.curves:
            title = title + self._reading(chart.curves[0][0])
        how = ["log"] if chart.log_axis else []
        how += [f"smoothed {chart.smoothing}"] if chart.smoothing else []
        how += ["zoomed"] if chart.view != Viewport() else []
        note = "  ".join(how)
        room = width - width_of(title) - len(note) - 1
        title = [*title, StyledSpan(" " * max(room, 1)), StyledSpan(note, "dim")]
        if not chart.curves:
            return [title]
        return [title, *draw_chart(chart, width, max(height - 1, 3), self._desk.glyphs)]

    def _reading(self, curve: CurveView) -> Line:
        step = self.chart.cursor
        index = nearest(curve, step) if step is not None else len(curve.steps) - 1
        if index is None or index < 0:
            return []
        low, high, mean = curve.lows[index], curve.highs[index], curve.means[index]
        line = [
            StyledSpan(f"  step {curve.steps[index]}  ", "dim"),
            StyledSpan(number(mean), "title"),
        ]
        if high > low:
            line.append(StyledSpan(f"  {number(low)} to {number(high)}", "dim"))
        if bad := curve.nonfinite[index]:
            line.append(StyledSpan(f"  {bad} not finite", "critical"))
        return [*line, StyledSpan(f"  {local_time(curve.times[index])}", "dim")]
