"""Values as people read them."""

import pytest

from ldlm_monitor.base.text.format import compressed, duration, names_of, si_number


@pytest.mark.parametrize(
    ("ranks", "shown_as"),
    [([], ""), ([3], "3"), ([0, 2, 1, 7, 7], "0-2,7"), (range(0, 2000, 2), "798,…")],
)
def test_ranks_are_shown_in_ranges(ranks, shown_as):
    assert compressed(ranks).endswith(shown_as)


def test_one_rank_is_named_in_the_singular():
    assert [names_of([3]), names_of([3, 4, 6])] == ["rank 3", "ranks 3-4,6"]


def test_a_value_just_below_a_prefix_is_rounded_to_it():
    assert [si_number(value) for value in (999.9, 999_949, -999_999, 1_250_000)] == [
        "1k",
        "1M",
        "-1M",
        "1.25M",
    ]


@pytest.mark.parametrize(
    ("seconds", "shown_as"),
    [
        (-1.0, "0s"), (0.0, "0s"), (1.25, "1.25s"), (9.994, "9.99s"), (10.0, "10s"),
        (59.4, "59s"), (59.6, "1m"), (61.0, "1m 1s"), (4320.0, "1h 12m"), (3601.0, "1h"),
        (90_000.0, "1d 1h"), (None, "-"), (float("nan"), "NaN"),
    ],
)  # fmt: skip
def test_a_duration_has_its_two_largest_units(seconds, shown_as):
    assert duration(seconds) == shown_as
