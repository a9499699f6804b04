"""Untrusted text is bounded, visible and without secrets wherever it is shown."""

import json
import math

import pytest

from ldlm_monitor.base.text.sanitize import (
    encodable,
    escaped_json,
    jsonable,
    plain,
    redact,
    redacted_arguments,
    run_path,
    shorten,
    shorten_path,
    summary_of,
    visible,
)
from ldlm_monitor.base.text.secrets import REDACTED

TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"


def test_a_text_of_the_limit_stays_and_a_longer_one_ends_in_an_ellipsis() -> None:
    assert [shorten("abcdef", limit) for limit in (7, 6, 5, 2, 1)] == [
        "abcdef", "abcdef", "abcd…", "a…", "…",
    ]  # fmt: skip


def test_no_blank_stands_before_the_ellipsis() -> None:
    assert shorten("one two three", 5) == "one…"


def test_a_path_loses_its_beginning_as_its_end_has_the_name() -> None:
    assert [shorten_path("/runs/a.log", limit) for limit in (12, 11, 10, 6)] == [
        "/runs/a.log", "/runs/a.log", "…uns/a.log", "…a.log",
    ]  # fmt: skip


def test_plain_text_is_one_line_of_at_most_400_characters() -> None:
    assert plain("  two\n lines\tand   a tab ") == "two lines and a tab"
    assert plain("x" * 400) == "x" * 400
    assert plain("x" * 401) == "x" * 399 + "…"
    assert plain("one two three", 8) == "one two…"


def test_plain_text_is_printable_and_keeps_letters_of_every_language() -> None:
    assert plain("größe\u00a0Größe \ue000損失") == "größe Größe 損失"


def test_plain_text_shows_no_secret() -> None:
    assert plain(f"login with {TOKEN}") == f"login with {REDACTED}"


def test_plain_text_reads_8192_characters_at_most() -> None:
    assert plain(" " * 8191 + "ab") == "a"
    assert plain(" " * 8192 + "ab") == ""


def test_a_word_after_an_option_of_a_secret_is_hidden() -> None:
    assert redacted_arguments(["python", "train.py", "--api-key", "abc", "--lr", "3e-4"]) == (
        "python", "train.py", "--api-key", REDACTED, "--lr", "3e-4",
    )  # fmt: skip


def test_the_program_says_what_a_short_option_means() -> None:
    assert redacted_arguments(["mysql", "-pabc", "runs"]) == ("mysql", f"-p{REDACTED}", "runs")
    assert redacted_arguments(["mkdir", "-pabc", "runs"]) == ("mkdir", "-pabc", "runs")


@pytest.mark.parametrize("words_before", range(12))
def test_an_option_of_a_secret_is_known_wherever_it_stands(words_before: int) -> None:
    words = ["python", *(f"file{number}" for number in range(words_before))]
    assert redacted_arguments([*words, "--password", "abc"])[-2:] == ("--password", REDACTED)


def test_a_program_is_known_behind_others_but_not_anywhere_in_a_line() -> None:
    before = ["sudo", "env", "A=1"]
    assert redacted_arguments([*before, "redis-cli", "-a", "abc"])[-1] == REDACTED
    files = [f"file{number}" for number in range(6)]
    assert redacted_arguments(["cat", *files, "redis-cli", "-a", "abc"])[-1] == "abc"


def test_an_argument_of_several_words_is_hidden_as_a_whole_or_searched() -> None:
    assert redacted_arguments(["run", "--password", "two words"])[-1] == REDACTED
    assert redacted_arguments(["sh", "-c", f"login {TOKEN} now"])[-1] == f"login {REDACTED} now"
    assert redacted_arguments(["sh", "-c", "echo two words"])[-1] == "echo two words"


def test_no_words_give_no_words() -> None:
    assert redacted_arguments([]) == ()


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    assert encodable("a\ud83db") == "a\ufffdb"
    assert encodable("a\U0001f600b") == "a\U0001f600b"


def test_json_has_controls_and_invisible_characters_as_escapes() -> None:
    document = json.dumps({"text": "a\x9bb\u202ec é"}, ensure_ascii=False).encode()
    escaped = escaped_json(document)
    assert escaped == '{"text": "a\\u009bb\\u202ec é"}'.encode()
    assert json.loads(escaped) == json.loads(document)


def test_json_of_ascii_alone_stays_as_it_is() -> None:
    assert escaped_json(b'{"a": "\x7f"}') == b'{"a": "\x7f"}'


def test_visible_text_keeps_its_lines_and_tabs() -> None:
    assert visible("a\tb\nc\x1b\u200b") == "a\tb\nc\\u001b\\u200b"


def test_a_path_of_a_run_has_its_name_quoted_whole() -> None:
    assert run_path("team/gpt 2") == "/runs/team%2Fgpt%202"
    assert TOKEN not in run_path(TOKEN)


@pytest.mark.parametrize(
    ("summary", "without_run"),
    [
        ("gpt: loss is NaN", "loss is NaN"), ("gpt has stalled", "has stalled"),
        ("gpt2: loss is NaN", "gpt2: loss is NaN"), ("loss of gpt", "loss of gpt"),
        ("gpt", "gpt"), ("", ""),
    ],
)  # fmt: skip
def test_a_summary_does_not_repeat_the_name_of_its_run(summary: str, without_run: str) -> None:
    assert summary_of({"summary": summary}, "gpt") == without_run


def test_an_alert_without_a_summary_has_none() -> None:
    assert summary_of({}, "gpt") == ""


def test_values_for_json_have_numbers_that_are_not_finite_as_text() -> None:
    values = [math.nan, math.inf, -math.inf, 1.5, 0.0, 3, True, None]
    assert jsonable(values) == ["NaN", "Infinity", "-Infinity", 1.5, 0.0, 3, True, None]


def test_values_for_json_hide_secrets_by_their_form_and_by_their_name() -> None:
    assert jsonable({"token": ("a", TOKEN), "api_key": "abc", "lr": "abc", "password": 3}) == {
        "token": ["a", REDACTED], "api_key": REDACTED, "lr": "abc", "password": 3,
    }  # fmt: skip


def test_values_for_json_are_redacted_as_the_caller_wants_also_in_keys() -> None:
    shown = jsonable({"a": ["b", {"c": "d\ud83d"}]}, str.upper)
    assert shown == {"A": ["B", {"C": "D\ufffd"}]}


def test_text_without_an_escape_is_redacted_once_and_keeps_its_lines() -> None:
    assert redact("one\r\ntwo\rpassword=abc") == f"one\ntwo\npassword={REDACTED}"
