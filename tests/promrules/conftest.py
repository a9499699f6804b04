from collections.abc import Sequence

import pytest

from ldlm_promrules.samples import ListedStorage, Matcher, Series


class ListStorage(ListedStorage):
    """Holds series as they are and notes which windows were asked for."""

    def __init__(self, series: Sequence[Series]) -> None:
        self._series = series
        self.asked: list[tuple[float, float]] = []

    def select(self, matchers: Sequence[Matcher], start: float, end: float) -> list[Series]:
        self.asked.append((start, end))
        found = []
        for one in self._series:
            labels = dict(one.labels)
            if all(
                matcher.op == "=" and labels.get(matcher.name, "") == matcher.value
                for matcher in matchers
            ):
                kept = [
                    (t, v) for t, v in zip(one.times, one.values, strict=True) if start <= t <= end
                ]
                found.append(
                    Series(one.labels, [t for t, _ in kept], [v for _, v in kept], one.ended)
                )
        return found


@pytest.fixture
def storage_of() -> type[ListStorage]:
    return ListStorage
