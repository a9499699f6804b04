"""Values as people read them."""

import pytest

from ldlm_monitor.base.text.format import compressed, names_of, si_number


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
