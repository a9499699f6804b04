"""Turns bytes and time into alert transitions, by the packages that parse and judge."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.base.points import RETENTION, Point
from ldlm_monitor.base.records import Event, Record, SampleBlock, TimedRows
from ldlm_monitor.base.snapshot import AlertView, HostView, RunView, Snapshot
from ldlm_monitor.judge.core.change_headlines import ChangeHeadlines
from ldlm_monitor.judge.core.evaluation_schedule import EvaluationSchedule, EvaluationThrottle
from ldlm_monitor.judge.core.explanation import EvidenceFinder, Explainer, facts_from, with_rank
from ldlm_monitor.judge.core.packaged_rules import packaged_set
from ldlm_monitor.judge.core.past_alerts import PastAlerts
from ldlm_monitor.judge.core.recent_records import RecentRecords, alerted_run
from ldlm_monitor.judge.core.rows_in_order import RowsInOrder
from ldlm_monitor.judge.core.rule_engine import RuleEngine
from ldlm_monitor.judge.core.run_decisions import decided, last_word
from ldlm_monitor.judge.core.run_health import HealthBook
from ldlm_monitor.judge.core.self_metrics import NO_HOSTS, SelfCounts, core_points
from ldlm_monitor.judge.core.unchecked import checks_of, not_checked
from ldlm_monitor.judge.detect import DetectorsByRun
from ldlm_monitor.judge.incidents import Incidents
from ldlm_monitor.judge.run.fleet import Fleet
from ldlm_monitor.judge.run.stall import Stall
from ldlm_monitor.judge.run.training_run import TrainingRun
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.parse.meanings import meaning_of
from ldlm_monitor.logs.parse.run_names import RunNames
from ldlm_promrules.alerting import NO_CONTEXT, Context, RuleSet
from ldlm_promrules.promql import Expression

RECENT = 500  # events, and transitions, in a snapshot. A choice: more to read, more to copy


class Monitor:
    """Turns bytes and time into alert transitions.

    Deterministic: the same chunks and times give the same transitions. Starts no thread, reads no
    clock, opens no file but the packaged rules and patterns. `runs`: those that have records.
    `own`: counters of the monitor's work. `clock`: the time up to which everything was judged, Unix
    seconds; -inf before the first. `ahead`: seconds added to records' times while the wall clock is
    behind. `version` counts changes of snapshots. `engine`: rules and store.
    """

    def __init__(
        self,
        *,
        rules: RuleSet[Expression] | None = None,
        parser: Parser | None = None,
        names: RunNames | None = None,
        evaluation_interval: float = 5.0,
        end_series_after: float = 900.0,
        retention: float = RETENTION,
        stall: Stall | None = None,
        stopwatch: Callable[[], float] | None = None,
        context: Context = NO_CONTEXT,
    ) -> None:
        """Durations are seconds, defaults those of `config.Settings`; `rules` None: the packaged.

        `evaluation_interval`: between two scrapes, each followed by an evaluation. `stopwatch`
        times these. `end_series_after`: series stay so long after an end. `retention`: samples are
        kept so long, or as long as rules look back. `context`: of templates.
        """
        self.names = names or RunNames()
        self.parser = parser or Parser()
        self._stopwatch = stopwatch
        self.runs = Fleet(stall or Stall(), end_series_after)
        self.engine = RuleEngine(rules or packaged_set(), evaluation_interval, context, retention)
        self._schedule = EvaluationSchedule(evaluation_interval, self.engine, self.runs)
        self.evidence = EvidenceFinder(self.runs)
        self._incidents = Incidents(facts_from(self.runs))
        self._health = HealthBook(self.runs, self._incidents, self._last_word)
        self._past, self._checks = PastAlerts(), checks_of(rules or packaged_set())
        self._explainer = Explainer(self._incidents, self._health)
        self._headlines = ChangeHeadlines(self.look)
        self._detectors = DetectorsByRun()
        self._events = RecentRecords[Event](RECENT, lambda event: event.run)
        self._throttle, self._timed = EvaluationThrottle(), True
        self._rows = RowsInOrder()
        self._transitions = RecentRecords(RECENT, alerted_run)
        self.own = SelfCounts(self.parser, self.runs)
        self._scraped: dict[str, list[list[Point]]] = {}
        self.clock, self.ahead, self.version = -math.inf, 0.0, 0

    def feed(
        self, chunk: Chunk, now: float, *, counted: bool = True, since: float | None = None
    ) -> list[Transition]:
        """Parse and judge bytes read at `now` (Unix seconds).

        `counted` is False for bytes of before a restart: the restored counters include them.
        `since`: the chunk has rows from that time to `now`, and other files are yet to be fed of
        it; all of them are judged in the order of their times, by a later call.
        """
        if chunk.parts and self.parser.open_until() < math.inf:  # their lines come between others
            fed = [self.feed(part, when, counted=counted) for when, part in chunk.parts]
            return [*chain.from_iterable(fed)]
        transitions = self.play_ahead(now if since is None else since)
        transitions += self.complete_blocks(now) if since is None else []
        origin = self.names.origin(chunk.path)
        self.runs.continue_file(origin.run, chunk.continues, chunk.path)
        if not chunk.timed:
            self.runs.untimed.add(origin.run)
        with nullcontext() if counted else self.parser.uncounted():
            items = self.parser.feed_blocks(chunk, origin, now)
        if since is not None:
            self._rows.add(chunk, items, now)
            return transitions
        self._timed = chunk.timed
        with self.evidence.looking_at((chunk,), origin.run):
            if chunk.parts:
                transitions += self._observe_parts(items, chunk)
            else:
                for item in items:
                    transitions += self._observe(item, now - chunk.age)
        self._timed = True
        return transitions

    def observe(self, records: Iterable[Record], now: float) -> list[Transition]:
        """Take in records read at `now` (Unix seconds), each at its time in `clock` to `now`."""
        transitions = self.play_ahead(now)
        return transitions + [each for record in records for each in self._observe(record, now)]

    def _observe(
        self, item: SampleBlock | Record, now: float, chunk: Chunk | None = None
    ) -> list[Transition]:
        if not isinstance(item, SampleBlock):
            at = now if item.time is None else min(item.time + self.ahead, now)
            return self._take((TimedRows(item, (at,), chunk),))
        if item.times is None and not item.repaints:
            return self._take((TimedRows(item, [now] * len(item)),))
        own = item.times
        times = [now] * len(item) if own is None else [min(at + self.ahead, now) for at in own]
        self._rows.put(item, times, None)
        return self._play(math.inf)

    def _observe_parts(
        self, items: Iterable[SampleBlock | Record], chunk: Chunk
    ) -> list[Transition]:
        """Take in the records of a chunk, each at the time of its part."""
        starts = [part.offset for _, part in chunk.parts]

        def came(offset: int) -> float:
            return chunk.parts[bisect_right(starts, offset) - 1][0]

        transitions: list[Transition] = []
        for item in items:
            if isinstance(item, SampleBlock):
                self._rows.put(item, [*map(came, item.offsets)], None)
                transitions += self._play(math.inf)
            else:
                transitions += self._observe(item, came(item.position.offset))
        return transitions

    def tick(self, now: float) -> list[Transition]:
        """Run all timers up to `now` (Unix seconds): stalls, `for`, staleness, evaluations.

        Each runs at its own time, so that it does not matter how often `tick` is called.
        """
        ahead = self.play_ahead(now)
        return ahead + self.complete_blocks(now) + self.advance(now)

    def finish(self, now: float, paths: Iterable[str] = ()) -> list[Transition]:
        """End all input at `now`: complete open records of `paths`, decide how each run ended."""
        transitions = self.play_ahead()
        left = [record for path in paths for record in self.parser.finish(path)]
        transitions += self.observe(left, now) + self.advance(now)
        self.runs.finish(now)
        return transitions + self._evaluate(max(now, self.clock))

    def _last_word(self, run: TrainingRun) -> Event | None:
        return last_word(run, self._events.of_run(run.name))

    def due(self) -> float | None:
        """When `tick` must be called at the latest (Unix seconds); None if no timer runs."""
        earliest = min(self._due(self._schedule.due()), self.parser.open_until())
        return None if math.isinf(earliest) else earliest

    def timer(self) -> float:
        """When the next timer is due that records cannot move (Unix seconds)."""
        return self._due(self._schedule.next)

    def _due(self, slot: float) -> float:
        return min(slot, self.runs.due(), self.engine.due(), self._throttle.due)

    def count_dropped(self, reason: str, count: int = 1) -> None:
        """Count what the daemon dropped or could not read; `reason` becomes the metric's label."""
        if count:
            self.own.dropped[reason] += count
            self._changed()

    def note_edge(self, points: list[Point], hosts: Mapping[str, HostView] = NO_HOSTS) -> None:
        """Set the daemon's own metrics, and runs' hosts, from now on, so that rules see them."""
        if self.own.note(points, hosts):
            self._changed()

    def reconfigure(self, rules: RuleSet[Expression], stall: Stall) -> None:
        """Judge by other rules and stall limits; alerts whose rule's name stays go on."""
        self.engine.replace_rules(rules)
        self._checks = checks_of(rules)
        self.runs.set_stall(stall)
        self._scraped = {}
        self._changed()

    def hold(self, read_to: Mapping[str, float]) -> None:
        """Count the silence of these runs up to a time (Unix seconds) alone, until the next call.

        `read_to`: up to when the files of a run were read; other runs' were read to the present.
        """
        if self.runs.hold(read_to, self.clock):
            self._changed()

    def leave_out(self, seconds: float) -> None:
        """Leave out `seconds` by which the clock jumped forward: nothing is judged at their times.

        A silence is as long as before.
        """
        self.runs.shift(seconds)
        self.clock += seconds

    def alerts(self) -> list[AlertView]:
        """The pending and firing alerts."""
        ranks = self._health.failed_ranks()
        return [with_rank(each, ranks) for each in self.engine.views(self.evidence.position)]

    def carry_over(
        self, alerts: Iterable[AlertView], starts: Mapping[str, float]
    ) -> list[Transition]:
        """Continue alerts of before a restart; arguments and result: `RuleEngine.carry_over`."""
        found = self.engine.carry_over(alerts, starts, self.clock)
        self._changed()
        attached = (self.evidence.attach(each, self.engine.asks) for each in found)
        explained = [self._explainer.transition(each, self.clock) for each in attached]
        return self._headlines.attach(explained)

    def forget_ended(self, kept: int) -> None:
        """Drop the runs whose series have ended, but for the last `kept` of them."""
        for name in self.runs.beyond(kept, self.clock):
            self.own.dropped["label_limit"] += self.runs.forget(name).values.dropped
            for known in (self._detectors, self._health, self._incidents, self._past, self._events):
                known.forget(name)
            self._changed()

    def snapshot(self) -> Snapshot:
        """Everything that views show, as of the last `feed` or `tick`."""
        self._health.update(self.engine.firing(), self.clock)
        shown = tuple(map(self._view, self.runs))
        events = self._events.items()
        incidents, runs = decided(self._incidents, self.runs, shown, events, self.clock)
        runs = self._past.shown_in(runs, incidents)
        return Snapshot(
            version=self.version,
            at=max(self.clock, 0.0),
            runs=runs,
            alerts=tuple(self.alerts()),
            incidents=incidents,
            events=events,
            transitions=self._transitions.items(),
            monitor=self.own.view(),
            points=tuple(chain(*chain(*self._points(self.clock).values()))),
            curves={run.name: run.curves() for run in self.runs},
        )

    def look(self, name: str) -> tuple[RunView | None, Sequence[IncidentView]]:
        """A run (None: unknown) and its incidents as of now, with their decisions."""
        if (run := self.runs.get(name)) is None:
            return None, ()
        events = self._events.of_run(name)
        incidents, (view,) = decided(
            self._incidents, self.runs, (self._view(run),), events, self.clock, name=name
        )
        return view, incidents

    def _view(self, run: TrainingRun) -> RunView:
        health, gauges = self._health.of(run.name), self._detectors.run_gauges(run.name)
        return run.view(
            health.level,
            self.clock,
            reasons=health.reasons,
            failed_rank=health.failed_rank,
            detected=gauges,
            not_checked=not_checked(self._checks, run),
            host=self.own.hosts.get(run.name),
            guess=self.runs.guesses.get(run.name),
        )

    def play_ahead(self, until: float = math.inf) -> list[Transition]:
        """Judge the rows read ahead that come before `until` (Unix seconds), with open blocks."""
        transitions: list[Transition] = []
        while self._rows.first() < until:
            stop = min(self.parser.open_until(), until)
            transitions += self._play(stop)
            transitions += self.complete_blocks(stop) if stop < until else []
        return transitions

    def _play(self, until: float) -> list[Transition]:
        """Judge the rows before `until`; those between two timers go together."""
        transitions: list[Transition] = []
        try:
            while (first := self._rows.first()) < until:
                transitions += self.advance(first)
                calm = min(until, self.timer()) if first >= self.clock else -math.inf
                for found in self._rows.next(until, calm, self.runs.only_advance):
                    (item, (when, *_), chunk), *_ = found
                    if isinstance(item, SampleBlock):
                        transitions += self._take(found)
                    else:
                        transitions += self._observe(item, when, chunk)
        except Exception:  # a bug of ours: what is left would raise at each later call
            self._rows.clear()
            raise
        return transitions

    def _take(self, found: Sequence[TimedRows]) -> list[Transition]:
        """Judge rows of a run, or one record, at their times: several only if they advance it."""
        record, at, transitions = found[0].first, found[-1].times[-1], list[Transition]()
        chunks = [each.chunk for each in found if each.chunk is not None]
        try:
            with self.evidence.looking_at(chunks, record.run):
                self.runs.leave_out_before(record, found[0].times[0] - self.clock)
                transitions += self.advance(at)
                transitions += self._judge(self.runs.of(record, at), found, at)
        except Exception as fault:  # noqa: BLE001 # a bug of ours costs one record
            self.parser.note_fault(record.position, fault)
            if isinstance(found[0].item, SampleBlock):  # its rows singly; some count twice
                alone = chain.from_iterable(each.singly() for each in found)
                transitions += chain.from_iterable(self._take((each,)) for each in alone)
        return transitions

    def _judge(self, run: TrainingRun, found: Sequence[TimedRows], at: float) -> list[Transition]:
        item = found[0].item
        if isinstance(item, Event) and "checksums" in meaning_of(item).words:
            differs = run.replicas.observe(item, run.logged.world_size)
            return [] if differs is None else self._judge(run, (TimedRows(differs, (at,)),), at)
        urgent = run.observe(found, max(at, self.clock), timed=self._timed)
        if isinstance(item, Event):
            self._events.extend((item,))
            self._incidents.take(item, self.clock)
        return self._judge_at_once(run, urgent)

    def _judge_at_once(self, run: TrainingRun, urgent: str | None) -> list[Transition]:
        """Note that a run changed; `urgent`: why rules are to be evaluated at once."""
        self.runs.touch(run)
        self._changed()
        at_once = urgent is not None and self._throttle.is_at_once(run.name, urgent, self.clock)
        # The first evaluation by these rules is of all: nothing of the others is known.
        return self._evaluate(self.clock, run.name if self._scraped else None) if at_once else []

    def complete_blocks(self, now: float) -> list[Transition]:
        """Complete the blocks of lines that expire by `now` (Unix seconds)."""
        transitions: list[Transition] = []
        while (silent := self.parser.open_until()) <= now:
            transitions += self.observe(self.parser.tick(silent), silent)
        return transitions

    def _changed(self) -> None:
        self.version += 1
        self._schedule.changed(max(self.clock, 0.0))

    def advance(self, to: float) -> list[Transition]:
        """Run all timers that are due by `to`, each at its own time."""
        if to <= self.clock:
            return []
        transitions: list[Transition] = []
        self._schedule.begin(to)
        while (due := self._due(self._schedule.due_until(to))) <= to:
            transitions += self._evaluate(max(due, self.clock))
        self.clock = to
        return transitions

    def _evaluate(self, at: float, only: str | None = None) -> list[Transition]:
        """Scrape our own metrics and evaluate every rule at `at`, which is not before `clock`.

        `only`: the run that is scraped and judged alone; the others wait for the next slot.
        """
        started = self._stopwatch() if self._stopwatch else 0.0
        self.clock, limit_passed = at, False
        if only is None:
            if limit_passed := self.runs.tick(at):
                self._changed()
            self._schedule.evaluated(at)
            self._throttle.judged(at)
        touched = self.runs.take_touched(only)
        for run in touched.values():
            try:
                self._incidents.settle(run.name, at)
                self._detectors.update(run.name, run.measured())
            except Exception as fault:  # noqa: BLE001 # a bug of ours: other runs are still judged
                self.parser.note_fault(run.life.progress_position, fault)
        points = self._points(at, only)
        if only is None:
            points[""] += [list(core_points(self.own.view())), self.own.edge]
        self._scraped = {**({} if only is None else self._scraped), **points}
        found = self.engine.evaluate(
            [*chain(*self._scraped.values())], at, self.runs.has_ended, self.runs.attempt_began,
            limit_passed=limit_passed, only=only,
        )  # fmt: skip
        if found:
            self._changed()
        self.own.evaluated(self._stopwatch() - started if self._stopwatch else None)
        transitions = [self.evidence.attach(each, self.engine.asks) for each in found]
        for each in transitions:
            self._incidents.take_alert(each, at)
        self._health.update(self.engine.firing(), at, touched)
        transitions = [self._explainer.transition(each, at) for each in transitions]
        transitions = self._headlines.attach(transitions)
        for each in transitions:
            self._past.take(each)
        self._transitions.extend(each for each in transitions if not each.is_heartbeat)
        return transitions

    def _points(self, at: float, only: str | None = None) -> dict[str, list[list[Point]]]:
        """The groups of points by run, and "" for those of no run; with `only`, of this run."""
        shown = [run for run in self.runs.shown(at) if only in (None, run.name)]
        found = {run.name: [run.points(at), *self._detectors.points([run.name])] for run in shown}
        if only is None:
            own = [self._health.points(at), self.own.durations(), self.own.host_points(at)]
            found[""] = [*own, self.engine.points(self._health.failed_ranks())]
        return found
