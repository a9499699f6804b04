"""Errors that a user can mend say what is wrong, where, and what to do."""

import pytest

from ldlm_monitor.base.errors import (
    INTERRUPTED,
    ConfigError,
    DeliveryError,
    FormatError,
    InputError,
    LdlmError,
    RemoteError,
    TruthError,
    UsageError,
)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (UsageError("is no number"), "is no number"),
        (UsageError("is no number", where="a.toml: x"), "a.toml: x: is no number"),
        (UsageError("is no number", remedy="give one"), "is no number; give one"),
        (UsageError("is no number", where="--x", remedy="give one"), "--x: is no number; give one"),
    ],
)
def test_a_mistake_is_told_in_one_line(error: UsageError, text: str) -> None:
    assert str(error) == text
    assert error.what == "is no number"


@pytest.mark.parametrize("kind", [ConfigError, InputError, FormatError, TruthError, RemoteError])
def test_a_mistake_of_the_user_ends_a_command_as_a_wrong_command_line_does(
    kind: type[UsageError],
) -> None:
    assert issubclass(kind, UsageError)
    assert kind("wrong").exit_code == 2


def test_other_errors_end_a_command_as_pythons_do() -> None:
    assert LdlmError().exit_code == DeliveryError("refused").exit_code == 1
    assert not issubclass(DeliveryError, UsageError)


def test_an_interrupted_command_ends_as_shells_report_it() -> None:
    assert INTERRUPTED == 128 + 2


def test_a_delivery_that_failed_may_be_tried_again_unless_it_says_otherwise() -> None:
    error = DeliveryError("refused")
    assert (str(error), error.retry_after) == ("refused", None)
    assert (error.permanent, error.unsure) == (False, False)
    asked = DeliveryError("slow down", retry_after=30.0, permanent=True, unsure=True)
    assert (asked.retry_after, asked.permanent, asked.unsure) == (30.0, True, True)
