"""The embedded store equals a Prometheus that scrapes every five seconds."""

import math

from hypothesis import given
from hypothesis import strategies as st

from ldlm_promrules.samples import Matcher, Point
from ldlm_promrules.series.series_store import SeriesStore
from tests.promrules.labelled import make_labels

LOSS = (Matcher("__name__", "=", "ldlm_train_loss"),)


def loss(value: float, run: str = "a") -> Point:
    return Point("ldlm_train_loss", make_labels(run=run), value)


def samples(store: SeriesStore, start: float, end: float) -> list[tuple[float, float]]:
    (series,) = store.reader(LOSS).select(start, end)
    return list(zip(series.times, series.values, strict=True))


def test_a_value_that_stays_is_a_sample_at_every_slot() -> None:
    store = SeriesStore(5, 3600)
    for at in (5, 10, 15, 20):
        store.append([[loss(2.0 if at < 15 else 1.0)]], at)
    assert samples(store, 0, 20) == [(5, 2.0), (10, 2.0), (15, 1.0), (20, 1.0)]
    assert samples(store, 10, 15) == [(10, 2.0), (15, 1.0)]


def test_slots_that_were_skipped_are_there_when_read() -> None:
    store = SeriesStore(5, 3600)
    store.append([[loss(2.0)]], 5)
    store.append([[loss(2.0)]], 30)
    assert [t for t, _ in samples(store, 0, 30)] == [5, 10, 15, 20, 25, 30]


def test_a_scrape_off_the_grid_is_a_sample_too() -> None:
    store = SeriesStore(5, 3600)
    store.append([[loss(2.0)]], 5)
    store.append([[loss(math.nan)]], 7.25)
    store.append([[loss(1.0)]], 10)
    read = samples(store, 0, 10)
    assert [t for t, _ in read] == [5, 7.25, 10]
    assert math.isnan(read[1][1])


def test_a_series_that_is_missing_from_a_scrape_has_ended_and_may_return() -> None:
    store = SeriesStore(5, 3600)
    store.append([[loss(1.0)]], 5)
    store.append([[]], 10)
    (series,) = store.reader(LOSS).select(0, 10)
    assert (list(series.times), series.ended) == ([5], 10)
    assert list(store.reader(LOSS).latest(-math.inf, 10)) == []
    assert [(t, v) for _, t, v in store.reader(LOSS).latest(-math.inf, 9)] == [(5, 1.0)]
    store.append([[loss(3.0)]], 20)
    assert samples(store, 0, 20) == [(5, 1.0), (20, 3.0)]


def test_every_kind_of_matcher_matches_whole_values() -> None:
    store = SeriesStore(5, 3600)
    store.append([[loss(1.0, "a"), loss(2.0, "ab"), Point("ldlm_train_step", (), 3.0)]], 5)

    def runs(*matchers: Matcher) -> set[str]:
        found = store.reader((*LOSS, *matchers)).select(0, 5)
        return {dict(series.labels)["run"] for series in found}

    assert runs(Matcher("run", "=", "a")) == {"a"}
    assert runs(Matcher("run", "!=", "a")) == {"ab"}
    assert runs(Matcher("run", "=~", "a")) == {"a"}
    assert runs(Matcher("run", "=~", "a.?")) == {"a", "ab"}
    assert runs(Matcher("run", "!~", "b")) == {"a", "ab"}
    assert runs(Matcher("rank", "=", "")) == {"a", "ab"}


def test_a_selector_that_was_asked_before_finds_series_that_come_later() -> None:
    store = SeriesStore(5, 3600)
    not_b = Matcher("run", "!=", "b")
    selectors = [(*LOSS, not_b), (not_b,), (Matcher("__name__", "=~", ".*loss"),)]
    readers = [store.reader(selector) for selector in selectors]

    def found() -> list[list[str]]:
        asked = [reader.latest(-math.inf, 100) for reader in readers]
        return [[dict(labels)["run"] for labels, _, _ in each] for each in asked]

    store.append([[loss(1.0, "a")]], 5)
    assert found() == [["a"]] * 3
    store.append([[loss(1.0, "a"), loss(1.0, "b"), loss(1.0, "c")]], 10)
    assert found() == [["a", "c"], ["a", "c"], ["a", "b", "c"]]


