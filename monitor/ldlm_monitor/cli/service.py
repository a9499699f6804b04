"""`ldlm-monitor service install|uninstall`: a systemd unit of the user who runs it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from ldlm_monitor.cli.flags import settings_for_inputs, write_file
from ldlm_monitor.model.errors import UsageError

app = App(name="service", help="Runs the monitor as a service of your own, without root.")
_NAME = "ldlm-monitor.service"
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


@app.command
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
    path = _path()
    write_file(path, unit, "service install", parents=True)
    try:
        _systemctl("daemon-reload")
        _systemctl("enable", "--now", _NAME)
    except UsageError:
        path.unlink()
        raise
    print(f"{path} installed; its messages: journalctl --user -u {_NAME}")
    return 0


@app.command
def uninstall() -> int:
    """Ends the service and removes its unit; settings and state stay."""
    path = _path()
    if not path.exists():
        raise UsageError("is not installed", where=str(path))
    _systemctl("disable", "--now", _NAME)
    path.unlink()
    _systemctl("daemon-reload")
    print(f"{path} removed")
    return 0


def _path() -> Path:
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(config, "systemd/user", _NAME)


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
