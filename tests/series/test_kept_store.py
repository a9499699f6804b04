"""A store over a restart: what was kept goes on as if nothing had been."""

import math

from ldlm_monitor.model.points import Matcher, Point, make_labels
from ldlm_monitor.series.store import SeriesStore

STEP, LOSS = "ldlm_train_step", "ldlm_train_loss"


def point(name: str, value: float, **labels: str) -> Point:
    return Point(name, make_labels(**labels), value)


def held(store: SeriesStore, start: float, end: float) -> list[tuple[object, list[float], str]]:
    """Every series with its times and values; NaN equals NaN."""
    return [
        (each.labels, list(each.times), repr(list(each.values)))
        for name in (STEP, LOSS)
        for each in store.select((Matcher("__name__", "=", name),), start, end)
    ]


def shown(store: SeriesStore, at: float) -> set[str]:
    """The runs of which a step is there at `at`."""
    found = store.latest((Matcher("__name__", "=", STEP),), at - 300, at)
    return {dict(labels)["run"] for labels, _, _ in found}


def trained() -> SeriesStore:
    """Two runs; one of them vanished for a while, the other's loss is NaN."""
    store = SeriesStore(5.0, 3600.0)
    for slot in range(12):
        points = [point(STEP, slot, run='a "b",\n'), point(LOSS, math.nan, run="a", rank="1")]
        gone = [] if 4 <= slot < 7 else [point(STEP, slot, run="other")]
        store.append([points, gone], 5.0 * slot)
    store.append([[point(STEP, 99, run="other")]], 57.5)
    return store


def test_all_within_reach_is_there_again() -> None:
    store = trained()
    again = store.since(-math.inf).restored()
    assert held(again, 0.0, 60.0) == held(store, 0.0, 60.0)
    assert again.changed_at([STEP]) == store.changed_at([STEP])


def test_what_held_at_the_start_of_the_reach_holds_still() -> None:
    store = trained()
    assert held(store.since(22.0).restored(), 22.0, 60.0) == held(store, 22.0, 60.0)


def test_a_series_that_is_missing_at_the_first_scrape_after_it_has_ended() -> None:
    store = trained().since(-math.inf).restored()
    store.append([[point(STEP, 1, run="new")]], 60.0)
    assert shown(store, 60.0) == {"new"}


def test_what_no_rule_records_any_more_has_ended() -> None:
    store = SeriesStore(5.0, 3600.0)
    store.append([], 0.0)
    store.record(STEP, [point(STEP, 1, run="recorded")])
    assert shown(store, 0.0) == {"recorded"}
    store.append([], 5.0)
    assert shown(store, 5.0) == set()
