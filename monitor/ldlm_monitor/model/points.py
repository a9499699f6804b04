"""Numbers under names and labels: what is exported, stored and asked for."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Sorted (name, value) pairs; a label with an empty value is left out."""


MAX_LABEL_LENGTH = 128
"""Characters of a label's value; what log text adds beyond is cut."""


def make_labels(**pairs: str | None) -> Labels:
    """Labels of the pairs that have a value, sorted by name, values bounded in length."""
    return tuple(sorted((name, value[:MAX_LABEL_LENGTH]) for name, value in pairs.items() if value))


@dataclass(frozen=True, slots=True)
class Point:
    """One exported value: `name` stands in `names.METRICS`, `labels` are sorted."""

    name: str
    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class Series:
    """Samples of one series in time order.

    `labels` include `__name__`; `times` are Unix seconds, strictly increasing.
    `ended` is when the series was marked stale (None: it goes on): from then on
    an instant selector does not look back at its samples any more.
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


class Storage(Protocol):
    """Where an evaluator finds samples."""

    def select(self, matchers: Sequence[Matcher], start: float, end: float) -> Iterable[Series]:
        """The series that satisfy every matcher, with their samples in [start, end]."""

    def latest(
        self, matchers: Sequence[Matcher], since: float, until: float
    ) -> Iterable[tuple[Labels, float, float]]:
        """Labels, time and value of the last sample in (since, until] of each series.

        A series that ended after that sample, at `until` or before, is left out. Most of what
        rules ask: a storage may know it without listing the other samples.
        """
        for series in self.select(matchers, since, until):
            last = series.times[-1] if len(series.times) else since
            ended = series.ended is not None and last <= series.ended <= until
            if last > since and not ended:
                yield series.labels, last, series.values[-1]


DERIVED_STEP_SECONDS = "derived_step_seconds"
"""Seconds a step from the times of steps, for runs that report no pace."""

BUSY_SECONDS = "busy_seconds"
"""Seconds of a step before a rank waits for others, as the rank reports."""

MEASURED = frozenset(
    {
        "loss",
        "grad_norm",
        "memory_allocated_bytes",
        "loss_scale",
        "step_seconds",
        BUSY_SECONDS,
        "samples_per_second",
        "tokens_per_second",
        "steps_per_second",
    }
)
"""The quantities whose every value is handed on."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What came since the last time.

    `values`: by quantity and rank, one value a logged step, in order; NaN and infinities
    too. `step`: where the run is. `rank_steps`: by rank, the last logged step.
    `skipped_steps`: in all. `checkpoints`: at which steps the last ones were saved.
    `resumed`: the run went back to an earlier step.
    """

    values: Mapping[tuple[str, int | None], array[float]]
    step: int | None
    rank_steps: Mapping[int, int]
    skipped_steps: int
    checkpoints: Sequence[int]
    resumed: bool
