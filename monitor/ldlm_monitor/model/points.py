"""Labelled numbers (points and series), and the protocol of a store that PromQL reads."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal, NamedTuple, Protocol, TypeAlias

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Sorted (name, value) pairs; a label with an empty value is left out."""

MAX_LABEL_LENGTH = 128  # of a label's value. A choice: more inflates scrapes, less merges names


@lru_cache(maxsize=4096)  # a choice: of what each scrape exports anew; more would take memory
def make_labels(**pairs: str | None) -> Labels:
    """Sorted labels of the pairs whose value is not None or "", cut to `MAX_LABEL_LENGTH`."""
    return tuple(sorted((name, value[:MAX_LABEL_LENGTH]) for name, value in pairs.items() if value))


@dataclass(slots=True)  # to create a frozen one takes four times as long, and there are many
class Point:
    """One exported value; `name` is a key of `names.METRICS`. Nobody changes it."""

    name: str
    labels: Labels
    value: float


@dataclass(slots=True)
class Series:
    """Samples of one series in time order.

    `labels` include `__name__`; `times` are Unix seconds, strictly increasing.
    `ended` is when the series was marked stale (None: not stale): from then on an
    instant selector does not return its last sample.
    """

    labels: Labels
    times: Sequence[float]
    values: Sequence[float]
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class Matcher:
    """A label matcher of a PromQL selector; regular expressions match whole values (RE2)."""

    name: str
    op: Literal["=", "!=", "=~", "!~"]
    value: str


Column: TypeAlias = Sequence[float | None]
"""A series' values at several times; None where it has no sample."""


class Reader(NamedTuple):
    """Reads the series that all matchers of one selector select; times are Unix seconds.

    `select`: the series with their samples in [start, end]. `latest`: labels, time and value of the
    last sample in (since, until] of each; a series that was marked stale between that sample and
    `until` is left out. Most selectors of rules need only this, so a store may answer it without
    listing samples. `columns`: the values of `latest` for each pair of rising times, as a column
    for each series.
    """

    select: Callable[[float, float], Iterable[Series]]
    latest: Callable[[float, float], Iterable[tuple[Labels, float, float]]]
    columns: Callable[[Sequence[float], Sequence[float]], Iterable[tuple[Labels, Column]]]


class Storage(Protocol):
    """Where an evaluator finds samples."""

    def reader(self, matchers: Sequence[Matcher]) -> Reader:
        """A reader for a selector, which may be evaluated again and again."""


class ListedStorage(Storage, Protocol):
    """A storage that lists all samples of a range."""

    def select(self, matchers: Sequence[Matcher], start: float, end: float) -> Iterable[Series]:
        """As `Reader.select`."""

    def reader(self, matchers: Sequence[Matcher]) -> Reader:
        """As `Storage.reader`."""
        select = partial(self.select, matchers)
        latest = partial(_latest, select)
        return Reader(select, latest, partial(_columns, latest))


def _latest(
    select: Callable[[float, float], Iterable[Series]], since: float, until: float
) -> Iterator[tuple[Labels, float, float]]:
    for series in select(since, until):
        last = series.times[-1] if len(series.times) else since
        ended = series.ended is not None and last <= series.ended <= until
        if last > since and not ended:
            yield series.labels, last, series.values[-1]


def _columns(
    latest: Callable[[float, float], Iterable[tuple[Labels, float, float]]],
    since: Sequence[float],
    until: Sequence[float],
) -> Iterable[tuple[Labels, Column]]:
    pairs = zip(since, until, strict=True)
    return columns_of([[(each, x) for each, _, x in latest(*pair)] for pair in pairs])


def columns_of(
    vectors: Sequence[Iterable[tuple[Labels, float]]],
) -> list[tuple[Labels, Column]]:
    """Vectors at several times as a column for each series."""
    found: dict[Labels, list[float | None]] = {}
    for index, vector in enumerate(vectors):
        for labels, value in vector:
            if labels not in found:
                found[labels] = [None] * len(vectors)
            found[labels][index] = value
    return [*found.items()]


DERIVED_STEP_SECONDS = "derived_step_seconds"
"""Quantity: seconds per step computed from the steps' times, for runs that report no pace."""
PACES = ("step_seconds", "samples_per_second", "tokens_per_second", "steps_per_second")
"""Logged quantities that give the pace, the preferred first: a duration that the trainer measured,
and rates."""
BUSY_SECONDS = "busy_seconds"
"""Quantity: seconds of a step that a rank worked before it waited for others; ranks report it."""
MEASURED = frozenset(
    {
        "loss", "grad_norm", "memory_allocated_bytes", "loss_scale", BUSY_SECONDS, *PACES,
    }
)  # fmt: skip
"""The logged quantities that detectors read; they read `DERIVED_STEP_SECONDS`, too."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A run's new values since its detectors read it last.

    `values`: by quantity and rank (None if the line has none), one value per logged step, in
    order, with NaN and infinities. `step`: the run's last step. `rank_steps`: each rank's last
    logged step. `skipped`: the last skipped steps. `checkpoints`: the steps at which the last
    checkpoints were saved, rising. `resumed`: the run went back to an earlier step. `begins_anew`:
    all values are of another training than those before. `at`: Unix seconds of the last step, None
    where only the order of steps is known. `pace`: quantity and rank whose values give the pace of
    the run, which changes where a better source or quantity is found.
    """

    values: Mapping[tuple[str, int | None], array[float]]
    step: int | None
    rank_steps: Mapping[int, int]
    skipped: Sequence[int]
    checkpoints: Sequence[int]
    resumed: bool
    begins_anew: bool = False
    at: float | None = None
    pace: tuple[str, int | None] = (DERIVED_STEP_SECONDS, None)
