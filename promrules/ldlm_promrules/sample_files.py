"""Reads files of samples: Prometheus' text format, OpenMetrics, and the notation of its tests.

https://prometheus.io/docs/instrumenting/exposition_formats/,
https://prometheus.io/docs/specs/om/open_metrics_spec/
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from ldlm_promrules.errors import SampleError
from ldlm_promrules.promql.series_description import HISTOGRAM, STALE, parse_series, parse_values
from ldlm_promrules.query_answers import LAST
from ldlm_promrules.samples import Labels
from ldlm_promrules.series.listed_series import ENDED, ListedSeries

MAX_SAMPLES = 10_000_000
"""Samples of a file at most. A choice: some 500 MB of memory; `0+1x999999999` would take any."""

_END = "# EOF"  # the last line of OpenMetrics, whose times are seconds; elsewhere milliseconds
# A value and a time; OpenMetrics may have an exemplar after them.
_VALUE = re.compile(
    r"(?P<value>[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|[iI]nf|[nN]a[nN]))"
    r"(?:\s+(?P<time>[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?))?\s*(?:#\s.*)?"
)
_Sample: TypeAlias = tuple[float, float | None]


def read_samples(path: Path, interval: float | None = None, at: float = 0.0) -> ListedSeries:
    """The samples of a file. Raises SampleError with the file and the line of what is wrong.

    `interval` (seconds): the file is in the notation of Prometheus' tests, such as
    `up{job="a"} 1 0x5 _ stale`, with a value each `interval` from 0 on. None: it is in the text
    format or OpenMetrics; its samples without a time are of `at` (Unix seconds).
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
        raise SampleError(
            f"cannot be read: {reason}", where=str(path), remedy="check name and rights"
        ) from None
    scale = 1.0 if lines and lines[-1].strip() == _END else 0.001
    found: dict[Labels, dict[float, float | None]] = {}
    count = 0
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            labels, rest = parse_series(line.strip())
            samples = _exposed(rest, scale, at) if interval is None else _noted(rest, interval)
            kept = dict(islice(samples, MAX_SAMPLES + 1 - count))
            if any(abs(time) > LAST for time in kept):
                raise ValueError("a time is beyond the year 9999")
        except ValueError as problem:
            raise SampleError(
                str(problem), where=f"{path}, line {number}", remedy=_remedy(interval)
            ) from None
        count += len(kept)
        if count > MAX_SAMPLES:
            raise SampleError(
                f"more than {MAX_SAMPLES:,} samples", where=f"{path}, line {number}",
                remedy="keep fewer",
            )  # fmt: skip
        found.setdefault(labels, {}).update(kept)
    return _listed(found.items())


def _exposed(rest: str, scale: float, at: float) -> Iterator[_Sample]:
    written = _VALUE.fullmatch(rest)
    if written is None:
        raise ValueError(f"{rest!r} is no value with or without a time")
    time = at if written["time"] is None else round(float(written["time"]) * scale, 3)
    yield time, float(written["value"])


def _noted(rest: str, interval: float) -> Iterator[_Sample]:
    for index, value in enumerate(parse_values(rest)):
        time = round(index * interval, 3)
        if value is HISTOGRAM:
            raise ValueError("native histograms are not supported")
        if value is STALE:
            yield time, ENDED
        elif isinstance(value, float):
            yield time, value


def _remedy(interval: float | None) -> str:
    if interval is None:
        return 'write a line such as up{job="a"} 1 1700000000000'
    return 'write a line such as up{job="a"} 1 0x5 _ stale'


def _listed(found: Iterable[tuple[Labels, dict[float, float | None]]]) -> ListedSeries:
    series = ListedSeries()
    for labels, samples in found:
        series.add(labels, sorted(samples.items(), key=lambda sample: sample[0]))
    return series
