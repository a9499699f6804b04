"""`init`, `service` and `dashboards`: files that set up the monitor, its service and Grafana."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

from cyclopts import App, Parameter

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.base.text.format import counted
from ldlm_monitor.service.cli.flags import settings_for_inputs, write_file
from ldlm_monitor.service.cli.parse import chunks

_NAME = "ldlm-monitor.toml"
_SECRET = "slack-webhook.url"
_CERTAIN = frozenset({".log", ".out", ".err"})  # suffixes of nothing but logs
_UNKNOWN = "of no known format yet: see ldlm-monitor parse --stats"
_MOST_KINDS = 50
"""Kinds of logs that are looked at: a choice; each costs reading a MiB, few folders have ten."""
_HEAD = 1024 * 1024
"""Bytes of a log whose format is looked at: settings of a launch and first steps are in them."""
_TEXT = """\
# Made by `ldlm-monitor init`: what the monitor watches when it is started in this folder.
# Every setting: https://github.com/ldlm-monitor/ldlm-monitor/blob/main/docs/configuration.md

files = [
{files}
]

# Your own limits for a pause; without them they are learned.
# [stall]
# limit_seconds = {{ evaluating = 900, checkpointing = 1800 }}

# The URL of a Slack webhook, in a file for its owner alone, or in LDLM_SLACK_WEBHOOK_URL.
{slack}

# An OpenTelemetry collector that gets metrics and incidents (extra `otlp`).
# [otlp]
# endpoint = "http://127.0.0.1:4318"
"""


class _LogKind(NamedTuple):
    """Logs of one kind in one folder: a pattern for them, their number, what the newest is."""

    pattern: str
    files: int
    form: str


def init(folder: Path = Path()) -> int:
    """Writes an ldlm-monitor.toml for the logs in a folder, and prints what it found.

    Args:
        folder: The folder that the monitor will be started in.
    """
    target = folder / _NAME
    if target.exists():
        remedy = "edit it, or move it away first"
        raise UsageError("is there already", where=str(target), remedy=remedy)
    found = list(_kinds(folder))
    for kind in found:
        print(f"{kind.pattern}: {counted(kind.files, 'file')}, the newest is {kind.form}")
    if not found:
        print("no log found here: the file names train_logs/*.log, which is waited for")
    # JSON's strings are TOML's.
    files = [f"    {json.dumps(kind.pattern, ensure_ascii=False)}, # {kind.form}" for kind in found]
    lines = "\n".join(files or ['    "train_logs/*.log",'])
    write_file(target, _TEXT.format(files=lines, slack=_slack(folder)), "init")
    print(f"{target} written; now: ldlm-monitor")
    return 0


def _slack(folder: Path) -> str:
    """The table of Slack, as a comment where there is no webhook; prints which."""
    table = ["[slack]", f'webhook_url_file = "{_SECRET}"']
    if (folder / _SECRET).is_file():
        print(f"Slack: {_SECRET} is used")
        return "\n".join(table)
    if os.environ.get("LDLM_SLACK_WEBHOOK_URL"):
        print("Slack: LDLM_SLACK_WEBHOOK_URL is used")
    else:
        print(f"Slack: no webhook; put its URL into {_SECRET}, and use the table [slack]")
    return "\n".join(f"# {line}" for line in table)


def _kinds(folder: Path) -> Iterator[_LogKind]:
    """Logs by folder and suffix; a text of no known format is no log unless its suffix says so."""
    from ldlm_monitor.logs.source.input_patterns import resolve

    kinds: dict[tuple[Path, str], list[Path]] = {}
    for path in resolve([str(folder)], base=Path()).files():
        kinds.setdefault((path.parent, path.suffix), []).append(path)
    for (place, suffix), paths in list(kinds.items())[:_MOST_KINDS]:
        name = glob.escape(os.path.relpath(place, folder))
        form = _form(max(paths, key=lambda path: path.stat().st_mtime))
        if form or suffix in _CERTAIN:
            yield _LogKind(os.path.normpath(f"{name}/*{suffix}"), len(paths), form or _UNKNOWN)


def _form(path: Path) -> str:
    """The format of most numbers in the first MiB of a log; "" for none."""
    from ldlm_monitor.base.chunk import Origin
    from ldlm_monitor.logs.parse import Parser
    from ldlm_monitor.logs.parse.coverage import CoverageReader

    reader = CoverageReader(Parser(), str(path))
    for chunk in chunks(str(path)):
        reader.feed(chunk, Origin("init"), 0.0)
        if chunk.offset > _HEAD:
            break
    named = [name for name, _ in reader.finish().formats.most_common(1)]
    return named[0] if named else ""


service = App(name="service", help="Runs the monitor as a service of your own, without root.")
_SERVICE = "ldlm-monitor.service"
_UNIT = """\
# Made by `ldlm-monitor service install`; `ldlm-monitor service uninstall` removes it.
[Unit]
Description=Training-health monitor of {folder}

