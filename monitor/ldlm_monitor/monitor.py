"""The corridor: bytes and time in, alert transitions out. Only this file knows the rooms' order."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ldlm_monitor.alert import Transition, VectorSample
from ldlm_monitor.alerts import (
    ActiveAlert,
    AlertRule,
    AlertStates,
    Ending,
    RuleSet,
    load_rules,
    packaged_rules,
)
from ldlm_monitor.chunk import Chunk
from ldlm_monitor.parse import Parser
from ldlm_monitor.points import Labels, Point, make_labels
from ldlm_monitor.promql import Evaluator, Expression, max_range, metric_names, parse, uses_time
from ldlm_monitor.records import Event, Record
from ldlm_monitor.run.fleet import Fleet, health_of
from ldlm_monitor.run.identity import RunNames
from ldlm_monitor.run.pace import StallSettings
from ldlm_monitor.run.witness import Witness
from ldlm_monitor.series.store import SeriesStore
from ldlm_monitor.view import AlertView, Health, MonitorView, RunView, Snapshot

RECENT_EVENTS = 500
URGENT_SECONDS = 1.0
"""The same urgent fact about a run is evaluated at once only this often."""
_STALL_METRICS = frozenset(
    {"ldlm_train_last_progress_timestamp_seconds", "ldlm_train_stall_limit_seconds"}
)


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """Seconds, all of them.

    `evaluation_interval`: the grid of scrapes and evaluations. `end_series_after`:
    how long a run's series stay after it finished, crashed or was killed.
    `retention`: how far back the embedded store reaches, beyond what rules need.
    """

    evaluation_interval: float = 5.0
    end_series_after: float = 900.0
    retention: float = 6 * 3600.0
    stall: StallSettings = field(default_factory=StallSettings)


class _Question:
    """What decides when a rule's expression must be asked again."""

    __slots__ = ("metrics", "needs_every_slot", "reach", "uses_time")

    def __init__(self, expr: Expression) -> None:
        self.metrics = metric_names(expr)
        self.reach = max_range(expr)
        self.uses_time = uses_time(expr)
        # Time alone can change it, other than at a stall limit, which runs announce.
        self.needs_every_slot = self.uses_time and not self.metrics >= _STALL_METRICS


@dataclass(frozen=True, slots=True)
class _Answer:
    at: float
    vector: list[VectorSample]


