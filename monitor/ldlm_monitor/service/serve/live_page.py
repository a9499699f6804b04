"""The page at `/`: every run as it is now, the worst first. It is whole without its script."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from html import escape, unescape
from importlib.resources import files
from itertools import pairwise
from threading import Lock
from typing import Final, get_args

from ldlm_monitor.base.headline import Headline
from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.base.snapshot import (
    AlertView,
    CurveView,
    Health,
    InputView,
    RunView,
    Snapshot,
)
from ldlm_monitor.base.text.format import counted, duration, number
from ldlm_monitor.base.text.sanitize import plain, run_path
from ldlm_monitor.finished.live_script import age, live_script, script_policy
from ldlm_monitor.judge.core.headlines import headline_of

EVERY_SECONDS: Final = 2.0  # between two fetches by the page. A choice: sooner loads the monitor
NEWS_SECONDS: Final = 3600.0  # an end is new for this time, as messages treat it (contract, 5)
_POINTS: Final = 60  # of a sparkline. A choice: as many as pixels show, and few bytes for each run
_WIDE, _HIGH = 120, 28  # the sparkline's units
_SHOWN: Final = 300  # characters of a text. A choice: more fill a phone's screen
_LEVELS: Final[tuple[Health, ...]] = get_args(Health)
_MARKS: Final = {
    "READING": "◌",
    "HEALTHY": "●",
    "WARNING": "▲",
    "UNHEALTHY": "■",
    "CRITICAL": "◆",
}
"""Shapes beside the words of a health, for those who see no colours."""
_TAG: Final = re.compile(r"<[^>]*>")
_HIDDEN: Final = "<li hidden"
_LINKS: Final = ("metrics", "api/v1/runs", "api/v1/alerts", "api/v1/incidents", "-/ready")


@cache
def _style() -> str:
    return (files(__package__) / "live.css").read_text("utf-8")


def policy() -> str:
    """The page's content security policy: its own script and this server alone."""
    return script_policy(live_script(), connects=True)


class RowsOfPage:
    """The rows of the last snapshot, made once for all who ask within `EVERY_SECONDS`: each page
    is asked for anew at the same change.
    """

    def __init__(self, redact: Callable[[str], str], up: str = "") -> None:
        self._redact, self._up = redact, up
        self._lock = Lock()
        self._made: tuple[Snapshot, float, Sequence[str]] | None = None

    def of(self, snapshot: Snapshot, now: float) -> Sequence[str]:
        """The rows of a snapshot, with ages as of `now` (Unix seconds) or shortly before."""
        with self._lock:
            made = self._made
            if made is None or made[0] is not snapshot or not 0 <= now - made[1] < EVERY_SECONDS:
                rows = [*_rows(snapshot, self._redact, now, self._up)]
                self._made = made = snapshot, now, rows
        return made[2]


def live_page(
    snapshot: Snapshot,
    redact: Callable[[str], str],
    now: float | None = None,
    *,
    words: str = "",
    up: str = "",
    made: RowsOfPage | None = None,
) -> bytes:
    """The page as HTML at `now` (Unix seconds; None: the snapshot's time).

    `words`: only runs that have all of them are shown, which the script does by the same text, so
    that other words find the others; `up` leads from the page's folder to the root. `made` keeps
    the rows for the next page (None: nothing does).
    """
    now = snapshot.at if now is None else now
    wanted = words.lower().split()
    rows = [_sifted(row, wanted) for row in (made or RowsOfPage(redact, up)).of(snapshot, now)]
    shown = any(not row.startswith(_HIDDEN) for row in rows)
    title = _summary(snapshot.runs)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} - ldlm-monitor</title><style>{_style()}</style></head><body>"
        '<header><h1>ldlm-monitor</h1><form role="search" method="get">'
        '<label for="filter">Filter</label>'
        f'<input id="filter" name="q" type="search" value="{escape(words)}"'
        ' placeholder="name, state, reason" autocomplete="off"></form>'
        '<span id="live" role="status"></span></header>'
        f'<main data-now="{now:.3f}" data-every="{EVERY_SECONDS:g}"'
        f' data-stream="{up}api/v1/stream">'
        f"{_head(snapshot, title, now)}"
        f'<ul class="runs">{"".join(rows)}'
        f"<li data-none{' hidden' * shown}>{_nothing(snapshot)}</li></ul>"
        f"{_inputs(snapshot.inputs, redact)}</main>"
        f"<footer>{_links(up)}</footer><script>{live_script()}</script></body></html>\n"
    ).encode("utf-8", "replace")


