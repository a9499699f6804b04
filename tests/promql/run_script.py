"""Runs Prometheus' own PromQL test scripts against our evaluator.

    run_script.py FILE...

prints every failure and then `N passed, N failed, N unsupported`. Unsupported are
queries that the loader refuses, and only those; series of native histograms hold
no samples here, and a query whose expectation is one counts as unsupported too.
Format: `promql/promqltest/README.md` of Prometheus.
"""

import math
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import re2

from ldlm_monitor.errors import RuleError
from ldlm_monitor.points import Labels, Matcher, Series
from ldlm_monitor.promql import Evaluator, Expression, parse

STALE = object()
HISTOGRAM = object()
TOLERANCE = 1e-6
REFUSALS = ("is not supported", "unknown function", "yields a range vector", "yields a string")
"""What the loader says of a query that is right but beyond us; all else is a failure."""


class ScriptStorage:
    """Samples and staleness markers in memory, in time order."""

    def __init__(self) -> None:
        self._series: dict[Labels, tuple[list[float], list[object]]] = {}

    def add(self, labels: Labels, points: Iterable[tuple[float, object]]) -> None:
        times, values = self._series.setdefault(labels, ([], []))
        for time, value in points:
            times.append(time)
            values.append(value)

    def select(self, matchers: Sequence[Matcher], start: float, end: float) -> Iterator[Series]:
        for labels, (times, values) in self._series.items():
            present = dict(labels)
            if not all(satisfies(matcher, present) for matcher in matchers):
                continue
            low, high = bisect_left(times, start), bisect_right(times, end)
            if low == high:
                continue
            kept = [
                (time, value)
                for time, value in zip(times[low:high], values[low:high], strict=True)
                if isinstance(value, float)
            ]
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


@dataclass
class Command:
    """A line that starts a command, its number, and the indented lines below it."""

    number: int
    text: str
    body: list[str]


_EVAL = re.compile(
    r"eval(?P<mode>_fail|_warn|_info|_ordered)?\s+"
    r"(?:instant\s+at\s+(?P<at>\S+)"
    r"|range\s+from\s+(?P<start>\S+)\s+to\s+(?P<end>\S+)\s+step\s+(?P<step>\S+))\s+(?P<query>.+)"
)
_SERIES = re.compile(r"(?P<name>[\w:]+)?\s*(?:\{(?P<labels>(?:[^{}\"]|\"(?:[^\"\\]|\\.)*\")*)\})?")
_LABEL = re.compile(r'\s*"?([\w.:/ -]+?)"?\s*=\s*("(?:[^"\\]|\\.)*"|\'[^\']*\'|`[^`]*`)\s*,?')
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w|y)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}


def commands(text: str) -> Iterator[Command]:
    command: Command | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if raw[0] in " \t" and command is not None:
            command.body.append(line)
            continue
        if command is not None:
            yield command
        command = Command(number, line, [])
    if command is not None:
        yield command


def duration(text: str) -> float:
    if re.fullmatch(r"-?[\d.]+", text):
        return float(text)
    sign = -1.0 if text.startswith("-") else 1.0
    return sign * sum(float(count) * _SECONDS[unit] for count, unit in _DURATION.findall(text))


def series(text: str) -> tuple[Labels, str]:
    """Labels (with `__name__`) at the start of a line, and what follows them."""
    found = _SERIES.match(text)
    assert found is not None
    pairs = {name: unquoted(value) for name, value in _LABEL.findall(found["labels"] or "")}
    if found["name"]:
        pairs["__name__"] = found["name"]
    labels = tuple(sorted((name, value) for name, value in pairs.items() if value))
    return labels, text[found.end() :].strip()


def unquoted(text: str) -> str:
    if text[0] == "`":
        return text[1:-1]
    return text[1:-1].encode("latin-1", "backslashreplace").decode("unicode_escape")


def number(text: str) -> float:
    if re.fullmatch(r"[+-]?0x[0-9a-fA-F]+", text):
        return float(int(text, 16))
    return float(text)


_REPEAT = re.compile(
    r"(?P<first>[+-]?[\d.]+(?:e[+-]?\d+)?)(?P<step>[+-][\d.]+(?:e[+-]?\d+)?)x(?P<n>\d+)"
)


def points(text: str) -> Iterator[object]:
    """The values of a series in order; None where there is no sample."""
    text = re.sub(r"\{\{.*?\}\}(?:[+-]\{\{.*?\}\})?", "{{}}", text)
    for token in text.split():
        if token.startswith("{{"):
            repeats = int(token.partition("x")[2] or 0)
            yield from [HISTOGRAM] * (repeats + 1)
        elif token == "stale":
            yield STALE
        elif token.startswith("_"):
            yield from [None] * int(token[2:] or 1)
        elif (expansion := _REPEAT.fullmatch(token)) is not None:
            first, step = float(expansion["first"]), float(expansion["step"])
            yield from (first + step * index for index in range(int(expansion["n"]) + 1))
        elif "x" in token and not token.lstrip("+-").startswith("0x"):
            value, _, repeats_text = token.partition("x")
            yield from [number(value)] * (int(repeats_text) + 1)
        else:
            yield number(token)


