"""What Prometheus says beside an answer: that an expression hardly means what it asks.

An `Evaluator` that is given `Notes` fills them. Texts and places are those of Prometheus 3
(`util/annotations/annotations.go`), of all that can concern samples without native histograms.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from ldlm_promrules.golang import go_float, quoted
from ldlm_promrules.promql.expression import TIME_FUNCTIONS, Expression
from ldlm_promrules.promql.expression_text import blanked
from ldlm_promrules.promql.floats import INF
from ldlm_promrules.promql.functions import BOUND, bound_of, buckets_at_each, merged_buckets
from ldlm_promrules.promql.nodes import (
    NAME,
    Aggregation,
    Call,
    Node,
    Selector,
    Subquery,
    Vector,
    children,
    walk,
)
from ldlm_promrules.promql.ranges import QueryTimes
from ldlm_promrules.samples import Labels

INFO, WARNING = "PromQL info: ", "PromQL warning: "  # how an annotation begins
_RATES = frozenset({"rate", "increase"})
_SORTS = frozenset({"sort", "sort_desc"})
_COUNTERS = ("_total", "_sum", "_count", "_bucket")
_ANNOTATED = {*_RATES, *_SORTS, "quantile", "quantile_over_time", "histogram_quantile"}
_CALL = re.compile(
    rf"(?<![\w:.])({'|'.join(sorted(_ANNOTATED, key=len, reverse=True))})"
    r"\s*(?:(?:by|without)\s*\([^)]*\)\s*)?\(\s*",
    re.IGNORECASE,
)

Place = tuple[Call | Aggregation, int | None]
"""A node, and the number of the argument that a note is about, or None for the node itself."""


class Notes:
    """The notes of one query. `named`: metric names are dropped late, so that notes have them.

    Of notes with equal texts one is shown, as in Prometheus.
    """

    def __init__(self, *, named: bool = False) -> None:
        self._named = named
        self._found: dict[str, Place] = {}
        # Of buckets that were raised: least and greatest bound, greatest difference, and time.
        self._raised: dict[str, tuple[Place, list[tuple[float, float, float, float]]]] = {}

    def over_vector(self, node: Call, query: QueryTimes) -> None:
        """A function of a vector at the times of a query, which is no range if it is at its end."""
        ranged = len(query.at) > 1 or query.at[0] != query.end
        if node.function in _SORTS and ranged and not _is_fixed(node):
            self._found[
                f"{WARNING}sort is ineffective for range queries since results are always ordered "
                "by labels"
            ] = node, None

    def over_range(self, node: Call, result: Vector, given: Sequence[Sequence[float]]) -> None:
        """The values of a function of a range, with their names yet; `given`: its scalars."""
        for labels, column in result:
            name = dict(labels).get(NAME, "")
            if node.function in _RATES and name and not name.endswith(_COUNTERS):
                self._found[
                    f"{INFO}metric might not be a counter, name does not end in "
                    f"_total/_sum/_count/_bucket: {quoted(name)}"
                ] = node, 0
            elif node.function == "quantile_over_time":
                pairs = zip(column, given, strict=True)
                self.ranks(node, (row[0] for value, row in pairs if value is not None))

    def ranks(self, node: Call | Aggregation, ranks: Iterable[float]) -> None:
        """Ranks of quantiles."""
        for rank in ranks:
            if not 0 <= rank <= 1:
                self._found[
                    f"{WARNING}quantile value should be between 0 and 1, got {go_float(rank)}"
                ] = node, 0

    def buckets(
        self, node: Call, times: Sequence[float], ranks: Sequence[float], vector: Vector
    ) -> None:
        """The arguments of `histogram_quantile` at each time."""
        self.ranks(node, ranks)
        for labels, _ in vector:
            if bound_of(labels) is None:
                bound = quoted(dict(labels).get(BOUND, ""))
                self._found[
                    f'{WARNING}bucket label "{BOUND}" is missing or has a malformed value of '
                    f"{bound}{self._of_metric(labels)}"
                ] = node, 1
        for labels, found in buckets_at_each(vector, ranks):
            for at, (rank, buckets) in zip(times, found, strict=True):
                if buckets and 0 <= rank <= 1:
                    bounds, _, raised = merged_buckets(buckets)
                    if raised and bounds[-1] == INF:
                        self._raise(node, labels, at, raised)

    def _raise(self, node: Call, labels: Labels, at: float, raised: dict[float, float]) -> None:
        text = (
            f"{INFO}input to histogram_quantile needed to be fixed for monotonicity (see "
            "https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)"
            f"{self._of_metric(labels)}"
        )
        _, samples = self._raised.setdefault(text, ((node, 1), []))
        samples.append((min(raised), max(raised), max(raised.values()), at))

    def _of_metric(self, labels: Labels) -> str:
        name = dict(labels).get(NAME, "") if self._named else ""
        return f" for metric name {quoted(name)}" if name else ""

    def lines(self, expression: Expression) -> list[str]:
        """Each note, with the line and column of what it is about in the expression's text."""
        if not self._found and not self._raised:
            return []
        found = dict(self._found)
        for text, (where, samples) in self._raised.items():
            lows, highs, differences, times = zip(*samples, strict=True)
            first, last = (_second(pick(times)) for pick in (min, max))
            found[
                f"{text}, from buckets {go_float(min(lows))} to {go_float(max(highs))}, with a max "
                f"diff of {max(differences):.2g}, over {len(times)} samples from {first} to {last}"
            ] = where
        place = _places(expression)
        return [f"{text} ({place(*where)})" for text, where in found.items()]


def _second(time: float) -> str:
    """Unix seconds as RFC 3339 in UTC, without a fraction."""
    return datetime.fromtimestamp(int(time), UTC).isoformat().replace("+00:00", "Z")


def _is_fixed(node: Node) -> bool:
    """Whether Prometheus evaluates the node once for all times of a query."""
    match node:
        case Selector(shift=shift) | Subquery(shift=shift):
            return shift.anchor is not None
        case Call(function=function) if function in TIME_FUNCTIONS or function == "predict_linear":
            return False
    return all(map(_is_fixed, children(node)))


def _places(expression: Expression) -> Callable[[Call | Aggregation, int | None], str]:
    """Where a node or its argument begins in an expression's text, as `line:column`."""
    text = blanked(expression.text)
    # A call's name stands before those of its operands, as a node before its operands.
    nodes = (each for each in walk(expression.root) if _name(each) in _ANNOTATED)
    found = {id(node): call for node, call in zip(nodes, _CALL.finditer(text), strict=False)}

    def place(node: Call | Aggregation, argument: int | None) -> str:
        call = found[id(node)]
        index = call.start() if argument is None else call.end()
        depth = 0
        while argument and (depth or text[index] != ","):
            depth += (text[index] in "([{") - (text[index] in ")]}")
            index += 1
        if argument:
            index += len(text[index:]) - len(text[index + 1 :].lstrip())
        before = text[:index]
        return f"{before.count(chr(10)) + 1}:{len(before.rpartition(chr(10))[2]) + 1}"

    return place


def _name(node: object) -> str:
    return node.function if isinstance(node, Call) else getattr(node, "operator", "")
