"""Runs Prometheus' own PromQL test scripts against our evaluator.

    tests/promql/run_script.py FILE...

prints every failure and then `N passed, N failed, N unsupported`. Unsupported are
queries that the loader refuses because Prometheus may evaluate them and we do not, and
those whose answer turns on native histograms or on start times of samples, of which
there are none here. Names of metrics are removed as in Prometheus' own runner: at the
end of the query.
"""

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import re2

from ldlm_promrules.errors import RuleError, UnsupportedError
from ldlm_promrules.promql import Evaluator, Expression, parse
from ldlm_promrules.promql.annotations import INFO, WARNING, Notes
from ldlm_promrules.promql.series_description import (
    HISTOGRAM,
    STALE,
    parse_series,
    parse_values,
)
from ldlm_promrules.samples import Labels, ListedStorage, Matcher, Series
from tests.promrules.promqltest import (
    Command,
    Evaluation,
    ScriptError,
    almost_equal,
    commands,
    duration,
    evaluation,
    milliseconds,
    number,
    rows,
)

Result = float | list[tuple[Labels, list[tuple[float, float]]]]


class ScriptStorage(ListedStorage):
    """Samples, staleness markers and the places of native histograms, in time order.

    `met_unheld` says whether a window was read in which a native histogram lies, or of
    a series whose samples have start times: neither is held here.
    """

    def __init__(self) -> None:
        self._series: dict[Labels, tuple[list[float], list[object]]] = {}
        self.started: set[Labels] = set()
        self.met_unheld = False

    def add(self, labels: Labels, points: Iterable[tuple[float, object]]) -> None:
        times, values = self._series.get(labels, ([], []))
        merged = {**dict(zip(times, values, strict=True)), **dict(points)}
        self._series[labels] = (sorted(merged), [merged[time] for time in sorted(merged)])

    def select(self, matchers: Sequence[Matcher], start: float, end: float) -> Iterator[Series]:
        for labels, (times, values) in self._series.items():
            present = dict(labels)
            if not all(satisfies(matcher, present) for matcher in matchers):
                continue
            low, high = bisect_left(times, start), bisect_right(times, end)
            if low == high:
                continue
            window = list(zip(times[low:high], values[low:high], strict=True))
            self.met_unheld |= any(value is HISTOGRAM for _, value in window)
            self.met_unheld |= labels in self.started
            kept = [(time, value) for time, value in window if isinstance(value, float)]
            ended = times[high - 1] if values[high - 1] is STALE else None
            yield Series(labels, [t for t, _ in kept], [v for _, v in kept], ended)


def satisfies(matcher: Matcher, labels: dict[str, str]) -> bool:
    value = labels.get(matcher.name, "")
    if matcher.op in {"=", "!="}:
        return (value == matcher.value) is (matcher.op == "=")
    found = re2.fullmatch(f"(?s:{matcher.value})", value) is not None
    return found is (matcher.op == "=~")


@dataclass
class Tally:
    passed: int = 0
    unsupported: int = 0
    failures: list[str] = field(default_factory=list)


def load(command: Command, storage: ScriptStorage) -> None:
    word, _, interval = command.text.partition(" ")
    step = duration(interval.strip())
    for line in command.body:
        labels, values = parse_series(line)
        if values.startswith("@st"):
            storage.started.add(labels)
            continue
        found = [
            (milliseconds(index * step), value)
            for index, value in enumerate(parse_values(values))
            if value is not None
        ]
        storage.add(labels, found)
        if word == "load_with_nhcb":
            storage.add(native(labels), ((time, HISTOGRAM) for time, _ in found))


def native(labels: Labels) -> Labels:
    """The native histogram that a series of a classic one becomes part of."""
    kept = {name: value for name, value in labels if name != "le"}
    for suffix in ("_bucket", "_count", "_sum"):
        kept["__name__"] = kept["__name__"].removesuffix(suffix)
    return tuple(sorted(kept.items()))


def answer(evaluator: Evaluator, expression: Expression, evaluated: Evaluation) -> Result:
    """The result of an instant query, or of a range query as points per series."""
    if evaluated.step is None:
        value = evaluator.value(expression, evaluated.start)
        if isinstance(value, float):
            return value
        return [(labels, [(evaluated.start, one)]) for labels, one in value]
    found = evaluator.over(expression, evaluated.times)
    return [(each.labels, list(zip(each.times, each.values, strict=True))) for each in found]