def load(command: Command, storage: ScriptStorage) -> None:
    interval = duration(command.text.split()[1])
    for line in command.body:
        labels, values = series(line)
        storage.add(
            labels,
            (
                (index * interval, value)
                for index, value in enumerate(points(values))
                if value is not None
            ),
        )


Result = float | list[tuple[Labels, list[tuple[float, float]]]]


def answer(evaluator: Evaluator, expression: Expression, found: re.Match[str]) -> Result:
    """The result of an instant query, or of a range query as points per series."""
    if found["at"]:
        at = duration(found["at"])
        value = evaluator.value(expression, at)
        if isinstance(value, float):
            return value
        return [(labels, [(at, one)]) for labels, one in value]
    start, end, step = (duration(found[name]) for name in ("start", "end", "step"))
    rows: dict[Labels, list[tuple[float, float]]] = {}
    for slot in range(int((end - start) / step + 1e-9) + 1):
        at = start + slot * step
        value = evaluator.value(expression, at, start=start, end=end)
        for labels, one in [((), value)] if isinstance(value, float) else value:
            rows.setdefault(labels, []).append((at, one))
    return list(rows.items())


def expected_scalar(command: Command) -> float | None:
    """The lone number that a script expects of a scalar expression."""
    if len(command.body) != 1:
        return None
    try:
        return number(command.body[0])
    except ValueError:
        return None


def expected_rows(
    command: Command, found: re.Match[str]
) -> list[tuple[Labels, list[tuple[float, float]]]] | None:
    """What the script expects; None where a native histogram is part of it."""
    rows = []
    for line in command.body:
        if line.startswith(("expect", "expected_")):
            continue
        labels, text = series(line)
        values = list(points(text))
        if HISTOGRAM in values:
            return None
        if found["at"]:
            times = [duration(found["at"])]
        else:
            start, step = duration(found["start"]), duration(found["step"])
            times = [start + index * step for index in range(len(values))]
        rows.append(
            (labels, [(t, v) for t, v in zip(times, values, strict=True) if isinstance(v, float)])
        )
    return rows


def close(got: float, wanted: float) -> bool:
    if math.isnan(got) or math.isnan(wanted):
        return math.isnan(got) and math.isnan(wanted)
    return got == wanted or math.isclose(got, wanted, rel_tol=TOLERANCE)


def same_points(got: list[tuple[float, float]], wanted: list[tuple[float, float]]) -> bool:
    return len(got) == len(wanted) and all(
        close(a[0], b[0]) and close(a[1], b[1]) for a, b in zip(got, wanted, strict=True)
    )


def judge(command: Command, found: re.Match[str], got: Result) -> str | None:
    """What is wrong with the answer; None where it is right."""
    scalar = expected_scalar(command)
    if isinstance(got, float) or scalar is not None:
        if isinstance(got, float) and scalar is not None and close(got, scalar):
            return None
        return f"got {got}, expected {scalar}"
    wanted = expected_rows(command, found)
    assert wanted is not None
    if found["mode"] != "_ordered":
        got, wanted = sorted(got), sorted(wanted)
    if [labels for labels, _ in got] != [labels for labels, _ in wanted]:
        return f"got {got}, expected {wanted}"
    for (labels, some), (_, others) in zip(got, wanted, strict=True):
        if not same_points(some, others):
            return f"{labels}: got {some}, expected {others}"
    return None


def evaluate(command: Command, storage: ScriptStorage, tally: Tally, where: str) -> None:
    found = _EVAL.fullmatch(command.text)
    if found is None:
        tally.failures.append(f"{where}: cannot read {command.text!r}")
        return
    must_fail = found["mode"] == "_fail" or any(
        line.startswith("expect fail") for line in command.body
    )
    try:
        expression = parse(found["query"])
    except RuleError as problem:
        if must_fail:
            tally.passed += 1
        elif any(words in problem.what for words in REFUSALS):
            tally.unsupported += 1
        else:
            tally.failures.append(f"{where}: {problem}")
        return
    scalar = expected_scalar(command)
    if not must_fail and scalar is None and expected_rows(command, found) is None:
        tally.unsupported += 1
        return
    try:
        got = answer(Evaluator(storage), expression, found)
    except RuleError as problem:
        complaint = None if must_fail else str(problem)
    else:
        complaint = "should be refused" if must_fail else judge(command, found, got)
    if complaint is None:
        tally.passed += 1
    else:
        tally.failures.append(f"{where}: {found['query']}: {complaint}")


def run(path: Path) -> Tally:
    tally = Tally()
    storage = ScriptStorage()
    for command in commands(path.read_text(encoding="utf-8")):
        if command.text.startswith("load"):
            load(command, storage)
        elif command.text == "clear":
            storage = ScriptStorage()
        elif command.text.startswith("eval"):
            evaluate(command, storage, tally, f"{path.name}:{command.number}")
        else:
            tally.failures.append(f"{path.name}:{command.number}: unknown {command.text!r}")
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