[Service]
Type=exec
WorkingDirectory={folder}
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
# Secrets, as LDLM_SLACK_WEBHOOK_URL=...; a file for you alone.
EnvironmentFile=-%E/ldlm-monitor/environment
Restart=on-failure
RestartSec=5
# A mistake in the settings does not go away by itself.
RestartPreventExitStatus=2
UMask=0077

[Install]
WantedBy=default.target
"""


@service.command
def install(*files: str, show: Annotated[bool, Parameter(name="--print")] = False) -> int:
    """Follows the logs of this folder from now on, and after each login.

    `loginctl enable-linger` lets it run while you are not logged in.

    Args:
        files: Files, folders or quoted globs (default: those of ./ldlm-monitor.toml).
        show: Print the unit instead of installing it.
    """
    settings_for_inputs(None, files)  # raises what would end the service at its start
    words = [sys.executable, "-m", "ldlm_monitor", "--headless", *files]
    folder = str(Path.cwd()).replace("%", "%%")
    unit = _UNIT.format(folder=folder, command=" ".join(map(_quoted, words)))
    if show:
        print(unit, end="")
        return 0
    path = _unit_path()
    write_file(path, unit, "service install", parents=True)
    try:
        _systemctl("daemon-reload")
        _systemctl("enable", "--now", _SERVICE)
    except UsageError:
        path.unlink()
        raise
    print(f"{path} installed; its messages: journalctl --user -u {_SERVICE}")
    return 0


@service.command
def uninstall() -> int:
    """Ends the service and removes its unit; settings and state stay."""
    path = _unit_path()
    if not path.exists():
        raise UsageError("is not installed", where=str(path))
    _systemctl("disable", "--now", _SERVICE)
    path.unlink()
    _systemctl("daemon-reload")
    print(f"{path} removed")
    return 0


def _unit_path() -> Path:
    # Below / for a user without HOME and name: it cannot be written there, and that is said.
    home = os.path.expanduser("~").removeprefix("~")
    config = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    return Path(config, "systemd/user", _SERVICE)


def _quoted(word: str) -> str:
    """A word of `ExecStart=`, where systemd expands %, $ and backslashes (systemd.service(5))."""
    for character, kept in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(character, kept)
    return f'"{word}"'


def _systemctl(*words: str) -> None:
    command = ["systemctl", "--user", *words]
    try:
        subprocess.run(command, capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or "systemctl is not here"
        raise UsageError(
            f"failed: {said.strip()[:300]}",
            where=" ".join(command),
            remedy="log in without su or sudo, or see --print for what else can start it",
        ) from error


dashboards = App(name="dashboards", help="Writes the Grafana boards into a folder.")
_PACKAGED = Path(__file__).parent.parent / "serve/dashboards"


@dashboards.command
def export(folder: Path) -> int:
    """Writes every board as a JSON file to import or to provision; boards of these names go.

    Args:
        folder: Where to write them; made if it is not there.
    """
    for board in sorted(_PACKAGED.glob("*.json")):
        text = board.read_text("utf-8")
        write_file(folder / board.name, text, "dashboards export", parents=True)
        print(folder / board.name)
    return 0
