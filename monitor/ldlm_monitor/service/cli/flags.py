"""Flags that several commands have, their conversion to settings, and the exit code of a health.

A flag that was not given stays None, so that the environment or the configuration file decides.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ldlm_monitor.base.errors import UsageError

if TYPE_CHECKING:
    from ldlm_monitor.base.snapshot import Snapshot
    from ldlm_monitor.finished.playback.log_replay import Replay
    from ldlm_monitor.service.config import FailOn, Settings

UNHEALTHY = 3
"""Exit code if a health or finding is as bad as --fail-on, or worse (1: a bug, 2: wrong usage)."""
_FAIL_ON: tuple[FailOn, ...] = ("warning", "error", "critical", "never")
"""Values of --fail-on, each at the index of the worst of `run_health.HEALTH` that passes."""
DASH = "\0-"
"""Replaces the argument `-`, which cyclopts would parse as a flag; no argument contains a NUL."""


@dataclass(frozen=True, kw_only=True)
class SharedFlags:
    """Flags of every command."""

    config: Path | None = None
    """Configuration file (default: ./ldlm-monitor.toml where there is one)."""
    log_format: Literal["text", "json"] | None = None
    """Form of the messages on stderr (default: text)."""
    log_level: Literal["debug", "info", "warning", "error"] | None = None
    """The least level of message that is written (default: info)."""


@dataclass(frozen=True, kw_only=True)
class ScreenFlags(SharedFlags):
    """Flags of commands that open the screen."""

    ascii: bool | None = None
    """Draw the screen in ASCII (default: where the locale is not UTF-8)."""


@dataclass(frozen=True, kw_only=True)
class RuleFlags(SharedFlags):
    """Flags of commands that use rules."""

    rules: tuple[Path, ...] | None = None
    """Rule file; repeatable (default: the packaged ones)."""


@dataclass(frozen=True, kw_only=True)
class InputFlags(SharedFlags):
    """Flags of commands that read logs."""

    formats: tuple[Path, ...] | None = None
    """Format file to use beside the packaged ones; repeatable."""
    run: str | None = None
    """Name of the run, instead of the one found."""


@dataclass(frozen=True, kw_only=True)
class WaitFlags(InputFlags, RuleFlags):
    """Flags of `wait-for`."""


@dataclass(frozen=True, kw_only=True)
class DoctorFlags(SharedFlags):
    """Flags of commands that exit with 3 for what they find."""

    fail_on: Literal["critical", "error", "warning", "never"] | None = None
    """The severity from which the exit code is 3 (default: critical)."""


@dataclass(frozen=True, kw_only=True)
class JudgeFlags(InputFlags, RuleFlags, DoctorFlags):
    """Flags of commands that evaluate rules over logs."""

    companions: bool | None = None
    """Read also what belongs to a log, such as its training_log.jsonl (default: yes)."""
    join: bool | None = None
    """Make one run of the files that the ranks of one launch wrote (default: yes)."""


class ReplayFlags(JudgeFlags, ScreenFlags):
    """Flags of `replay`."""


@dataclass(frozen=True, kw_only=True)
class FollowFlags(JudgeFlags, ScreenFlags):
    """Flags of the main command."""

    once: bool | None = None
    """Read to the end, print the health report, exit."""
    headless: bool | None = None
    """Run as a daemon, also on a terminal."""
    listen: str | None = None
    """HOST:PORT of /metrics (default: 127.0.0.1:9847, or the next free port)."""
    file_sd: Path | None = None
    """File (file_sd_configs) by which Prometheus finds this monitor."""
    web_config: Path | None = None
    """File with TLS, users and tokens of the HTTP server, in Prometheus' format."""
    state_dir: Path | None = None
    """Folder of what must survive a restart (default: under $XDG_STATE_HOME/ldlm-monitor/)."""
    interval: str | None = None
    """Seconds between two status lines (default: 10)."""
    web: bool | None = None
    """Serve the screen to browsers instead (extra web)."""
    web_listen: str | None = None
    """HOST:PORT for browsers (default: 127.0.0.1:9848, or the next free port)."""
    record: Path | None = None
    """Record everything that the screen shows in this new file, for replay --tui."""


def hide_dash(tokens: Sequence[str]) -> list[str]:
    """The arguments, with DASH in place of each `-` (standard input)."""
    return [DASH if token == "-" else token for token in tokens]


def shown_dash(files: Sequence[str]) -> tuple[str, ...]:
    """The files as the user wrote them: undoes `hide_dash`."""
    return tuple("-" if file == DASH else file for file in files)


def settings_for_inputs(flags: SharedFlags | None, files: Sequence[str], **more: Any) -> Settings:
    """As `settings`; also raises UsageError if there is no file, or `-` while stdin is closed."""
    found = settings(flags, files, **more)
    if not found.files:
        raise UsageError(
            "no file is named",
            where="FILE",
            remedy="try 'train_logs/*.log', or set files in ldlm-monitor.toml",
        )
    if "-" in found.files and sys.stdin is None:
        raise UsageError(
            "standard input is closed", where="-", remedy="pipe a log into it, or name files"
        )
    return found


def settings(flags: SharedFlags | None, files: Sequence[str] = (), **more: Any) -> Settings:
    """Settings from flags, `more` settings, environment and file. Raises ConfigError."""
    from ldlm_monitor.service import config

    given = _without_none((asdict(flags) if flags else {}) | more)
    path = given.pop("config", None)
    if files:
        given["files"] = tuple(log for word in shown_dash(files) for log in logs_of(word))
    return config.load(given, path=path)


def logs_of(word: str) -> tuple[str, ...]:
    """The logs of the run that `ldlm-monitor run` gave this name; otherwise the word itself."""
    if set(word) & set("/*?[") or word == "-" or Path(word).exists():
        return (word,)
    from ldlm_monitor.host.supervise.run_folder import find_run

    found = find_run(word)
    return (word,) if found is None else found.files


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    tables = {name: _without_none(each) for name, each in values.items() if isinstance(each, dict)}
    return {name: each for name, each in (values | tables).items() if each is not None}


def replay_of(found: Settings, **more: Any) -> Replay:
    """A `Replay` of the settings' files, made with `more`; prints its notices."""
    from ldlm_monitor.finished.playback.log_replay import Replay

    replay = Replay(found, **more)
    for notice in replay.notices:
        print(notice, file=sys.stderr)
    return replay


def exit_code(snapshot: Snapshot, fail_on: FailOn) -> int:
    """UNHEALTHY if any run's health is as bad as `fail_on`, or worse; otherwise 0."""
    from ldlm_monitor.judge.core.run_health import HEALTH, worst_health

    worst = HEALTH.index(worst_health(snapshot))
    return UNHEALTHY if worst > _FAIL_ON.index(fail_on) else 0


def check_chart(plot: Path | None) -> None:
    """Raise `UsageError` if `--plot` names what is no SVG."""
    if plot is not None and plot.suffix.lower() != ".svg":
        raise UsageError(
            f'cannot draw as "{plot.suffix}": charts are SVG',
            where=f"--plot {plot}",
            remedy="end the name in .svg",
        )


def write_file(path: Path, text: str, flag: str, *, parents: bool = False) -> None:
    """Write the file that `flag` names; with `parents` make its folders.

    Raises `UsageError` if it cannot be written.
    """
    try:
        if parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot be written ({error.strerror})",
            where=f"{flag} {path}",
            remedy="make room, or name a file in a folder that you may write to",
        ) from error
