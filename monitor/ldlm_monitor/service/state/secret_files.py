"""Reads the files of secrets, which others must not read.

A secret's file contains one line (that of Apprise one URL a line).
"""

import os
import stat
from pathlib import Path

from pydantic import SecretStr

from ldlm_monitor.base.errors import ConfigError

URL = "the URL"
"""What errors call a secret that must be a URL."""


def secret_of(file: Path | None, key: str, what: str, given: SecretStr | None = None) -> str | None:
    """The secret `given`, otherwise the file's one line; None if neither is set.

    `key`: the setting that names the file. `what`: the secret's name in errors. Raises
    ConfigError if the file is unusable.
    """
    if given is not None:
        return given.get_secret_value()
    if file is None:
        return None
    text = secret_text(file, key).strip()
    if what == URL:
        fits = text.startswith(("https://", "http://")) and len(text.split()) == 1
    else:
        fits = len(text.splitlines()) == 1
    if not fits:
        raise ConfigError(
            "holds no URL, or a URL and more" if what == URL else f"should hold {what} alone",
            where=f"{key}: {file}",
            remedy=f"write {what} as the file's one line",
        )
    return text


def secret_text(file: Path, key: str) -> str:
    """The text of a secret's file. Raises ConfigError if it is unreadable or open to others."""
    try:
        with file.open(encoding="utf-8") as opened:
            check_mode(os.fstat(opened.fileno()), file, key)
            return opened.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            f"cannot be read ({reason})",
            where=f"{key}: {file}",
            remedy="create it as text that the monitor's user may read",
        ) from error


def check_mode(status: os.stat_result, file: Path, key: str) -> None:
    """Raise ConfigError if others may read or write a regular file of secrets.

    A file of another owner, such as root's mounted secret, may be readable by its group, because
    the monitor could not read it otherwise. libpq has a similar rule for keys
    (https://www.postgresql.org/docs/current/libpq-ssl.html).
    """
    ours = status.st_uid == os.geteuid()  # then no rights but the owner's; else group may read
    if not stat.S_ISREG(status.st_mode) or not status.st_mode & (0o077 if ours else 0o027):
        return
    raise ConfigError(
        f"is a secret that others may read (mode {stat.S_IMODE(status.st_mode):04o})",
        where=f"{key}: {file}",
        remedy=f"chmod {'600' if ours else 'o-rwx,g-w'} {file}",
    )
