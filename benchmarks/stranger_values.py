"""Which values of a log the monitor reads, and whether it decides rightly, by a reader's truth.

A truth has a pattern for each printed name, whose group `value` is the number, and a decision.
A number is found if a sample of its line has it under any name, or what its unit makes of it. So
is one whose record has its samples at lines near it, or further away in tables and documents,
unless the line there prints the number itself. A sample's name stands for one printed name of its
line, and its value for one place of another line.
"""

import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ldlm_monitor.base.records import Sample
from ldlm_monitor.base.snapshot import RunView
from ldlm_monitor.finished.backtest.decision_score import decision_of

ROUNDING = 1e-6  # relative: what a conversion may leave; printed numbers differ by more
MOST = 0.9
"""The fraction of its places at which a name counts as found: a log that is cut off lacks some."""
NEAR, FAR = 3, 40  # lines from a number to its record's samples; FAR is for a `ROW`
ROW = re.compile(r"(?:.*[|│┃║].*|[^,:=\d]*[:=]?[^,:=]*,?)\s*$")  # with bars, or a value alone
NUMBER = re.compile(r"(?i)[-+]?(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?|[-+]?(?:nan|inf)\b")
UNIT = re.compile(r"\s*\]?(?P<unit>[^\W\d_]+)(?P<per>/)?")
TIMES = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "min": 60, "m": 60, "h": 3600}
SIZES = {
    prefix + byte: power
    for power, prefixes in enumerate(("kK", "M", "G", "T"), 1)
    for prefix in prefixes
    for byte in ("", "B", "iB")
}

Counts = dict[str, tuple[int, int]]  # by printed name: how many are found, and how many there are


@dataclass(frozen=True, slots=True)
class PrintedValue:
    """A number under a printed name. `place` counts characters; `after` is the text behind it."""

    name: str
    line: int
    place: int
    value: float
    after: str


@dataclass(frozen=True, slots=True)
class ReadValue:
    """The value with this index among those of a line's samples."""

    line: int
    index: int
    name: str
    value: float


def count_found(patterns: Mapping[str, str], text: str, samples: Iterable[Sample]) -> Counts:
    """The numbers of each printed name that samples of the log have."""
    lines = text.split("\n")
    read: dict[int, list[ReadValue]] = defaultdict(list)
    for sample in samples:
        row = read[sample.position.line]
        for name, value in sample.values.items():
            row.append(ReadValue(sample.position.line, len(row), name, value))
    owners: dict[tuple[int, str], PrintedValue] = {}  # whose name a line's name stands for
    taken: dict[ReadValue, int] = {}  # by a place in another line

    def may_be(each: ReadValue, match: PrintedValue) -> bool:
        owner = owners.get((each.line, each.name), match)
        if owner.name != match.name and owner.place != match.place:  # patterns may overlap
            return False
        if each.line == match.line:
            return True
        free = taken.get(each, match.place) == match.place
        return free and not prints(lines[each.line - 1], each.value)

    counts = {}
    for name, pattern in patterns.items():
        found, matches = 0, [*matches_of(name, pattern, text)]
        for match in matches:
            accepted = forms(match)
            near = (
                each
                for at in lines_around(match.line, lines[match.line - 1])
                for each in read.get(at, ())
                if any(same(each.value, one) for one in accepted)
            )
            hit = next((each for each in near if may_be(each, match)), None)
            if hit is not None:
                found += 1
                owners.setdefault((hit.line, hit.name), match)
                if hit.line != match.line:
                    taken[hit] = match.place
        counts[name] = (found, len(matches))
    return counts


def matches_of(name: str, pattern: str, text: str) -> Iterator[PrintedValue]:
    """Each number that a pattern finds in the whole log."""
    ends = [each.start() for each in re.finditer("\n", text)]
    for each in re.finditer(pattern, text):
        begin, end = each.span("value")
        after = text[end : end + 12].partition("\n")[0]
        line = bisect_left(ends, begin) + 1
        yield PrintedValue(name, line, begin, float(each["value"].replace(",", "")), after)


def lines_around(line: int, text: str) -> Iterator[int]:
    """The lines that may have the samples of this one, the nearest first."""
    yield line
    for away in range(1, (FAR if ROW.match(text) else NEAR) + 1):
        yield line - away
        yield line + away


def prints(text: str, value: float) -> bool:
    """Whether a line has this number, perhaps as a percentage."""
    numbers = (float(each[0].replace(",", "")) for each in NUMBER.finditer(text))
    return any(same(value, one) or same(value, one / 100) for one in numbers)


def forms(printed: PrintedValue) -> set[float]:
    """The numbers that a sample may have for it: a fraction, seconds, bytes, one of a rate."""
    found = {printed.value, printed.value / 100}
    if unit := UNIT.match(printed.after):
        power = SIZES.get(unit["unit"], 0)
        factors = (TIMES.get(unit["unit"], 1), 1000**power, 1024**power)
        scaled = {printed.value * each for each in factors}
        found |= scaled | {1 / each for each in scaled if each and unit["per"]}
    return found


def same(one: float, other: float) -> bool:
    """Equal within `ROUNDING`; NaN equals NaN."""
    return math.isclose(one, other, rel_tol=ROUNDING) or (math.isnan(one) and math.isnan(other))


def word_of(run: RunView) -> str:
    """The decision on a run, in the words of a truth."""
    word = decision_of(run).decision
    if word == "GO_ON" and run.state == "finished":
        return "NOTHING_TO_DO"
    return word.removesuffix("_WITHOUT")  # which node to leave out is no part of it


def value_figures(logs: Iterable[Counts]) -> dict[str, tuple[float, ...]]:
    """The figures over all logs whose truth has values."""
    each_log = [[*counts.values()] for counts in logs if counts]
    names = [each for counts in each_log for each in counts]
    (found, total), shares = sums(names), [a / b for a, b in map(sums, each_log)]
    return {
        "values found, of all": (found, total),
        "values found by log on average, in %": (round(100 * fmean(shares or [0]), 1), 100),
        "names found at nine of ten places": (sum(a >= MOST * b for a, b in names), len(names)),
    }


def sums(counts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(a for a, _ in counts), sum(b for _, b in counts)
