"""The numbers of one run: each from its best source, and statistics of recent values."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain

from ldlm_monitor.base.names import METRIC_SILENCE
from ldlm_monitor.base.points import DERIVED_STEP_SECONDS, PACES, Labels, Point
from ldlm_monitor.base.records import Event, Sample
from ldlm_monitor.base.snapshot import CurveView, GpuView, Statistics
from ldlm_monitor.judge.detect import QUANTITIES
from ldlm_monitor.judge.run.curve import RunCurve, is_charted
from ldlm_monitor.judge.run.file_rows import FileRows, ValueSource
from ldlm_monitor.judge.run.quantity import (
    NonfiniteCounts,
    NonfiniteSeries,
    QuantityValues,
    SourceLine,
    exported_name,
    is_new_report,
    is_of_its_rank,
    labels_of,
)
from ldlm_monitor.judge.run.rhythm import Rhythms

MAX_QUANTITIES = 200
"""Most quantities of one rank; values of later ones are dropped. A choice: usual logs have fewer,
and more would let a log with a name per layer or per expert flood the series store."""

_OF_THE_RUN = frozenset({"progress", "total_steps", "eval_progress", "skip_progress"})
"""Quantities that `Progress` and `Lifecycle` read: positions in the run, and no values of it."""
_WITHOUT_STATISTICS = _OF_THE_RUN | {"steps_per_second", "epoch_progress", "batch_in_epoch"}
"""Positions, whose mean has no meaning, and a rate that repeats `step_seconds`."""
_SMOOTHED = ("steps_per_second", ValueSource.BAR)
"""Not read by detectors: tqdm smooths its rate by 0.3, so that one pause lowers many values."""


class RunValues:
    """The last value of every quantity of one run, per rank, from its best source."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._by_rank: dict[int | None, dict[str, QuantityValues]] = {}
        self._best: dict[str, ValueSource] = {}
        self._charted: dict[str, ValueSource] = {}
        self.nonfinite = NonfiniteCounts(run)
        self._rhythms = Rhythms(run)
        self._order = self._launched = 0  # numbers of the last sample, and of that before a launch
        self.dropped = 0  # values of quantities beyond `MAX_QUANTITIES`

    def observe(self, found: Sequence[FileRows], judged: float) -> list[str]:
        """Add rows as if in the order of their times; returns the newly non-finite quantities.

        `judged`: when they are (Unix seconds), from which an alert on those counts.
        """
        alarming: list[str] = []
        among = sorted(chain.from_iterable(rows.times for rows in found)) if len(found) > 1 else ()
        for rows in found:
            rank, source = rows.last.rank, rows.source
            quantities = self._by_rank.setdefault(rank, {})
            self._rhythms.observe(rows)
            for quantity, column, places in rows.columns():
                last = rows.sample(places[-1])
                kept = quantities.get(quantity)
                if kept is None or kept.source is not source:
                    kept = self._admit(quantity, last, source, len(column))
                place = places[-1]
                newer = bisect_right(among, rows.times[place]) if among else place + 1
                order = self._order + newer
                reported = is_new_report(quantity, column[-1], kept)
                if kept is not None:
                    kept.extend(column, rows, places, last, order)
                elif quantity not in self._best or quantity in _OF_THE_RUN:
                    continue
                finite = math.isfinite(column[-1])
                if kept is not None and (self._rhythms.lapses or not finite):
                    line = SourceLine(last.position, last.step)
                    count = len(column) if finite else 0
                    self._rhythms.note(quantity, rank, line, count, kept.recent)
                broken = quantity if not finite else "loss" if reported else ""
                if broken:  # judged, whatever a better source says of it
                    evidence = SourceLine(last.position, last.step, order=order)
                    best, total = kept is not None, 0 if kept is None else kept.total
                    if self.nonfinite.count(broken, rank, evidence, judged, among=total, best=best):
                        alarming.append(broken)
        self._order += sum(map(len, found))
        return alarming

    def observe_nonfinite(self, event: Event, at: float) -> bool:
        """Count the value that a `nonfinite_metric` event of `at` reports; True if it is new."""
        self._order += 1
        step = event.fields.get("step")
        number = int(step) if isinstance(step, int) else None
        line = SourceLine(event.position, number, event.message, self._order)
        quantity = str(event.fields.get("quantity") or "loss")
        kept = self._by_rank.get(event.rank, {}).get(quantity)
        among = 0 if kept is None else kept.total
        return self.nonfinite.count(quantity, event.rank, line, at, among=among)

    def launch(self) -> None:
        """Let all values be those of an earlier launch: they are exported no longer."""
        self._launched = self._order
        self.nonfinite.launch()
        self._rhythms.launch()

    def points(self) -> list[Point]:
        """The exported series of the launch's values, and all counts of non-finite ones."""
        values = [Point(kept.metric, kept.labels, kept.value) for kept in self._present()]
        silences = [point for point, _ in self._rhythms.points()]
        return values + self.nonfinite.points() + silences

    def evidence(self) -> Iterator[tuple[str, Labels, SourceLine]]:
        """Metric, labels and last line of every series."""
        for kept in self._present():
            line = SourceLine(kept.sample.position, kept.sample.step, order=kept.order)
            yield kept.metric, kept.labels, line
        for point, first_without in self._rhythms.points():
            if first_without is not None:
                yield point.name, point.labels, first_without
        yield from self.nonfinite.evidence()

    def last(self, quantity: str) -> float | None:
        """A quantity's last value, of the first rank to report; None if no rank reports it."""
        for quantities in self._by_rank.values():
            if kept := quantities.get(quantity):
                return kept.value
        return None

    def is_finite(self, quantity: str) -> bool:
        """Whether no rank's last value in this launch is NaN or infinite."""
        found = (known[quantity] for known in self._by_rank.values() if quantity in known)
        return all(math.isfinite(each.value) for each in found if each.order > self._launched)

    def quantities(self) -> Iterator[str]:
        """The quantities that were logged, each once for every rank."""
        return (name for name, _ in self._all())

    def missed(self) -> Iterator[tuple[str, str]]:
        """Quantities that came regularly and come no longer, and since when, in words."""
        for point, first_without in self._rhythms.points():
            if point.name == METRIC_SILENCE and point.value and first_without is not None:
                name, step = dict(point.labels)["name"], first_without.step
                yield name, f"no {name} " + ("any more" if step is None else f"since step {step}")

    def lost(self) -> Iterator[tuple[str, bool]]:
        """What an update used that was not finite, while no later number shows that it passed.

        A quantity for each rank; beside it, whether the run's own loss is none any more: that of
        the first rank to report it, of which no number came between.
        """
        first = next((rank for rank, known in self._by_rank.items() if "loss" in known), None)
        for quantity, rank, seen in self.nonfinite.of_update():
            if not self._has_passed(quantity, rank, seen):
                is_own = quantity == "loss" and rank in (None, first)
                yield quantity, is_own and not seen.comes_and_goes

    def _has_passed(self, quantity: str, rank: int | None, seen: NonfiniteSeries) -> bool:
        own = self._by_rank.get(rank, {}).get(quantity)
        last = seen.order or 0
        if own is not None and (quantity == "loss" or own.order > last):
            return seen.has_passed(own.total)
        # A series without values, or one that ended with it: the loss shows what an update did.
        for name in (quantity, "loss") if own is None else ("loss",):
            found = [known[name] for known in self._by_rank.values() if name in known]
            if found:
                return any(
                    kept.order - last > seen.rows_between and math.isfinite(kept.value)
                    for kept in found
                )
        return False

    def pace(self) -> tuple[str, int | None]:
        """The preferred quantity that gives the pace, and the first rank that reports it now."""
        for quantity in PACES:
            ranks = self._by_rank.items() if quantity in self._best else ()
            for rank, quantities in ranks:
                kept = quantities.get(quantity)
                if kept is not None and kept.fresh is not None:
                    return quantity, rank
        return DERIVED_STEP_SECONDS, None

    def step_seconds(self, by_times: float | None) -> float | None:
        """Seconds per step: as logged, otherwise `by_times` of steps or by the logged rate."""
        seconds = self.last("step_seconds") or by_times
        if seconds is None and (rate := self.last("steps_per_second")):
            return 1 / rate
        return seconds

    def statistics(self) -> dict[str, Statistics]:
        """Statistics of recent values by quantity: of one rank, or the sum of the ranks' rates."""
        known: dict[str, tuple[float, list[float]]] = {}
        for quantity, kept in self._all():
            if quantity in _WITHOUT_STATISTICS or quantity in known:
                continue
            own = is_of_its_rank(quantity, self._best[quantity])
            known[quantity] = self._summed(quantity) if own else (kept.value, list(kept.recent))
        broken = self.nonfinite.by_quantity()
        for quantity in broken:
            known.setdefault(quantity, (math.nan, []))
        return {name: _statistics(*last, broken.get(name, 0)) for name, last in known.items()}

    def _summed(self, quantity: str) -> tuple[float, list[float]]:
        ranks = [known[quantity] for known in self._by_rank.values() if quantity in known]
        recent = [
            sum(each) for each in zip(*(reversed(kept.recent) for kept in ranks), strict=False)
        ]
        return sum(kept.value for kept in ranks), recent[::-1]

    def curves(self) -> dict[str, CurveView]:
        """The curve of each charted quantity, from its best source."""
        return {
            quantity: kept.curve.view()
            for quantity, kept in self._all()
            if kept.curve is not None and kept.source is self._charted[quantity]
        }

    def gpus(self) -> Iterator[GpuView]:
        """The GPU of each rank whose callback reports it."""
        for rank, quantities in self._by_rank.items():
            found = {name: each.value for name, each in quantities.items() if name[:4] == "gpu_"}
            if found:
                yield GpuView(gpu=str(rank or 0), rank=rank, values=found)

    def take_fresh(self) -> dict[tuple[str, int | None], array[float]]:
        """Values added since the last call, by quantity and rank."""
        found = {}
        for rank, quantities in self._by_rank.items():
            for quantity, kept in quantities.items():
                if kept.fresh:
                    found[quantity, rank] = kept.fresh
                    kept.fresh = array("d")
        return found

    def _all(self) -> Iterator[tuple[str, QuantityValues]]:
        for quantities in self._by_rank.values():
            yield from quantities.items()

    def _present(self) -> Iterator[QuantityValues]:
        return (kept for _, kept in self._all() if kept.order > self._launched)

    def _admit(
        self, quantity: str, sample: Sample, source: ValueSource, rows: int = 1
    ) -> QuantityValues | None:
        """The quantity as reported by `source`; None if a better source reports it.

        None too if the rank has too many quantities: then `rows` values count as dropped.
        """
        quantities = self._by_rank[sample.rank]
        kept = quantities.get(quantity)
        if kept is not None and kept.source is source:
            return kept
        if quantity in _OF_THE_RUN or source > self._best.get(quantity, source):
            return None
        if kept is None and len(quantities) >= MAX_QUANTITIES:
            self.dropped += rows
            return None
        if source < self._best.get(quantity, source):
            self._forget(quantity, but=sample.rank)
        self._best[quantity] = source
        measured = quantity in QUANTITIES and (quantity, source) != _SMOOTHED
        fresh = array("d") if measured else None
        if kept is None:
            metric, own = exported_name(quantity, sample.rank)
            labels = labels_of(self._run, sample.rank, own)
            kept = QuantityValues(metric, labels, source, sample, fresh)
            quantities[quantity] = kept
        else:
            kept.recent.clear()
            kept.source = source
            kept.fresh = fresh
        kept.curve = self._new_curve(quantity, source)
        return kept

    def _new_curve(self, quantity: str, source: ValueSource) -> RunCurve | None:
        """A curve; None if the quantity is not charted, or if another rank has its curve."""
        if not is_charted(quantity) or self._charted.get(quantity) is source:
            return None
        self._charted[quantity] = source
        return RunCurve()

    def _forget(self, quantity: str, *, but: int | None) -> None:
        for rank, quantities in self._by_rank.items():
            if rank != but:
                quantities.pop(quantity, None)


def _statistics(current: float, recent: list[float], nonfinite: int) -> Statistics:
    # Filtering dominates the cost, and most quantities are never non-finite.
    finite = [value for value in recent if math.isfinite(value)] if nonfinite else recent
    return Statistics(
        current=current,
        mean=sum(finite) / len(finite) if finite else None,
        minimum=min(finite, default=None),
        maximum=max(finite, default=None),
        count=len(recent),
        nonfinite=nonfinite,
    )
