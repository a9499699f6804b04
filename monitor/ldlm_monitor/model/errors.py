"""Every error this package raises on purpose.

LdlmError
├── UsageError          a command, a flag or an input is wrong            exit 2
│   ├── ConfigError     ldlm-monitor.toml or an LDLM_* variable
│   ├── InputError      a log that is missing or cannot be read
│   ├── RuleError       a rule file, or an expression that is wrong
│   │   └── UnsupportedError  PromQL that we do not evaluate
│   ├── FormatError     a format or event definition
│   ├── RemoteError     a monitor elsewhere that does not answer, or not as expected
│   └── TruthError      what is known of logs, for a backtest
└── DeliveryError       a receiver did not accept a notification
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as shells report it."""
_LONGEST = 200
"""Characters of a complaint."""


def first_problem(error: ValidationError) -> tuple[str, str]:
    """Key and complaint of the first thing that pydantic refused; the value is not repeated."""
    first = error.errors(include_url=False, include_input=False)[0]
    what = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        what = "unknown key"
    return ".".join(str(part) for part in first["loc"]), what[:_LONGEST]


class LdlmError(Exception):
    """Base of all errors raised on purpose; `exit_code` is the process's."""

    exit_code = 1


class UsageError(LdlmError):
    """Something the user can mend.

    `what` is wrong, `where` it stands (file and key, flag, path), and `remedy`
    says how to mend it. The three make one line on stderr.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}; {self.remedy}" if self.remedy else text


class ConfigError(UsageError):
    """A key of ldlm-monitor.toml, or an LDLM_* variable, that cannot be used."""


class InputError(UsageError):
    """An input that does not exist or cannot be read."""


class RuleError(UsageError):
    """A rule file or an expression that cannot be loaded, or that the data forbid."""


class UnsupportedError(RuleError):
    """An expression that Prometheus may well evaluate, but that we refuse by name."""


class FormatError(UsageError):
    """A format or event definition that cannot be loaded."""


class TruthError(UsageError):
    """A truth file that is malformed, or names other logs than those given."""


class RemoteError(UsageError):
    """A monitor elsewhere that does not answer, or not as one of this version."""


class DeliveryError(LdlmError):
    """A receiver did not accept a notification.

    `retry_after` is the receiver's own wish in seconds (None: ours to choose);
    `permanent` means that trying again cannot help; `unsure`, that it may have arrived.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        permanent: bool = False,
        unsure: bool = False,
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.permanent = permanent
        self.unsure = unsure
