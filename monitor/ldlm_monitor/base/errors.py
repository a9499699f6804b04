"""The errors with which this package reports what went wrong to its user.
LdlmError
├── UsageError          a command, a flag or an input is wrong            exit 2
│   ├── ConfigError     ldlm-monitor.toml or an LDLM_* variable
│   ├── InputError      a log that is missing or cannot be read
│   ├── FormatError     a format or event definition is wrong
│   ├── RemoteError     a remote monitor does not answer, or sends an unexpected answer
│   └── TruthError      a backtest's truth file (the known faults of logs) is wrong
└── DeliveryError       a receiver did not accept a notification
PromRulesError, of ldlm_promrules
└── RuleError           a rule file or an expression is wrong           exit 2, as a UsageError
    └── UnsupportedError  valid PromQL that is not implemented here
"""

from ldlm_promrules.errors import PromRulesError, RuleError, UnsupportedError, first_problem

__all__ = [
    "INTERRUPTED",
    "ConfigError",
    "DeliveryError",
    "FormatError",
    "InputError",
    "LdlmError",
    "PromRulesError",
    "RemoteError",
    "RuleError",
    "TruthError",
    "UnsupportedError",
    "UsageError",
    "first_problem",
]

INTERRUPTED = 130  # exit code after Ctrl-C: 128 + SIGINT, as shells report it


def one_line(error: Exception) -> str:
    """What an error says, in one line, without a full stop."""
    text = " ".join(str(error).split())
    return text if text.endswith("...") else text.rstrip(".")


class LdlmError(Exception):
    """Base of the errors below; a command that one of them ends exits with `exit_code`."""

    exit_code = 1  # as Python after an uncaught exception


class UsageError(LdlmError):
    """A mistake in the user's input, which the user can correct.

    `what` says the mistake, `where` its place (file and key, flag, or path), `remedy` how to
    correct it; the last two may be "". `str()` joins them to one line for stderr.
    """

    exit_code = 2  # argparse's for a wrong command line

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


class FormatError(UsageError):
    """A format or event definition that cannot be loaded."""


class TruthError(UsageError):
    """A backtest's truth file that is malformed, or names logs that were not given."""


class RemoteError(UsageError):
    """A remote monitor that does not answer, or whose answer this version cannot read."""


class DeliveryError(LdlmError):
    """A receiver did not accept a notification.

    `retry_after` is the delay in seconds that the receiver asked for (None: it gave none);
    `permanent`: retrying cannot help; `unsure`: the notification may have arrived.
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
