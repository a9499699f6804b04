"""The store as it is at one moment, for readers in other threads while the store goes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from ldlm_monitor.model.points import Labels, Matcher
from ldlm_monitor.series.matching import is_matched
from ldlm_monitor.series.store import Segment, SeriesStore, _Kept


class StoreView(SeriesStore):
    """A storage of the series of some metrics of `store`, up to `until` (Unix seconds).

    `names`: the metrics; None: all. It is made in the thread that changes the store, and shares
    the samples with it: a store only appends to them, and no read sees those after `until`.
    """

    def __init__(self, store: SeriesStore, names: Iterable[str] | None, until: float) -> None:
        super().__init__(store._interval, store.retention)
        self._extra = [*store._extra]
        self.until = until
        # Slots since the last scrape were skipped because nothing changed: their samples are there.
        slot = math.floor(until / self._interval) * self._interval if until > 0 else until
        self.last_scrape = max(store.last_scrape, slot)
        of_names = (store._by_name.get(name, ()) for name in names or ())
        kept = store._series.values() if names is None else chain.from_iterable(of_names)
        self._add((each.labels, [*each.segments]) for each in kept)

    @property
    def oldest(self) -> float:
        """Samples from before this time (Unix seconds) were forgotten; -inf without a scrape."""
        return self.last_scrape - self.retention

    @property
    def first(self) -> float:
        """When the first sample that is kept was taken (Unix seconds), or `last_scrape`."""
        series = self._series.values()
        return min((kept.segments[0].born for kept in series), default=self.last_scrape)

    def relabelled(self, shown: Callable[[str], str]) -> StoreView:
        """The same samples under labels whose values are passed through `shown`.

        Of several series that get the same labels, the last one is kept.
        """
        view = StoreView(self, (), self.until)
        view._add(
            ((labels[0], *((name, shown(value)) for name, value in labels[1:])), kept.segments)
            for labels, kept in self._series.items()
        )
        return view

    def series(
        self, start: float, end: float, any_of: Sequence[Sequence[Matcher]] = ()
    ) -> list[Labels]:
        """The labels of the series that existed between two times (Unix seconds).

        They satisfy all matchers of one of `any_of`, if there are any.
        """
        return [
            labels
            for labels, kept in self._series.items()
            if any(
                each.born <= end and (each.ended is None or each.ended > start)
                for each in kept.segments
            )
            and (not any_of or any(is_matched(labels, matchers) for matchers in any_of))
        ]

    def _add(self, found: Iterable[tuple[Labels, list[Segment]]]) -> None:
        self._series |= {labels: _Kept(labels, segments) for labels, segments in found}
        self._by_name = {None: [*self._series.values()]}
        for labels, kept in self._series.items():
            self._by_name.setdefault(labels[0][1], []).append(kept)
