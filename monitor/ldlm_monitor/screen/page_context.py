"""What all pages share: the last snapshot, values of its runs and alerts, messages to the app."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from textual.message import Message
from textual.worker import get_current_worker

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.names import RATES, RUN_FINISHED, severity_rank
from ldlm_monitor.base.queries import Source
from ldlm_monitor.base.records import Position
from ldlm_monitor.base.snapshot import AlertView, CurveView, RunView, Snapshot
from ldlm_monitor.base.text.format import duration, local_time, si_number
from ldlm_monitor.screen.draw import UNICODE, Glyphs, safe

_UNITS = ("tok/s", "smp/s", "step/s")  # of `RATES`
Curves: TypeAlias = dict[tuple[str, str], CurveView]  # by run and quantity
HeldBack: TypeAlias = dict[str, list[dict[str, Any]]]  # `silences` and `acks`, as in the API


@dataclass(slots=True)
class Arrangement:
    """What the overview shows: runs with all `words`, sorted by a `column` ("": by triage)."""

    words: str = ""
    column: str = ""
    is_reversed: bool = False
    hides_ended: bool = False


@dataclass(slots=True)
class PageContext:
    """The last snapshot, the source that returns newer ones, the name of the selected `run`.

    `clock`: Unix seconds. `glyphs`: the terminal's. `held_back`: silences and acknowledgements.
    `seen`: when a run's failure was acknowledged here. `marked`: runs to draw together. `redraw`
    draws the page again. `changed_keys`: configured keys by their identifiers.
    """

    source: Source
    clock: Callable[[], float]
    snapshot: Snapshot
    glyphs: Glyphs = UNICODE
    run: str | None = None
    held_back: HeldBack = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)
    marked: dict[str, None] = field(default_factory=dict)
    arrangement: Arrangement = field(default_factory=Arrangement)
    redraw: Callable[[], object] = lambda: None
    changed_keys: dict[str, str] = field(default_factory=dict)

    def chosen(self) -> RunView | None:
        """The selected run; None if the snapshot has no run of that name."""
        return next((run for run in self.snapshot.runs if run.name == self.run), None)

    def about(self, run: str | None, *times: float | None) -> str:
        """The mark of times of the run of this name that are guesses; "" if they are none."""
        found = next((each for each in self.snapshot.runs if each.name == run), None)
        return safe(found.about(*times), self.glyphs) if found is not None else ""

    def local_time(self, run: str | None, at: float | None) -> str:
        """Local date and time of a run; of a guess, which is marked, without seconds."""
        about, shown = self.about(run, at), local_time(at)
        return about + shown[:-3] if about else shown

    def curves(self, wanted: Iterable[tuple[str, str]], points: int) -> Curves:
        """Logged curves of `wanted`, in at most `points` buckets. May block; raises UsageError."""
        found: Curves = {}
        for run, quantity in wanted:
            if get_current_worker().is_cancelled:
                break
            if curve := self.source.series(run, quantity, None, None, points):
                found[run, quantity] = curve
        return found


@dataclass
class OpenRun(Message):
    """Asks the app to show the page of the run with this name."""

    run: str


@dataclass
class SelectRun(Message):
    """Makes the run with this name the one on which all pages act."""

    run: str


@dataclass
class OpenLog(Message):
    """Asks the app to show the line of a log at this position."""

    position: Position


def speed(run: RunView) -> str:
    """The run's throughput in the unit of its log, or from the step time; `-` if not known."""
    for name, unit in zip(RATES, _UNITS, strict=True):
        if known := run.statistics.get(name):
            return f"{si_number(known.current)} {unit}"
    seconds = run.step_seconds
    return f"{si_number(1 / seconds)} step/s" if seconds else "-"


def baseline(run: RunView) -> str:
    """The present throughput in percent of the run's usual one; empty if the latter is unknown."""
    ratio = run.detected.get("throughput_ratio")
    return "" if ratio is None or not math.isfinite(ratio) else f"{ratio * 100:.0f}%"


def current(run: RunView, quantity: str) -> float | None:
    """The last value of a quantity; None if the run has no statistics of it."""
    known = run.statistics.get(quantity)
    return known.current if known else None


def age(run: RunView, now: float) -> tuple[str, str]:
    """Time since the last step and stall limit, as `12s/2m`, and a style; `now`: Unix seconds."""
    if run.ended_at is not None:
        return f"ended {run.about(run.ended_at)}{whole_duration(now - run.ended_at)} ago", "dim"
    if run.last_progress_at is None:
        return "-", "dim"
    waited = run.about(run.last_progress_at) + whole_duration(now - run.last_progress_at)
    limit = run.stall_limit_seconds
    return f"{waited}/{whole_duration(limit)}" if limit else waited, age_style(run, now)


def age_style(run: RunView, now: float) -> str:
    """The style of the time since the last step, by its share of the stall limit."""
    if run.last_progress_at is None or run.stall_limit_seconds is None:
        return ""
    # A warning from half the limit on, a choice: less would warn of slow steps, more late.
    share = (now - run.last_progress_at) / run.stall_limit_seconds
    return "critical" if share >= 1 else "warning" if share >= 0.5 else ""


def whole_duration(seconds: float | None) -> str:
    """A duration in whole seconds, since fractions would flicker; `-` if None or not finite."""
    return duration(round(seconds) if seconds is not None and math.isfinite(seconds) else None)


def alerts_of(run: str, alerts: Iterable[AlertView]) -> list[AlertView]:
    """The firing alerts of the run with this name, the worst severity first."""
    firing = (each for each in alerts if each.state == "firing" and is_trouble(each))
    found = [alert for alert in firing if alert.labels.get("run") == run]
    return sorted(found, key=lambda alert: -severity_rank(severity_of(alert)))


def severity_of(alert: AlertView | Transition) -> str:
    """The alert's severity; empty if it has none."""
    return alert.labels.get("severity", "")


def is_trouble(alert: AlertView | Transition) -> bool:
    """False for a watchdog (severity `none`), which always fires to show that alerting works, and
    for the news that a run has finished, which its state shows.
    """
    name = alert.alert if isinstance(alert, Transition) else alert.name
    return severity_of(alert) != "none" and name != RUN_FINISHED
