"""A view of the store stays as it was while the store goes on."""

import math

import pytest

from ldlm_promrules.promql import Evaluator, parse
from ldlm_promrules.samples import Matcher, Point
from ldlm_promrules.series.series_store import SeriesStore
from ldlm_promrules.series.store_view import StoreView


def stored(*scrapes: tuple[float, dict[str, float]]) -> SeriesStore:
    """A store of the metric `a`, with a series for each run that a scrape has."""
    store = SeriesStore(5.0, 600.0)
    for at, values in scrapes:
        points = [Point("a", (("run", run),), value) for run, value in values.items()]
        store.append([points, [Point("b", (), at)]], at)
    return store


def answers(view: SeriesStore, at: float, text: str = "a") -> dict[str, float]:
    found = Evaluator(view).value(parse(text), at)
    assert not isinstance(found, float | str)
    return {dict(labels).get("run", ""): value for labels, value in found}


def test_a_view_does_not_see_what_comes_after_it() -> None:
    store = stored((10.0, {"x": 1.0}), (15.0, {"x": 2.0}))
    view = StoreView(store, None, 15.0)
    store.append([[Point("a", (("run", "x"),), 3.0)]], 20.0)
    assert answers(view, 15.0) == {"x": 2.0}
    assert answers(StoreView(store, None, 20.0), 20.0) == {"x": 3.0}


def test_a_view_has_the_metrics_that_it_was_asked_for() -> None:
    store = stored((10.0, {"x": 1.0}))
    view = StoreView(store, ["b", "none"], 10.0)
    assert answers(view, 10.0) == {}
    assert answers(view, 10.0, "b") == {"": 10.0}


def test_slots_that_were_skipped_since_the_last_scrape_have_its_samples() -> None:
    store = stored((10.0, {"x": 1.0}))
    view = StoreView(store, None, 33.0)
    assert (store.last_scrape, view.last_scrape, view.until) == (10.0, 30.0, 33.0)
    assert view.oldest == 30.0 - 600.0
    assert answers(view, 31.0, "count_over_time(a[22s])") == {"x": 5.0}
    assert StoreView(stored((32.0, {"x": 1.0})), None, 33.0).last_scrape == 32.0


def test_an_empty_store_has_no_first_sample() -> None:
    view = StoreView(SeriesStore(5.0, 600.0), None, -1.0)
    assert (view.first, view.last_scrape) == (-1.0, -1.0)
    assert stored((10.0, {})).last_scrape == 10.0
    assert StoreView(stored((10.0, {}), (15.0, {"x": 1.0})), ["a"], 15.0).first == 15.0


def test_series_are_those_that_existed_between_two_times() -> None:
    store = stored((10.0, {"x": 1.0}), (20.0, {"y": 1.0}), (30.0, {"y": 1.0}))
    view = StoreView(store, ["a"], 30.0)

    def runs(start: float, end: float, *matchers: Matcher) -> list[str]:
        asked = [[each] for each in matchers]
        return sorted(dict(labels)["run"] for labels in view.series(start, end, asked))

    assert runs(0.0, 9.0) == []
    assert runs(0.0, 10.0) == ["x"]
    assert runs(0.0, 20.0) == ["x", "y"]
    assert runs(20.0, 30.0) == ["y"]
    assert runs(19.0, 30.0) == ["x", "y"]
    assert runs(0.0, 30.0, Matcher("run", "=", "x")) == ["x"]
    assert runs(0.0, 30.0, Matcher("run", "=", "x"), Matcher("run", "=", "y")) == ["x", "y"]


def test_a_search_of_series_may_be_ended() -> None:
    view = StoreView(stored((10.0, {"x": 1.0, "y": 1.0})), None, 10.0)

    def stop() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        view.series(0.0, 10.0, ask=stop)


def test_values_of_labels_may_be_shown_in_another_way() -> None:
    store = stored((10.0, {"x": 1.0, "y": 2.0}))
    view = StoreView(store, None, 10.0).relabelled(str.upper)
    assert answers(view, 10.0) == {"X": 1.0, "Y": 2.0}
    assert answers(view, 10.0, "b") == {"": 10.0}
    same = StoreView(store, None, 10.0).relabelled(lambda _: "z")
    assert answers(same, 10.0) == {"z": 2.0}
    assert not math.isinf(same.first)
