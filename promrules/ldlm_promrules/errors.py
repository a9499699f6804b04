"""The errors with which this package reports what is wrong with rules, expressions and samples.

PromRulesError
├── RuleError               a rule file, a file of unit tests, or an expression is wrong
│   └── UnsupportedError    valid PromQL that is not implemented here
└── SampleError             a file of samples, or what is asked of it, is wrong
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

_LONGEST = 200  # characters of a validation message, a choice: more fill the screen, fewer cut most


class PromRulesError(Exception):
    """A mistake in the user's input, which the user can correct.

    `what` says the mistake, `where` its place (file and key, or place in an expression), `remedy`
    how to correct it; the last two may be "". `str()` joins them to one line for stderr.
    """

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}; {self.remedy}" if self.remedy else text


class RuleError(PromRulesError):
    """A rule file or expression that cannot be loaded, or that fails on the data it selects."""


class UnsupportedError(RuleError):
    """A valid PromQL expression with a part that is not implemented here; the message names it."""


class SampleError(PromRulesError):
    """A file of samples that cannot be read, or times that no samples can be asked for."""


def first_problem(error: ValidationError) -> tuple[str, str]:
    """Dotted key and message of pydantic's first error, without the value: it may be a secret."""
    first = error.errors(include_url=False, include_input=False)[0]
    what = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        what = "unknown key"
    elif first["type"] in ("model_type", "dict_type"):  # pydantic's texts name our classes
        what = "should be an object (a mapping of keys to values)"
    return ".".join(str(part) for part in first["loc"]), what[:_LONGEST]


def shorten(text: str, limit: int) -> str:
    """`text` cut to `limit` characters, the last an ellipsis if it was longer."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
