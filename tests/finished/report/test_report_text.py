"""Log text made harmless; numbers, durations and times made readable."""

import math

import pytest

from ldlm_monitor.base.text.format import duration, number, utc
from ldlm_monitor.base.text.sanitize import plain, shorten_path


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("loss \x1b[31;1mnan\x1b[0m", "loss nan"),
        ("\x1b]0;title\x07after", "after"),
        ("a\r\nb\tc\x00d", "a b cd"),
        ("abc\u202etxt", "abctxt"),
        ("torn \udcff byte", "torn \ufffd byte"),
        ("x" * 500, "x" * 399 + "…"),
        ("WANDB_API_KEY=0123456789abcdef", "WANDB_API_KEY=[redacted]"),
        ("größe 损失 ∇", "größe 损失 ∇"),
    ],
)
def test_log_text_is_one_harmless_line(text: str, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (math.nan, "NaN"),
        (-math.inf, "-Inf"),
        (0.0, "0"),
        (1900.0, "1900"),
        (5e-05, "5e-05"),
        (2.345678, "2.3457"),
        (1e12, "1e+12"),
    ],
)
def test_numbers_are_short(value: float | None, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (0.1204, "0.12s"),
        (59.6, "1m"),
        (252, "4m 12s"),
        (3600, "1h"),
        (90061, "1d 1h"),
        (math.inf, "Inf"),
    ],
)
def test_durations_are_two_units_long(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_times_are_utc_and_an_unknown_one_is_a_dash() -> None:
    assert utc(1769681700.0) == "2026-01-29 10:15:00 UTC"
    assert utc(None) == "-"


def test_a_long_path_keeps_its_end() -> None:
    assert shorten_path("/a/very/long/train.log", 12) == "…g/train.log"
