"""Values as people read them."""

import math
import time
from collections.abc import Iterable, Iterator

import pytest

from ldlm_monitor.base.text.format import (
    byte_size,
    compressed,
    counted,
    duration,
    iso,
    local_time,
    mesh_text,
    names_of,
    number,
    printable,
    si_number,
    signal_name,
    utc,
)


@pytest.mark.parametrize(
    ("ranks", "shown_as"),
    [([], ""), ([3], "3"), ([0, 2, 1, 7, 7], "0-2,7"), (range(0, 2000, 2), "798,…")],
)
def test_ranks_are_shown_in_ranges(ranks: Iterable[int], shown_as: str) -> None:
    assert compressed(ranks).endswith(shown_as)


def test_one_rank_is_named_in_the_singular() -> None:
    assert [names_of([3]), names_of([3, 4, 6])] == ["rank 3", "ranks 3-4,6"]


def test_a_value_just_below_a_prefix_is_rounded_to_it() -> None:
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
def test_a_duration_has_its_two_largest_units(seconds: float | None, shown_as: str) -> None:
    assert duration(seconds) == shown_as


@pytest.mark.parametrize(
    ("value", "shown_as"),
    [
        (None, "-"), (math.nan, "NaN"), (math.inf, "Inf"), (-math.inf, "-Inf"),
        (0.0, "0"), (12.0, "12"), (-3.0, "-3"), (123_456_789.0, "123456789"),
        (999_999_999.0, "999999999"), (1e9, "1e+09"), (-1e9, "-1e+09"),
        (2.345678, "2.3457"), (0.000123456, "0.00012346"), (1234.56789, "1234.6"),
    ],
)  # fmt: skip
def test_a_number_has_five_digits_or_is_whole(value: float | None, shown_as: str) -> None:
    assert number(value) == shown_as


def test_a_number_has_as_many_digits_as_are_asked_for() -> None:
    assert [number(2.345678, digits) for digits in (2, 4, 7)] == ["2.3", "2.346", "2.345678"]


@pytest.mark.parametrize(
    ("value", "shown_as"),
    [
        (None, "-"), (math.nan, "NaN"), (-math.inf, "-Inf"), (0.0, "0"), (0.12345, "0.123"),
        (12.34, "12.3"), (999.0, "999"), (1000.0, "1k"), (45_678.0, "45.7k"), (1e6, "1M"),
        (7.89e9, "7.89G"), (1e12, "1T"), (-2.5e12, "-2.5T"), (3e15, "3e+03T"),
    ],
)  # fmt: skip
def test_a_large_number_has_a_prefix_of_the_si(value: float | None, shown_as: str) -> None:
    assert si_number(value) == shown_as


@pytest.mark.parametrize(
    ("count", "shown_as"),
    [
        (None, "-"), (math.inf, "Inf"), (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"),
        (1536, "1.5 KiB"), (2**20, "1.0 MiB"), (2**20 - 1, "1024.0 KiB"), (3 * 2**29, "1.5 GiB"),
        (2**40, "1.0 TiB"), (-(2**31), "-2.0 GiB"),
    ],
)  # fmt: skip
def test_a_size_has_a_binary_prefix(count: float | None, shown_as: str) -> None:
    assert byte_size(count) == shown_as


def test_a_count_has_its_noun_in_the_plural_except_one() -> None:
    shown = [counted(count, "line") for count in (0, 1, 2, 1200)]
    assert shown == ["0 lines", "1 line", "2 lines", "1,200 lines"]


def test_what_cannot_be_printed_is_shown_as_an_escape() -> None:
    assert printable("Größe\x1b[0m\n\u200b") == r"Größe\x1b[0m\n\u200b"


def test_four_hundred_spans_of_ranks_are_shown_in_full_and_more_are_cut() -> None:
    assert compressed(range(0, 800, 2)).endswith(",798")
    cut = compressed(range(0, 802, 2)).split(",")
    assert (len(cut), cut[-2:]) == (401, ["798", "…"])


def test_a_span_of_ranks_is_named_in_the_plural() -> None:
    assert [names_of([]), names_of([12]), names_of([1, 2])] == ["ranks ", "rank 12", "ranks 1-2"]


def test_coordinates_are_named_by_their_dimension() -> None:
    assert mesh_text({"dp": 1, "pp": 3, "tp": 0}) == "dp 1, pp stage 3, tp 0"


def test_a_signal_has_the_name_that_the_system_gives_it() -> None:
    assert [signal_name(number) for number in (9, 15, 0, 4000)] == [
        "SIGKILL",
        "SIGTERM",
        None,
        None,
    ]


def test_durations_that_are_not_finite_are_shown_as_numbers() -> None:
    assert [duration(math.inf), duration(-math.inf)] == ["Inf", "-Inf"]


def test_a_time_of_utc_names_its_zone() -> None:
    assert utc(1_769_681_700.9) == "2026-01-29 10:15:00 UTC"
    assert [utc(unknown) for unknown in (None, math.nan, math.inf)] == ["-", "-", "-"]


def test_a_time_for_programs_has_milliseconds() -> None:
    assert iso(1_769_681_700.25) == "2026-01-29T10:15:00.250Z"
    assert iso(0.0) == "1970-01-01T00:00:00.000Z"
    assert iso(None) == "-"


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_tokyo")
def test_a_local_time_is_that_of_the_viewer() -> None:
    assert local_time(1_769_681_700.0) == "01-29 19:15:00"
    assert local_time(1.0) == "01-01 09:00:01"


@pytest.mark.parametrize("unknown", [None, math.nan, math.inf, 0.0, -1.0])
def test_a_local_time_that_is_unknown_is_a_dash(unknown: float | None) -> None:
    assert local_time(unknown) == "-"