def test_a_selector_does_not_find_what_was_forgotten() -> None:
    store = SeriesStore(5, 100)
    store.append([[loss(1.0, "a"), loss(1.0, "b")]], 5)
    reader = store.reader(LOSS)
    assert len(list(reader.latest(-math.inf, 100))) == 2
    for slot in range(2, 600):
        store.append([[loss(float(slot), "b")]], slot * 5)
    for select in (store.reader(LOSS).select, reader.select):
        assert [dict(series.labels)["run"] for series in select(0, 3000)] == ["b"]


def test_memory_is_bounded_by_the_retention() -> None:
    store = SeriesStore(5, 100)
    for slot in range(5000):
        store.append([[loss(float(slot))]], slot * 5)
    (series,) = store.reader(LOSS).select(0, 25000)
    assert len(series.times) <= 100 / 5 + 256
    assert series.values[-1] == 4999


@given(st.lists(st.tuples(st.integers(1, 40), st.floats(allow_nan=True)), min_size=1, max_size=30))
def test_a_store_that_skips_slots_reads_like_one_that_does_not(
    steps: list[tuple[int, float]],
) -> None:
    lazy, eager = SeriesStore(5, 1e6), SeriesStore(5, 1e6)
    at, held = 0, 0.0
    for slots, value in steps:
        for slot in range(at + 1, at + slots):
            eager.append([[loss(held)]], slot * 5) if at else None
        at, held = at + slots, value
        for store in (lazy, eager):
            store.append([[loss(value)]], at * 5)
    assert repr(samples(lazy, 0, at * 5)) == repr(samples(eager, 0, at * 5))


@given(
    st.lists(st.sampled_from([None, 1.0, 2.0]), min_size=1, max_size=12),
    st.floats(0, 80),
    st.floats(1, 40),
)
def test_the_latest_sample_is_the_last_that_a_selector_would_find(
    scrapes: list[float | None], until: float, lookback: float
) -> None:
    store = SeriesStore(5, 1e6)
    for slot, value in enumerate(scrapes):
        store.append([[] if value is None else [loss(value)]], slot * 5 + (2.5 if slot % 3 else 0))
    until = min(until, store.last_scrape)
    expected = [
        (series.times[-1], series.values[-1])
        for series in store.reader(LOSS).select(0, until)
        if series.times[-1] > until - lookback and store_holds(scrapes, until)
    ]
    assert [(t, v) for _, t, v in store.reader(LOSS).latest(until - lookback, until)] == expected


def store_holds(scrapes: list[float | None], until: float) -> bool:
    """Whether the series was in the last scrape at or before `until`."""
    times = [slot * 5 + (2.5 if slot % 3 else 0) for slot in range(len(scrapes))]
    present = [value for time, value in zip(times, scrapes, strict=True) if time <= until]
    return bool(present) and present[-1] is not None


def test_a_group_that_is_the_same_object_goes_on_and_one_that_is_missing_has_ended() -> None:
    store = SeriesStore(5, 3600)
    group = [loss(1.0, "a")]
    store.append([group, [loss(2.0, "b")]], 5)
    store.append([group], 10)
    alive = [dict(labels)["run"] for labels, _, _ in store.reader(LOSS).latest(0, 10)]
    assert alive == ["a"]
    store.append([], 15)
    store.append([group], 20)
    first = next(iter(store.reader(LOSS).select(0, 20)))
    assert (first.labels[1][1], list(first.times)) == (
        "a",
        [5, 10, 20],
    )