def expected_scalar(evaluated: Evaluation) -> float | None:
    """The lone number that a script expects of a scalar expression."""
    if len(evaluated.expected) != 1:
        return None
    try:
        return number(evaluated.expected[0])
    except ValueError:
        return None


def judge(evaluated: Evaluation, got: Result) -> str | None:
    """What is wrong with the answer; None where it is right."""
    scalar = expected_scalar(evaluated)
    if isinstance(got, float) or scalar is not None:
        same = isinstance(got, float) and scalar is not None and almost_equal(got, scalar)
        return None if same else f"got {got}, expected {scalar}"
    wanted = rows(evaluated)
    if not evaluated.ordered:
        got, wanted = sorted(got), sorted(wanted, key=lambda row: row[0])
    if [labels for labels, _ in got] != [labels for labels, _ in wanted]:
        return f"got {got}, expected {wanted}"
    for (labels, some), (_, others) in zip(got, wanted, strict=True):
        if not same_points(some, others):
            return f"{labels}: got {some}, expected {others}"
    return None


def same_points(got: list[tuple[float, float]], wanted: list[tuple[float, object]]) -> bool:
    return len(got) == len(wanted) and all(
        time == due and isinstance(value, float) and almost_equal(one, value)
        for (time, one), (due, value) in zip(got, wanted, strict=True)
    )


def misannotated(evaluated: Evaluation, notes: list[str]) -> str | None:
    for what, text in evaluated.annotated:
        prefix = WARNING if what.endswith("warn") else INFO
        found = [note for note in notes if note.startswith(prefix)]
        kind, _, wanted = text.partition(": ")
        if kind == "msg":
            found = [note for note in found if note.rpartition(" (")[0] == wanted or note == wanted]
        elif kind == "regex":
            found = [note for note in found if re2.search(wanted, note)]
        if bool(found) is what.startswith("no_"):
            return f"expect {what} {text}: {notes}"
    return None


def outcome(evaluated: Evaluation, storage: ScriptStorage) -> str | None:
    """What is wrong with our answer to an evaluation; None where it is right.

    Raises UnsupportedError where we refuse to answer, or answer otherwise because the
    selectors met what the storage does not hold.
    """
    storage.met_unheld = False
    try:
        expression = parse(evaluated.query, experimental=True)
        notes = Notes(named=True)
        evaluator = Evaluator(storage, delayed_name_removal=True, notes=notes)
        got = answer(evaluator, expression, evaluated)
    except RuleError as problem:
        if evaluated.fails:
            return None
        if isinstance(problem, UnsupportedError):
            raise
        complaint: str | None = str(problem)
    else:
        complaint = "should be refused" if evaluated.fails else judge(evaluated, got)
        complaint = complaint or misannotated(evaluated, notes.lines(expression))
    if complaint is not None and storage.met_unheld:
        raise UnsupportedError("native histograms, or start times of samples")
    return complaint


def run(path: Path) -> Tally:
    tally = Tally()
    storage = ScriptStorage()
    for command in commands(path.read_text(encoding="utf-8")):
        where = f"{path.name}:{command.number}"
        word = command.text.split()[0]
        try:
            if word in {"load", "load_with_nhcb"}:
                load(command, storage)
            elif word == "clear":
                storage = ScriptStorage()
            elif word.startswith("eval"):
                evaluated = evaluation(command)
                complaint = outcome(evaluated, storage)
                if complaint is None:
                    tally.passed += 1
                else:
                    tally.failures.append(f"{where}: {evaluated.query}: {complaint}")
            else:
                raise ScriptError(f"cannot read {command.text!r}")
        except UnsupportedError:
            tally.unsupported += 1
        except ValueError as problem:
            tally.failures.append(f"{where}: {problem}")
    return tally


def main(names: Sequence[str]) -> int:
    tallies = [run(Path(name)) for name in names]
    for tally in tallies:
        for failure in tally.failures:
            print(failure)
    passed = sum(tally.passed for tally in tallies)
    failed = sum(len(tally.failures) for tally in tallies)
    unsupported = sum(tally.unsupported for tally in tallies)
    print(f"{passed} passed, {failed} failed, {unsupported} unsupported")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
