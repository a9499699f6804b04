"""From settings to the monitor that they ask for."""

import os
import sys
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path

from ldlm_monitor.alerts import RuleSet, load_rules, packaged_rules
from ldlm_monitor.config import Settings
from ldlm_monitor.core.monitor import Monitor, MonitorSettings
from ldlm_monitor.model.errors import UsageError
from ldlm_monitor.parse import Parser
from ldlm_monitor.promql import Expression, parse
from ldlm_monitor.run.identity import RunNames
from ldlm_monitor.run.pace import StallSettings


def assemble(
    settings: Settings,
    stopwatch: Callable[[], float] | None = None,
    parser: Parser | None = None,
) -> Monitor:
    """A new monitor with the settings' rules, formats and limits.

    `stopwatch` times evaluations; `parser` is one of the settings' formats. Raises `RuleError`
    and `FormatError`.
    """
    return Monitor(
        rules=rules_of(settings),
        parser=parser or Parser(settings.formats),
        names=RunNames(settings.run),
        settings=MonitorSettings(
            evaluation_interval=settings.evaluation_interval,
            end_series_after=settings.end_series_after_seconds,
            stall=stall_of(settings),
        ),
        stopwatch=stopwatch,
    )


def fingerprint(settings: Settings) -> str:
    """Tells whether a monitor that was frozen can go on: same code, inputs, rules, formats, limits.

    Raises `UsageError` where one of the files is not there any more.
    """
    told = (
        (settings.run, stall_of(settings), settings.files, settings.companions, os.getcwd()),
        (settings.evaluation_interval, settings.end_series_after_seconds),
    )
    digest = sha256(f"{_code()} {told!r}".encode())
    for path in (*(settings.rules or packaged_rules()), *settings.formats):
        try:
            digest.update(str(path).encode() + b"\0" + path.read_bytes())
        except OSError as error:
            raise UsageError(
                f"cannot be read ({error.strerror})", where=str(path), remedy="see that it is there"
            ) from error
    return digest.hexdigest()


@cache
def _code() -> str:
    """Which code runs: that of the process's start, whatever is installed later."""
    package = Path(__file__).parent.parent
    digest = sha256(sys.version.encode())
    for path in [*sorted(package.rglob("*.py")), *sorted((package / "parse").rglob("*.yml"))]:
        digest.update(str(path).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def rules_of(settings: Settings) -> RuleSet[Expression]:
    """The settings' rules, the packaged ones where none are named. Raises `RuleError`."""
    return load_rules(list(settings.rules) or packaged_rules(), parse)


def stall_of(settings: Settings) -> StallSettings:
    """The settings' stall limits."""
    stall = settings.stall
    return StallSettings(
        floor=stall.floor_seconds,
        startup=stall.startup_seconds,
        limits={str(phase): limit for phase, limit in stall.limit_seconds.items()},
    )
