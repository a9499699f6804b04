"""Which rules are to be evaluated again, by the changes of their metrics and by time."""

import math
from collections.abc import Callable, Iterable
from functools import partial
from heapq import heappop, heappush

from ldlm_monitor.alerts import AlertRule, RecordingRule
from ldlm_monitor.promql import Expression
from ldlm_monitor.promql.analysis import (
    ROUNDING_SECONDS,
    TIME_FUNCTIONS,
    counts_samples,
    max_range,
    metric_names,
    moments,
    names_its_metrics,
    settles_after,
    uses_time,
)
from ldlm_monitor.promql.nodes import (
    NAME,
    Aggregation,
    Binary,
    Call,
    Node,
    Number,
    Selector,
    Shift,
    walk,
)
from ldlm_monitor.promql.ranges import OVER_RANGE
from ldlm_monitor.run.pace import LATE

# Metrics: when the step last advanced (Unix seconds), and the longest normal pause (seconds).
_LAST_STEP = "ldlm_train_last_progress_timestamp_seconds"
_STALL_LIMIT = "ldlm_train_stall_limit_seconds"
VALUE_SECONDS = 60.0
"""How old (seconds) the value of a stalled run's alert may be: messages show it in minutes, and
evaluating it for a thousand stalled runs at every slot would cost a good part of a core."""


class RuleQuestion:
    """A rule's expression, and its properties that decide when to evaluate it again."""

    def __init__(self, expr: Expression, interval: float) -> None:
        self.metrics = metric_names(expr)
        self.reach = max_range(expr)
        self.settles_after = settles_after(expr)
        self.moments = moments(expr)
        by_time = uses_time(expr)
        # The store records changes by metric: these results can change without a recorded change.
        self.always = by_time or counts_samples(expr, interval) or not names_its_metrics(expr)
        self.needs_every_slot = by_time and not _changes_at_limits(expr.root)
        # At stall limits a run's timer has the rules evaluated; between, an older value will do.
        follows_states = "ldlm_run_state" in self.metrics and not self.needs_every_slot
        self.stays = VALUE_SECONDS if by_time and follows_states else 0.0


class RulesDue:
    """Which rules can have another result than at their last evaluation, by their index.

    Because a metric that they read changed, and as long as they can see that change, or by the time
    alone; and once at most in the `interval` of their group. Times are Unix seconds; changes up to
    `at` were not noted. `interval`: seconds between two scrapes.
    """

    def __init__(
        self,
        rules: Iterable[AlertRule[Expression] | RecordingRule[Expression]],
        interval: float,
        at: float,
    ) -> None:
        self._interval = interval
        self._at = at
        self.questions: list[RuleQuestion] = []  # of the rules, and then of parts of them
        self._readers: dict[str, list[int]] = {}
        self._due: set[int] = set()
        self._asked_at: list[float] = []
        self._until: dict[int, float] = {}  # of what reads a range with a change in it
        self._later: list[tuple[float, int]] = []  # a heap: when offsets reach changes
        self._turns: dict[int, tuple[float, float]] = {}  # of a group's `interval`: it, last turn
        for rule in rules:
            asked = RuleQuestion(rule.expr, interval)
            # The store records no change of what a template asks it by `query`.
            asked.always |= isinstance(rule, AlertRule) and not rule.is_steady
            index = self._add(asked)
            if rule.interval > interval:
                self._turns[index] = (rule.interval, -math.inf)
        self._by_time = [index for index, asked in enumerate(self.questions) if asked.always]

    def _add(self, asked: RuleQuestion) -> int:
        index = len(self.questions)
        self.questions.append(asked)
        self._asked_at.append(-math.inf)
        self._due.add(index)
        self._until[index] = self._at + asked.settles_after
        for name in asked.metrics:
            self._readers.setdefault(name, []).append(index)
        return index

    def watch(self, node: Node) -> Callable[[float], bool] | None:
        """For a part of a rule that is worth it, a function as `take`, of the time alone."""
        if not isinstance(node, Aggregation) and getattr(node, "function", "") not in OVER_RANGE:
            return None
        asked = RuleQuestion(Expression("", node), self._interval)
        return None if asked.always else partial(self.take, self._add(asked))

    def note(self, metrics: Iterable[str], at: float) -> None:
        """Series of these metrics changed, began or ended at `at`."""
        for name in metrics:
            for index in self._readers.get(name, ()):
                asked = self.questions[index]
                if not asked.moments:
                    self._until[index] = at + asked.settles_after
                    self._due.add(index)
                for offset in asked.moments:
                    if offset:
                        heappush(self._later, (at + offset, index))
                    else:
                        self._due.add(index)

    def begin(self, at: float) -> None:
        """Begin an evaluation at `at`."""
        self._at = at
        for index in self._by_time:
            if at >= self._asked_at[index] + self.questions[index].stays:
                self._due.add(index)
        self._due.update(self._until)  # once more after the change has left the range
        self._until = {index: until for index, until in self._until.items() if at <= until}
        early = []
        while self._later and self._later[0][0] <= at + ROUNDING_SECONDS:
            entry = heappop(self._later)
            self._due.add(entry[1])
            if entry[0] > at - ROUNDING_SECONDS:
                early.append(entry)  # whether a rounded offset reaches it is not certain
        for entry in early:
            heappush(self._later, entry)

    def take(self, index: int, at: float) -> bool:
        """Whether to evaluate a rule now, at `at`; it is then due no longer.

        Intervals of groups begin at multiples of their length, so a replay meets the daemon's.
        """
        if index not in self._due:
            return False
        if index in self._turns:
            length, before = self._turns[index]
            if (turn := at // length) == before:
                return False
            self._turns[index] = (length, turn)
        self._due.remove(index)
        self._asked_at[index] = at
        return True


def _changes_at_limits(node: Node) -> bool:
    """Whether time alone changes the result only at stall limits, for which runs have timers."""
    match node:
        case Binary("and" | "or" | "unless", left, right):
            return _changes_at_limits(left) and _changes_at_limits(right)
        case Binary(">", Binary("-", Call("time"), last), limit):
            if isinstance(limit, Binary) and (limit.operator, limit.left) == ("*", Number(LATE)):
                limit = limit.right
            return (_metric(last), _metric(limit)) == (_LAST_STEP, _STALL_LIMIT)
    return not any(
        isinstance(each, Call) and each.function in TIME_FUNCTIONS for each in walk(node)
    )


def _metric(node: Node) -> str:
    """The metric of a selector without offset, or of its aggregation by run; "" for other nodes."""
    if isinstance(node, Aggregation) and "run" in node.labels and not node.without:
        node = node.operand
    if not isinstance(node, Selector) or node.shift != Shift():
        return ""
    return next((each.value for each in node.matchers if each.name == NAME), "")
