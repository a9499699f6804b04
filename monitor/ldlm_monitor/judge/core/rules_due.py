"""Which rules are to be evaluated again, by what changed in their inputs and by time."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any

from ldlm_monitor.base.names import PAST_TIMES
from ldlm_promrules.alerting import AlertRule, RecordingRule
from ldlm_promrules.promql import Expression
from ldlm_promrules.promql.expression import (
    ROUNDING_SECONDS,
    TIME_FUNCTIONS,
    counts_samples,
    keeps_apart,
    max_range,
    metric_names,
    names_its_metrics,
    uses_time,
)
from ldlm_promrules.promql.expression_inputs import Input, Seen, inputs
from ldlm_promrules.promql.nodes import (
    NAME,
    Aggregation,
    Binary,
    Call,
    Node,
    Selector,
    Shift,
    walk,
)
from ldlm_promrules.samples import Labels, Matcher, Reader, Storage
from ldlm_promrules.series.series_matching import is_matched
from ldlm_promrules.series.series_store import Change

# Metrics: when the step last advanced (Unix seconds), and the longest normal pause (seconds).
_LAST_STEP = "ldlm_train_last_progress_timestamp_seconds"
_LIMITS = ("ldlm_train_stall_limit_seconds", "ldlm_train_hang_limit_seconds")
VALUE_SECONDS = 60.0
"""How old (seconds) the value and text of a firing alert may be, of which the time or a change of
its inputs makes another. A choice: people read it in minutes, and to evaluate it for a thousand
runs at every slot would cost a good part of a core. Whether it still fires is asked at every slot
at which that may have changed."""


class RuleQuestion:
    """A rule's expression, and its properties that decide when to evaluate it again.

    `has_timers`: runs have timers for all times at which its result gets or loses an element.
    """

    def __init__(self, expr: Expression, interval: float) -> None:
        self.reach = max_range(expr, PAST_TIMES)
        by_time = uses_time(expr, PAST_TIMES)
        # These results can change without a change that an input sees.
        self.always = by_time or counts_samples(expr, interval) or not names_its_metrics(expr)
        self.needs_every_slot = by_time and not _changes_at_limits(expr.root)
        # At stall limits a run's timer has the rules evaluated; between, an older value will do.
        follows_states = by_time and "ldlm_run_state" in metric_names(expr)
        self.has_timers = follows_states and not self.needs_every_slot
        self.inputs = tuple(inputs(expr.root, PAST_TIMES))
        self.ages = frozenset(_ages(expr.root)) if self.has_timers else frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class _Reading:
    """That the rule `rule` reads `input`, whose identity in `_NotedStorage` is `key`.

    `always`: every evaluation may. `is_age`: see `_ages`. `narrow`: the selector's matchers but
    that of the metric.
    """

    rule: int
    input: Input
    sees: Seen
    key: int
    always: bool
    is_age: bool
    narrow: tuple[Matcher, ...]


class RulesDue:
    """Which rules can have another result than at their last evaluation, by their index.

    `due`: because a change reaches what they then read, and they can see it, or by the time alone;
    and once at most in the `interval` of their group. Times are Unix seconds; no changes up to `at`
    were noted. `interval`: seconds between two scrapes. `holds`: whether a rule may have a result;
    `fires`: whether all its alerts fire, so that their values may be `VALUE_SECONDS` old.
    """

    def __init__(
        self,
        rules: Sequence[AlertRule[Expression] | RecordingRule[Expression]],
        interval: float,
        at: float,
        holds: Callable[[int], bool],
        fires: Callable[[int], bool],
    ) -> None:
        self.questions = [RuleQuestion(rule.expr, interval) for rule in rules]
        self._holds, self._fires = holds, fires
        self._aged: set[int] = set()  # rules with alerts that have another value by now
        self.due = set(range(len(self.questions)))
        self._asked_at = [-math.inf] * len(self.questions)
        self._by_metric: dict[str, list[_Reading]] = {}
        self._keys: list[list[int]] = []
        self._read: set[int] = set()  # by the last evaluations
        self._until: dict[_Reading, float] = {}  # of what reads a range with a change in it
        self._later: list[tuple[float, int, _Reading]] = []  # a heap: when offsets reach changes
        self._turns: dict[int, tuple[float, float]] = {}  # of a group's `interval`: it, last turn
        for index, (rule, asked) in enumerate(zip(rules, self.questions, strict=True)):
            # The store records no change of what a template asks it by `query`.
            asked.always |= isinstance(rule, AlertRule) and not rule.is_steady
            if rule.interval > interval:
                self._turns[index] = (rule.interval, -math.inf)
            self._add_readings(index, at)
        self._apart = {
            index
            for index, rule in enumerate(rules)
            if "run" not in rule.labels
            and index not in self._turns
            and keeps_apart(rule.expr.root, "run")
        }
        self._by_time = [index for index, asked in enumerate(self.questions) if asked.always]

    def _add_readings(self, rule: int, at: float) -> None:
        asked = self.questions[rule]
        found = [
            _Reading(
                rule, each, each.sees, id(each.selector.matchers), asked.always,
                id(each.selector) in asked.ages,
                tuple(match for match in each.selector.matchers if match.name != NAME),
            )
            for each in asked.inputs
        ]  # fmt: skip
        self._keys.append([each.key for each in found])
        for each in found:
            self._by_metric.setdefault(each.input.selector.metric, []).append(each)
            self._until[each] = at + each.input.reach

    def noted(self, store: Storage) -> Storage:
        """The same storage, for the rules' evaluation: what they read of it is noted."""
        return _NotedStorage(store, self._read)

    def note(self, changes: Iterable[Change], at: float) -> None:
        """Series changed, began or ended at `at`."""
        for labels, before, now in changes:
            for reading in self._by_metric.get(labels[0][1], ()):
                if not self._is_seen(reading, before, now):
                    continue
                if not is_matched(labels, reading.narrow):
                    continue
                offset = reading.input.offset
                if offset:
                    heappush(self._later, (at + offset, id(reading), reading))
                elif self._is_read(reading):
                    waits = _is_shown_alike(reading, before, now) and self._fires(reading.rule)
                    (self._aged if waits else self.due).add(reading.rule)
                if offset is None:
                    self._until[reading] = at + reading.input.reach

    def _is_seen(self, reading: _Reading, before: float | None, now: float | None) -> bool:
        sees = reading.sees
        if before is not None and now is not None:
            is_timed = reading.is_age and not self._holds(reading.rule)
            return not is_timed and sees(before) != sees(now)
        if before is None and reading.input.of_changes:
            return False  # after an end, what reads both sides of it is asked until it leaves them
        value = now if before is None else before
        return value is not None and sees(value) is not None

    def _is_read(self, reading: _Reading) -> bool:
        """Whether the rule's last result depends on the input: it was read, or by now it may be."""
        return reading.always or reading.key in self._read

    def begin(self, at: float, *, limit_passed: bool) -> None:
        """Begin an evaluation at `at`. `limit_passed`: a run has passed a stall limit."""
        for index in self._by_time:
            if limit_passed or not self.questions[index].has_timers:
                self.due.add(index)
            elif self._holds(index):
                self._aged.add(index)
        old = {index for index in self._aged if at >= self._asked_at[index] + VALUE_SECONDS}
        self.due |= old
        self._add(self._until)  # once more after the change has left the range
        self._until = {each: until for each, until in self._until.items() if at <= until}
        early = []
        while self._later and self._later[0][0] <= at + ROUNDING_SECONDS:
            entry = heappop(self._later)
            self._add((entry[2],))
            if entry[0] > at - ROUNDING_SECONDS:
                early.append(entry)  # whether a rounded offset reaches it is not certain
        for entry in early:
            heappush(self._later, entry)

    def _add(self, readings: Iterable[_Reading]) -> None:
        self.due.update(each.rule for each in readings if self._is_read(each))

    def take(self, index: int, at: float) -> bool:
        """Whether to evaluate a rule that is due now, at `at`; it is then due no longer.

        Intervals of groups begin at multiples of their length, so a replay meets the daemon's.
        """
        if index in self._turns:
            length, before = self._turns[index]
            if (turn := at // length) == before:
                return False
            self._turns[index] = (length, turn)
        self.due.remove(index)
        self._aged.discard(index)
        self._asked_at[index] = at
        self._read.difference_update(self._keys[index])
        return True

    def is_apart(self, index: int) -> bool:
        """Whether a rule's results of a run are those of its series, whenever it is asked."""
        return index in self._apart


class _NotedStorage:
    """A storage that adds the identity of a selector's matchers to `read` when it is read."""

    def __init__(self, storage: Storage, read: set[int]) -> None:
        self._storage = storage
        self._read = read

    def reader(self, matchers: Sequence[Matcher]) -> Reader:
        """A reader for a selector of a rule."""
        note = partial(self._read.add, id(matchers))
        return Reader(*(partial(_noted, note, read) for read in self._storage.reader(matchers)))


class OfRun:
    """A storage of the series of the run `run` alone."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.run = ""

    def reader(self, matchers: Sequence[Matcher]) -> Reader:
        """A reader for a selector of a rule."""
        select, latest, columns = self._storage.reader(matchers)

        def of_run(found: Iterable[Any], labels: Callable[[Any], Labels]) -> list[Any]:
            pair = ("run", self.run)
            return [each for each in found if pair in labels(each)]

        return Reader(
            lambda start, end: of_run(select(start, end), lambda each: each.labels),
            lambda since, until: of_run(latest(since, until), itemgetter(0)),
            lambda since, until: of_run(columns(since, until), itemgetter(0)),
        )


def _is_shown_alike(reading: _Reading, before: float | None, now: float | None) -> bool:
    """Whether a change leaves the result its elements, and reaches their values alone."""
    shows = reading.input.shows
    return before is not None and now is not None and shows(before) == shows(now)


def _noted(note: Callable[[], None], read: Callable[..., Any], *given: Any) -> Any:
    note()
    return read(*given)


def _ages(node: Node) -> Iterator[int]:
    """The selectors of times since a step, and of their limits, that can only add to the result.

    Where `has_timers`, a timer runs when they do.
    """
    match node:
        case Binary("and" | "or", left, right):
            yield from _ages(left)
            yield from _ages(right)
        case Binary("unless", left):
            yield from _ages(left)
        case Binary(">", Binary("-", Call("time"), _)):
            yield from (id(each) for each in walk(node) if isinstance(each, Selector))


def _changes_at_limits(node: Node) -> bool:
    """Whether time alone changes the result only at stall limits, for which runs have timers."""
    match node:
        case Binary("and" | "or" | "unless", left, right):
            return _changes_at_limits(left) and _changes_at_limits(right)
        case Binary(">", Binary("-", Call("time"), last), limit):
            return _metric(last) == _LAST_STEP and _metric(limit) in _LIMITS
    return not any(
        isinstance(each, Call) and each.function in TIME_FUNCTIONS for each in walk(node)
    )


def _metric(node: Node) -> str:
    """The metric of a selector without offset, or of its aggregation by run; "" for other nodes."""
    if isinstance(node, Aggregation) and "run" in node.labels and not node.without:
        # The others may fall where a value rises.
        node = node.operand if node.operator in ("max", "min", "sum", "avg") else node
    if not isinstance(node, Selector) or node.shift != Shift():
        return ""
    return next((each.value for each in node.matchers if each.name == NAME), "")
