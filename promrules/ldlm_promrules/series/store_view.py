"""The store as it is at one moment, for readers in other threads while the store goes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from ldlm_promrules.samples import Labels, Matcher
from ldlm_promrules.series.series_matching import is_matched
from ldlm_promrules.series.series_store import SeriesStore, _Kept


class StoreView(SeriesStore):
    """A storage of the series of some metrics of `store`, up to `until` (Unix seconds).

    `names`: the metrics; None: all. It is made in the thread that changes the store, which takes
    a millisecond, and shares the samples with it: no read sees those after `until`.
    """

    def __init__(self, store: SeriesStore, names: Iterable[str] | None, until: float) -> None:
        super().__init__(store._interval, store.retention)
        self._extra = [*store._extra]
        self.until = until
        # Slots since the last scrape were skipped because nothing changed: their samples are there.
        slot = math.floor(until / self._interval) * self._interval if until > 0 else until
        self.last_scrape = max(store.last_scrape, slot)
        wanted = {*store._by_name} - {None} if names is None else {*names}
        self._keep({name: [*store._by_name.get(name, ())] for name in wanted})

    @property
    def oldest(self) -> float:
        """Samples from before this time (Unix seconds) were forgotten; -inf without a scrape."""
        return self.last_scrape - self.retention

    @property
    def first(self) -> float:
        """When the first sample that is kept was taken (Unix seconds), or `until`."""
        series = self._by_name[None]
        return min((kept.segments[0].born for kept in series), default=self.until)

    def relabelled(self, shown: Callable[[str], str]) -> StoreView:
        """The same samples under labels whose values are passed through `shown`.

        Of several series that get the same labels, the last one is kept. The result goes on to
        have the samples that the store forgets meanwhile.
        """
        found: dict[str | None, dict[Labels, _Kept]] = {}
        for kept in self._by_name[None]:
            (key, name), *rest = kept.labels
            labels = ((key, name), *((label, shown(value)) for label, value in rest))
            found.setdefault(name, {})[labels] = _Kept(labels, [*kept.segments])
        view = StoreView(self, (), self.until)
        view._keep({name: [*series.values()] for name, series in found.items()})
        return view

    def series(
        self,
        start: float,
        end: float,
        any_of: Sequence[Sequence[Matcher]] = (),
        ask: Callable[[], None] = lambda: None,
    ) -> list[Labels]:
        """The labels of the series that existed between two times (Unix seconds).

        They satisfy all matchers of one of `any_of`, if there are any. `ask` is called for each
        series, and may raise to end the search.
        """
        found = []
        for kept in self._by_name[None]:
            ask()
            if any(
                each.born <= end and (each.ended is None or each.ended > start)
                for each in kept.segments
            ) and (not any_of or any(is_matched(kept.labels, matchers) for matchers in any_of)):
                found.append(kept.labels)
        return found

    def _keep(self, by_name: dict[str | None, list[_Kept]]) -> None:
        self._by_name = by_name | {None: [*chain.from_iterable(by_name.values())]}
