"""Durations in the buckets of Prometheus' histograms."""

from ldlm_monitor.base.histogram import CountPoint, Histogram


def test_a_value_is_counted_in_each_bucket_that_it_does_not_exceed() -> None:
    durations = Histogram((0.5, 1.0, 2.0))
    durations.observe([0.5, 0.6, 1.0, 3.0, 4.0])
    durations.observe([0.7])
    *buckets, total, count = durations.points("seconds", (("run", "a"),))
    assert [(dict(each.labels)["le"], each.value) for each in buckets] == [
        ("0.5", 1), ("1.0", 4), ("2.0", 4), ("+Inf", 6),
    ]  # fmt: skip
    assert (total.name, round(total.value, 9)) == ("seconds_sum", 9.8)
    assert (count.name, count.value) == ("seconds_count", 6)


def test_a_native_bucket_holds_values_up_to_a_power_of_an_eighth() -> None:
    durations = Histogram((1.0,))
    durations.observe([0.0, 1.0, 2.0, 2.0, 2.01, 4.0])
    count = [*durations.points("seconds")][-1]
    assert isinstance(count, CountPoint)
    assert (count.zeros, count.native) == (1, {0: 1, 8: 2, 9: 1, 16: 1})


def test_durations_below_a_second_have_native_buckets_of_negative_index() -> None:
    durations = Histogram(())
    durations.observe([0.5, 0.51, 0.001, 2.0**-127, 2.0**-128, 2.0**-200])
    *_, count = durations.points("seconds")
    assert isinstance(count, CountPoint)
    assert (count.zeros, count.native) == (2, {-8: 1, -7: 1, -79: 1, -1016: 1})


def test_what_was_counted_stays_and_is_given_by_copies() -> None:
    durations = Histogram((1.0,))
    durations.observe([0.5, 4.0])
    *_, before = durations.points("seconds")
    durations.observe([4.0, 0.0])
    durations.observe([])
    bucket, _, total, after = durations.points("seconds")
    assert isinstance(before, CountPoint)
    assert isinstance(after, CountPoint)
    assert (bucket.value, total.value) == (2, 8.5)
    assert (before.value, before.native, before.zeros) == (2, {-8: 1, 16: 1}, 0)
    assert (after.value, after.native, after.zeros) == (4, {-8: 1, 16: 2}, 1)


def test_a_histogram_has_the_labels_that_it_is_asked_for() -> None:
    durations = Histogram((1.0,))
    for labels in ((("run", "a"),), (("abc", "x"),), (("run", "a"),)):
        points = [*durations.points("seconds", labels)]
        assert [point.name for point in points] == [
            "seconds_bucket", "seconds_bucket", "seconds_sum", "seconds_count",
        ]  # fmt: skip
        assert [point.labels for point in points[2:]] == [labels, labels]
        assert points[1].labels == tuple(sorted((*labels, ("le", "+Inf"))))
    assert [point.value for point in durations.points("seconds")] == [0, 0, 0, 0]
