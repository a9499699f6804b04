"""The loss curve around an incident, as a PNG; needs matplotlib (extra `plots`)."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from ldlm_monitor.notify.message import Message
from ldlm_monitor.notify.redact import plain, redact
from ldlm_monitor.view import CurveView

Curves: TypeAlias = Callable[[], Mapping[str, Mapping[str, CurveView]]]
"""The curves as they stand now, by run and quantity."""

QUANTITY: Final = "loss"
BEFORE, AFTER = 150, 50
"""Buckets of the curve that are shown before and after the incident's begin."""
LEAST = 3
"""Fewer make no curve."""
_SIZE = (8.0, 3.5)
_DPI = 100


def picture_of(curves: Curves) -> Callable[[Message], bytes | None]:
    """Draws the loss of a message's run; None where it has none, or matplotlib is missing."""

    def draw(message: Message) -> bytes | None:
        curve = curves().get(message.lead.run, {}).get(QUANTITY)
        if curve is None or len(curve.steps) < LEAST:
            return None
        try:
            import matplotlib as _  # noqa: F401
        except ImportError:
            return None
        return loss_picture(curve, message.lead.started_at, message.lead.run)

    return draw


def loss_picture(curve: CurveView, at: float, run: str) -> bytes:
    """The curve around `at` (Unix seconds), with what was not finite and the incident marked."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    window = _window(curve, at)
    steps = [curve.steps[i] for i in window]
    figure = Figure(figsize=_SIZE, dpi=_DPI, layout="tight")
    axes = figure.add_subplot()
    lows, highs = ([_or_nan(values[i]) for i in window] for values in (curve.lows, curve.highs))
    axes.fill_between(steps, lows, highs, alpha=0.3, linewidth=0)
    axes.plot(steps, [_or_nan(curve.means[i]) for i in window], linewidth=1.2, label=QUANTITY)
    broken = [curve.steps[i] for i in window if curve.nonfinite[i]]
    if broken:
        bottom = axes.get_xaxis_transform()
        axes.plot(broken, [0.02] * len(broken), "rx", transform=bottom, label="NaN or infinite")
    axes.axvline(_step_at(curve, at), color="red", linestyle="--", linewidth=1, label="incident")
    axes.set_xlabel("step")
    axes.set_ylabel(QUANTITY)
    axes.set_title(_title(run), parse_math=False)
    axes.legend(loc="best", fontsize="small")
    axes.grid(visible=True, alpha=0.3)
    FigureCanvasAgg(figure)
    png = io.BytesIO()
    figure.savefig(png, format="png")
    return png.getvalue()


def _window(curve: CurveView, at: float) -> range:
    count = len(curve.steps)
    center = next((i for i in range(count) if curve.times[i] >= at), count - 1)
    return range(max(0, center - BEFORE), min(count, center + AFTER))


def _step_at(curve: CurveView, at: float) -> int:
    count = len(curve.steps)
    return curve.steps[next((i for i in range(count) if curve.times[i] >= at), count - 1)]


def _or_nan(value: float) -> float:
    """Beyond what can be drawn is a gap."""
    return value if math.isfinite(value) and abs(value) < 1e30 else math.nan


def _title(run: str) -> str:
    """Only what every font can draw."""
    shown = redact(plain(run))[:80]
    return "".join(char if " " <= char <= "~" else "?" for char in shown)