def _head(snapshot: Snapshot, title: str, now: float) -> str:
    unjudged = f"<p>{escape(unjudged)}</p>" if (unjudged := snapshot.unjudged()) else ""
    clock = datetime.fromtimestamp(now, UTC).strftime("%H:%M:%S UTC") if now > 0 else "-"
    return (
        f'<h2>{escape(title)}</h2><p class="soft">as of {clock}, {age(now, now)} ago</p>{unjudged}'
    )


def _summary(runs: Sequence[RunView]) -> str:
    """How many runs there are of each health, and how many of the healthy ones have ended:
    `2 CRITICAL, 9 HEALTHY, 3 ended`.
    """
    ended = sum(run.ended_at is not None and run.health == "HEALTHY" for run in runs)
    seen = Counter(run.health for run in runs)
    seen["HEALTHY"] -= ended
    counts = [f"{seen[health]} {health}" for health in reversed(_LEVELS) if seen[health]]
    over = [f"{ended} ended"] if ended else []
    return f"{counted(len(runs), 'run')}: {', '.join(counts + over)}" if runs else "no run yet"


def _sifted(row: str, wanted: Sequence[str]) -> str:
    """The row, hidden unless its text (`textContent` for the script) has all words."""
    text = unescape(_TAG.sub("", row)).lower() if wanted else ""
    is_found = all(word in text for word in wanted)
    return row if is_found else row.replace("<li", _HIDDEN, 1)


def _rows(snapshot: Snapshot, redact: Callable[[str], str], now: float, up: str) -> Iterator[str]:
    """A row for each run, the worst first."""
    alerts: dict[str, list[AlertView]] = {}
    incidents: dict[str, list[IncidentView]] = {}
    for alert in snapshot.alerts:
        alerts.setdefault(alert.labels.get("run", ""), []).append(alert)
    for incident in snapshot.incidents:
        incidents.setdefault(incident.run, []).append(incident)
    for run in sorted(snapshot.runs, key=lambda run: _place(run, now)):
        own = alerts.get(run.name, []), incidents.get(run.name, [])
        found = headline_of(run, *own)
        curve = snapshot.curves.get(run.name, {}).get("loss")

        def shown(text: str) -> str:
            return plain(redact(text), _SHOWN)

        link = f'<a href="{escape(up + run_path(run.name)[1:])}">{escape(shown(run.name))}</a>'
        yield _row(run, link, _why(run, found, shown), _spark(curve), now)


def _place(run: RunView, now: float) -> tuple[float | str, ...]:
    """Its place: new failures, the worst and newest first; what runs; what has ended."""
    worst, ended = -_LEVELS.index(run.health), run.ended_at
    is_ill = run.health not in ("HEALTHY", "READING") or bool(run.reasons)
    if is_ill and (ended is None or now - ended <= NEWS_SECONDS):
        since = run.reasons[0].since if run.reasons else ended
        return 0, worst, -(since or 0.0), run.name
    return (1, worst, 0.0, run.name) if ended is None else (2, 0, -ended, run.name)


def _why(run: RunView, found: Headline | None, shown: Callable[[str], str]) -> str:
    if found is None:
        return run.unjudged()
    return shown(f"{found.what}{found.where}{run.others if run.reasons else ''}{found.tail}")


def _row(run: RunView, link: str, why: str, spark: str, now: float) -> str:
    facts = "".join(f"<span>{fact}</span>" for fact in _facts(run, now))
    said = f'<p class="why">{escape(why)}</p>' if why else ""
    badge = f'<span class="badge">{_MARKS[run.health]} {run.health}</span>'
    return (
        f'<li data-row class="run {run.health}{" over" if run.ended_at is not None else ""}">'
        f'<div class="name">{badge} {link}</div>'
        f'{said}<div class="facts">{facts}</div>{spark}</li>'
    )


