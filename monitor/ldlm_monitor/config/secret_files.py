"""Files that hold a secret: one line that nobody else may read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pydantic import SecretStr

from ldlm_monitor.model.errors import ConfigError


def secret_url(given: SecretStr | None, file: Path | None, key: str) -> str | None:
    """The URL, as given or as the file's one line; None where neither is set.

    `key` is the setting that names the file. Raises ConfigError, also for a file without a URL.
    """
    if given is not None:
        return given.get_secret_value()
    if file is None:
        return None
    text = secret_text(file, key).strip()
    if not text.startswith(("https://", "http://")) or len(text.split()) != 1:
        raise ConfigError(
            "holds no URL", where=f"{key}: {file}", remedy="write the URL as the file's one line"
        )
    return text


def secret_line(file: Path | None, key: str, what: str) -> str | None:
    """The file's one line; None without a file. `what` names it in a ConfigError."""
    if file is None:
        return None
    text = secret_text(file, key).strip()
    if len(text.splitlines()) != 1:
        raise ConfigError(
            f"holds not {what} alone",
            where=f"{key}: {file}",
            remedy=f"write {what} as the file's one line",
        )
    return text


def secret_text(file: Path, key: str) -> str:
    """The whole file. Raises ConfigError where it is unreadable, or readable by others."""
    try:
        with file.open(encoding="utf-8") as opened:
            check_mode(os.fstat(opened.fileno()), file, key)
            return opened.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        raise ConfigError(
            f"cannot be read ({reason})",
            where=f"{key}: {file}",
            remedy="write it, and give the monitor's user the right to read it",
        ) from error


def check_mode(status: os.stat_result, file: Path, key: str) -> None:
    """Raises ConfigError where others may read a file of secrets.

    The group may read a file of another owner, such as a mounted secret of root: there is no
    other way to read it. libpq has a similar rule for keys
    (https://www.postgresql.org/docs/current/libpq-ssl.html).
    """
    ours = status.st_uid == os.geteuid()
    if not stat.S_ISREG(status.st_mode) or not status.st_mode & (0o077 if ours else 0o027):
        return
    raise ConfigError(
        f"is a secret that others may read (mode {stat.S_IMODE(status.st_mode):04o})",
        where=f"{key}: {file}",
        remedy=f"chmod {'600' if ours else 'o-rwx,g-w'} {file}",
    )
