"""The loss curve around an incident, as a PNG; needs matplotlib (extra `plots`)."""

import io
import math
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Final, TypeAlias

from ldlm_monitor.base.snapshot import CurveView
from ldlm_monitor.base.text.sanitize import plain
from ldlm_monitor.service.notify.message import Message

Curves: TypeAlias = Callable[[], Mapping[str, Mapping[str, CurveView]]]
"""Returns the current curves, by run and quantity."""

QUANTITY: Final = "loss"  # a choice: the curve that shows a failure of training best
BEFORE, AFTER = 150, 50
"""Buckets of the curve that are shown before and after the incident's begin: what led to it
matters more than what followed, and a picture of this width can show 200 points."""
LEAST = 3  # buckets that a curve needs to be drawn: two points are only a line
_SIZE, _DPI = (8.0, 3.5), 100
"""Inches and dots per inch: 800 x 350 pixels. A choice: legible on a phone, and a small file."""


def picture_of(curves: Curves) -> Callable[[Message], bytes | None]:
    """A function that draws the loss of a message's run; None without matplotlib or a curve."""

    def draw(message: Message) -> bytes | None:
        lead = message.lead
        curve = curves().get(lead.run, {}).get(QUANTITY)
        if curve is None or len(curve.steps) < LEAST or find_spec("matplotlib") is None:
            return None
        return loss_picture(curve, lead.started_at, lead.run, step=lead.step)

    return draw


def loss_picture(curve: CurveView, at: float, run: str, *, step: int | None = None) -> bytes:
    """The curve of `run` around an incident as a PNG, which marks it and non-finite values.

    The mark is at `step` if in the curve, else at the first bucket that arrived at `at` (Unix
    seconds) or later, or at the last one: inexact where many steps were read at once.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    center = _center(curve, at, step)
    window = range(max(0, center - BEFORE), min(len(curve.steps), center + AFTER))
    steps = [curve.steps[i] for i in window]
    figure = Figure(figsize=_SIZE, dpi=_DPI, layout="tight")
    axes = figure.add_subplot()
    lows, highs = ([_or_nan(values[i]) for i in window] for values in (curve.lows, curve.highs))
    axes.fill_between(steps, lows, highs, alpha=0.3, linewidth=0)
    axes.plot(steps, [_or_nan(curve.means[i]) for i in window], linewidth=1.2, label=QUANTITY)
    broken = [curve.steps[i] for i in window if curve.nonfinite[i]]
    if broken:
        bottom = axes.get_xaxis_transform()  # y is a share of the height: 0.02 is at the bottom
        axes.plot(broken, [0.02] * len(broken), "rx", transform=bottom, label="NaN or infinite")
    axes.axvline(curve.steps[center], color="red", linestyle="--", linewidth=1, label="incident")
    axes.set_xlabel("step")
    axes.set_ylabel(QUANTITY)
    axes.set_title(_title(run), parse_math=False)
    axes.legend(loc="best", fontsize="small")
    axes.grid(visible=True, alpha=0.3)
    FigureCanvasAgg(figure)
    png = io.BytesIO()
    figure.savefig(png, format="png")
    return png.getvalue()


def _center(curve: CurveView, at: float, step: int | None) -> int:
    last = len(curve.steps) - 1
    if step is not None and curve.steps[0] <= step <= curve.steps[last]:
        return next(i for i, begins in enumerate(curve.steps) if begins >= step)
    return next((i for i, came in enumerate(curve.times) if came >= at), last)


def _or_nan(value: float) -> float:
    """`value`, or NaN (a gap) for what cannot be drawn: matplotlib fails near a float's limits."""
    return value if math.isfinite(value) and abs(value) < 1e30 else math.nan


def _title(run: str) -> str:
    """The run's name in characters that every font can draw, 80 at most: the picture's width."""
    shown = plain(run, 80)
    return "".join(char if " " <= char <= "~" else "?" for char in shown)