def _facts(run: RunView, now: float) -> Iterator[str]:
    """State, step, loss, pace, time left and ages; what is not known is left out."""
    yield escape(run.state)
    if run.step is not None:
        total = f"/{run.total_steps}" if run.total_steps else ""
        share = f" ({100 * run.progress:.0f} %)" if run.progress is not None else ""
        yield f"step {run.step}{total}{share}"
    if loss := run.statistics.get("loss"):
        yield f"loss {escape(number(loss.current, 4))}"
    if run.ended_at is not None:
        yield f"ended {run.about(run.ended_at)}{age(run.ended_at, now)} ago"
        return
    if run.step_seconds:
        yield f"{duration(run.step_seconds)} a step"
    left = duration(run.eta_seconds) if run.eta_seconds is not None else "-"
    yield f"left {left}" if run.total_steps else ""
    if run.last_progress_at is not None and run.health != "READING":
        at = run.last_progress_at
        yield f"last step {run.about(at)}{age(at, now)} ago"


def _spark(curve: CurveView | None) -> str:
    """The loss over its steps as a small line; where it was not finite, a stroke in red."""
    if curve is None or len(curve.steps) < 2:
        return ""
    columns = [*_resampled(curve.means, curve.nonfinite)]
    values = sorted(mean for mean, _ in columns if math.isfinite(mean))
    if not values:
        return ""
    low, high = values[0], values[min(len(values) - 1, int(len(values) * 0.98))]
    tall = (high - low) or 1.0
    across = _WIDE / max(len(columns) - 1, 1)

    def at(index: int, mean: float) -> str:
        share = min(max((mean - low) / tall, 0.0), 1.0)
        return f"{index * across:.1f} {1 + (_HIGH - 2) * (1 - share):.1f}"

    places = [(i, mean) for i, (mean, _) in enumerate(columns) if math.isfinite(mean)]
    starts = {places[0][0], *(b for (a, _), (b, _) in pairwise(places) if b > a + 1)}
    path = "".join(f"{'M' if i in starts else 'L'}{at(i, mean)}" for i, mean in places)
    gone = [i for i, (_, is_bad) in enumerate(columns) if is_bad]
    bad = "".join(f"M{i * across:.1f} {_HIGH}h{across:.1f}" for i in gone)
    marks = f'<path class="bad" d="{bad}"/>' if bad else ""
    first, last = places[0][1], places[-1][1]
    said = f"loss from {number(first, 4)} to {number(last, 4)}"
    said += ", then not finite" if columns[-1][1] else ", not finite in between" if bad else ""
    return (
        f'<svg class="spark" viewBox="0 0 {_WIDE} {_HIGH}" preserveAspectRatio="none" role="img"'
        f' aria-label="{said}"><path d="{path}"/>{marks}</svg>'
    )


def _resampled(means: Sequence[float], nonfinite: Sequence[int]) -> Iterator[tuple[float, bool]]:
    """Up to `_POINTS` columns: the mean of the finite values, and whether others were among."""
    count = min(len(means), _POINTS)
    bounds = [len(means) * i // count for i in range(count + 1)]
    for start, end in pairwise(bounds):
        known = [mean for mean in means[start:end] if math.isfinite(mean)]
        mean = math.fsum(known) / len(known) if known else math.nan
        yield mean, any(nonfinite[start:end])


def _nothing(snapshot: Snapshot) -> str:
    return "no run has these words" if snapshot.runs else "no run yet"


def _inputs(inputs: Iterable[InputView], redact: Callable[[str], str]) -> str:
    rows = "".join(
        f"<li>{escape(plain(redact(each.name), _SHOWN))}: {escape(each.state)}</li>"
        for each in inputs
    )
    return f'<section><h2>Inputs without a run</h2><ul class="soft">{rows}</ul></section>' * bool(
        rows
    )


def _links(up: str) -> str:
    return " ".join(f'<a href="{up}{link}">/{link}</a>' for link in _LINKS)