class Monitor:
    """Turns bytes and time into alert transitions.

    Deterministic: the same chunks and times give the same transitions. Starts no
    thread, reads no clock, opens no file but the packaged rules and patterns.
    """

    def __init__(
        self,
        *,
        rules: RuleSet[Expression] | None = None,
        parser: Parser | None = None,
        names: RunNames | None = None,
        settings: MonitorSettings | None = None,
        stopwatch: Callable[[], float] | None = None,
    ) -> None:
        """`stopwatch` (seconds, any origin) only times evaluations for the monitor's own metric."""
        self.names = names or RunNames()
        self._settings = settings or MonitorSettings()
        self._rules = rules if rules is not None else load_rules(packaged_rules(), parse)
        self._parser = parser or Parser()
        self._stopwatch = stopwatch
        self._alerts = AlertStates(self._rules)
        self._asked = {rule.expr.text: _Question(rule.expr) for rule in self._rules.rules}
        longest = max((asked.reach for asked in self._asked.values()), default=0.0)
        self._busy_seconds = longest
        interval = self._settings.evaluation_interval
        self._store = SeriesStore(interval, max(self._settings.retention, 2 * longest))
        self._evaluator = Evaluator(self._store)
        self._answers: dict[str, _Answer] = {}
        self._ticking = any(asked.needs_every_slot for asked in self._asked.values())
        self._runs = Fleet(self._settings.stall, self._settings.end_series_after)
        self._witness = Witness(self._runs)
        self._metrics = {rule.name: metric_names(rule.expr) for rule in self._rules.alerts}
        self._events: deque[Event] = deque(maxlen=RECENT_EVENTS)
        self._recorded: dict[str, list[VectorSample]] = {}
        self._urgent_at: dict[tuple[str, str], float] = {}
        self._clock = -math.inf
        self._next_slot = -math.inf
        self._busy_until = -math.inf
        self._version = 0
        self._evaluations = 0
        self._evaluation_seconds = 0.0

    @property
    def clock(self) -> float:
        """How far time has passed, Unix seconds; -inf before the first call."""
        return self._clock

    def feed(self, chunk: Chunk, now: float) -> list[Transition]:
        """Take in new bytes of one file, read at `now` (Unix seconds)."""
        origin = self.names.origin(chunk.path)
        self._witness.look_at(chunk)
        transitions = self.observe(self._parser.feed(chunk, origin, now), now)
        self._witness.keep_progress(origin.run)
        self._witness.look_at(None)
        return transitions

    def observe(self, records: Iterable[Record], now: float) -> list[Transition]:
        """Take in records, as read at `now`; one with its own time is judged at that time."""
        transitions: list[Transition] = []
        for record in records:
            at = now if record.time is None else min(record.time, now)
            transitions += self._advance(at)
            transitions += self._take(record, max(at, self._clock))
        return transitions

    def tick(self, now: float) -> list[Transition]:
        """Let time pass up to `now`: stalls, `for`, staleness, evaluations due."""
        transitions = self.observe(self._parser.tick(now), now)
        return transitions + self._advance(now)

    def finish(self, now: float, paths: Iterable[str] = ()) -> list[Transition]:
        """The files have ended at `now`: complete what was open and decide what was doubtful."""
        transitions: list[Transition] = []
        for path in paths:
            transitions += self.observe(self._parser.finish(path), now)
        transitions += self._advance(now)
        self._runs.finish(now)
        return transitions + self._evaluate(max(now, self._clock))

    def due(self) -> float | None:
        """When `tick` should be called at the latest, None if nothing is to come by itself."""
        slot = self._next_slot if self._wants_slot(self._next_slot) else None
        times = (self._parser.open_until(), self._alerts.due(), self._runs.due(), slot)
        earliest = min(time for time in times if time is not None)
        return None if math.isinf(earliest) else earliest

    def run_of(self, path: str) -> RunView | None:
        """The run that a file belongs to, None before its first record."""
        run = self._runs.get(self.names.origin(path).run)
        return None if run is None else run.view(self._health(run.name))

    def snapshot(self) -> Snapshot:
        """Everything a reader may see, as it stands at the last feed or tick."""
        counters = self._parser.counters
        return Snapshot(
            version=self._version,
            at=max(self._clock, 0.0),
            runs=tuple(run.view(self._health(run.name)) for run in self._runs),
            alerts=tuple(self._alert_views()),
            events=tuple(self._events),
            monitor=MonitorView(
                lines=counters.lines,
                bytes=counters.bytes,
                parse_errors=counters.parse_errors,
                evaluations=self._evaluations,
                evaluation_seconds=self._evaluation_seconds,
                records=dict(counters.records),
                dropped=self._dropped(),
            ),
            points=tuple(self._points(self._clock)),
        )

    def _take(self, record: Record, at: float) -> list[Transition]:
        run = self._runs.of(record, at)
        if isinstance(record, Event):
            self._events.append(record)
        rows = record.position.path.endswith(".jsonl")
        urgent = run.observe(record, at, rows=rows)
        self._changed(at)
        if urgent is None or not self._is_new(run.name, urgent, at):
            return []
        return self._evaluate(at)

    def _changed(self, at: float) -> None:
        self._version += 1
        self._busy_until = at + self._busy_seconds

    def _is_new(self, run: str, urgent: str, at: float) -> bool:
        if urgent == "state":
            return True
        last = self._urgent_at.get((run, urgent), -math.inf)
        if at - last < URGENT_SECONDS:
            return False
        self._urgent_at[run, urgent] = at
        return True

    def _advance(self, to: float) -> list[Transition]:
        """Let what falls due by itself up to `to` happen, each at its own time."""
        if to <= self._clock:
            return []
        transitions: list[Transition] = []
        interval = self._settings.evaluation_interval
        if math.isinf(self._next_slot):
            self._next_slot = math.ceil(to / interval) * interval
        while True:
            if not self._wants_slot(self._next_slot):
                self._next_slot = max(self._next_slot, math.ceil(to / interval) * interval)
            slot = self._next_slot if self._wants_slot(self._next_slot) else math.inf
            times = (slot, self._runs.due(), self._alerts.due())
            due = min(time for time in times if time is not None)
            if due > to:
                break
            transitions += self._evaluate(max(due, self._clock))
        self._clock = to
        return transitions

    def _wants_slot(self, slot: float) -> bool:
        if slot <= self._busy_until:
            return True
        return self._ticking and self._runs.active

    def _evaluate(self, at: float) -> list[Transition]:
        """Scrape our own metrics, then evaluate every rule, at `at`."""
        started = self._stopwatch() if self._stopwatch else 0.0
        if self._runs.tick(at):
            self._changed(at)
        interval = self._settings.evaluation_interval
        if at >= self._next_slot:
            self._next_slot = (math.floor(at / interval) + 1) * interval
        self._clock = max(self._clock, at)
        self._store.append(self._scraped(at), at)
        found = self._alerts.evaluate(self._ask, at, ending=self._ending, record=self._record)
        self._evaluations += 1
        if found:
            self._changed(at)
        if self._stopwatch:
            self._evaluation_seconds = self._stopwatch() - started
        return [self._witness.testify(each, self._metrics[each.alert]) for each in found]

    def _scraped(self, at: float) -> list[Point]:
        recorded = [
            Point(name, sample.labels, sample.value)
            for name, samples in self._recorded.items()
            for sample in samples
        ]
        return [*self._points(at), *recorded]

    def _ask(self, expr: Expression, at: float) -> list[VectorSample]:
        """The value of a rule's expression, computed only if it can differ from the last one."""
        asked = self._asked[expr.text]
        known = self._answers.get(expr.text)
        if known is not None and not asked.uses_time:
            still = self._store.changed_at(asked.metrics) < known.at - asked.reach
            if still:
                return known.vector
        vector = self._evaluator(expr, at)
        self._answers[expr.text] = _Answer(at, vector)
        return vector

    def _points(self, at: float) -> list[Point]:
        active = self._alerts.active.values()
        alerts = [Point("ldlm_alerts", _alert_labels(alert), 1.0) for alert in active]
        return [*self._runs.points(at, self._health), *alerts]

    def _record(self, name: str, samples: list[VectorSample], at: float) -> None:
        """Results of recording rules join the next scrape."""
        del at
        self._recorded[name] = samples

    def _ending(self, rule: AlertRule[Expression], labels: Mapping[str, str]) -> Ending:
        del rule
        run = self._runs.get(labels.get("run", ""))
        return "ended" if run is not None and run.life.ended else "resolved"

    def _health(self, run: str) -> Health:
        return health_of(
            active.labels.get("severity", "")
            for active in self._alerts.active.values()
            if active.state == "firing" and active.labels.get("run") == run
        )

    def _alert_views(self) -> list[AlertView]:
        views = []
        for active in self._alerts.active.values():
            views.append(
                AlertView(
                    name=active.rule.name,
                    state=active.state,
                    labels=dict(active.labels),
                    annotations=dict(active.annotations),
                    value=active.value,
                    active_at=active.active_at,
                    fired_at=active.fired_at,
                    position=self._witness.position(active.rule.name, active.labels),
                )
            )
        return views

    def _dropped(self) -> dict[str, int]:
        labels = sum(run.values.dropped for run in self._runs)
        return {"truncated": self._parser.counters.truncated, "label_limit": labels}


def _alert_labels(alert: ActiveAlert[Expression]) -> Labels:
    told = {**alert.labels, "alertname": alert.rule.name, "alertstate": alert.state}
    return make_labels(**told)
