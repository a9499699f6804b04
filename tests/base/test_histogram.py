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
