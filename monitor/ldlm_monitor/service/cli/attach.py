"""`ldlm-monitor attach URL`: the screen on a daemon that runs elsewhere."""

from __future__ import annotations

import base64
import os
import select
from dataclasses import asdict
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from ldlm_monitor.base.errors import ConfigError
from ldlm_monitor.service.cli.flags import FollowFlags, ScreenFlags, settings
from ldlm_monitor.service.cli.follow import follow, require_terminal, show_screen

if TYPE_CHECKING:
    import ssl

    from ldlm_monitor.service.config import Attach


def attach(
    url: str,
    /,
    *,
    token_file: Path | None = None,
    username: str | None = None,
    password_file: Path | None = None,
    ca_file: Path | None = None,
    flags: ScreenFlags | None = None,
) -> int:
    """Shows the screen of a monitor that runs elsewhere; the monitor runs on when it is closed.

    Args:
        url: Address of the monitor, such as http://127.0.0.1:9847, which is logged at its start;
            or the name of a run of `ldlm-monitor run`.
        token_file: A file with a bearer token of that monitor (or set LDLM_ATTACH_TOKEN).
        username: A user of that monitor, with --password-file.
        password_file: A file with the user's password.
        ca_file: Certificates (PEM) to trust instead of the system's.
    """
    # Set by textual-serve, with which `web` runs this command.
    is_served = "TEXTUAL_DRIVER" in os.environ
    if is_served:
        Thread(target=_end_with_server, name="server", daemon=True).start()
    else:
        require_terminal("attach", f"try {url.rpartition('@')[2]}/api/v1/runs in scripts")
    if "://" not in url:
        from ldlm_monitor.service.cli.run import named_run
        from ldlm_monitor.service.state.state_dir import announced

        record = named_run(url)
        state = record.folder / "state"
        address = announced(state)
        if address is None:  # its monitor was killed, or the run is over
            shared = asdict(flags or ScreenFlags())
            more = FollowFlags(run=record.name, state_dir=state, **shared)
            return follow(*record.files, flags=more)
        url = address
    names = {"token_file": token_file, "password_file": password_file, "ca_file": ca_file}
    found = settings(flags, attach={**names, "username": username})
    from ldlm_monitor.screen.remote import RemoteSource

    source = RemoteSource(url, authorization=authorization(found.attach), tls=tls(found.attach))
    source.start()
    unset = False if is_served else None
    try:
        return show_screen(source, found, ascii_only=unset, bell=found.bell, attached=True)
    finally:
        source.stop()


def _end_with_server() -> None:
    """End this process when the other end of its standard input is closed, as by a `kill -9`.

    Textual's driver goes on then, and its window is gone.
    """
    poll = select.poll()
    poll.register(0, 0)  # an end is reported in any case (poll(2))
    poll.poll()
    os._exit(0)


def authorization(configured: Attach) -> str | None:
    """The value of the header `Authorization`; None without credentials. Raises ConfigError."""
    token, password = configured.bearer(), configured.password()
    if (configured.username is None) != (password is None):
        raise ConfigError(
            "a user and a password belong together",
            where="attach",
            remedy="set both attach.username and attach.password_file, or a token",
        )
    if token is not None:
        return f"Bearer {token}"
    if password is None:
        return None
    credentials = f"{configured.username}:{password}".encode()
    return f"Basic {base64.b64encode(credentials).decode()}"


def tls(configured: Attach) -> ssl.SSLContext | None:
    """TLS with the configured authorities and client certificate, if any. Raises ConfigError."""
    if configured.ca_file is None and configured.cert_file is None:
        return None
    import ssl

    from ldlm_monitor.service.state.secret_files import check_mode

    where = f"attach.ca_file: {configured.ca_file}"
    try:
        context = ssl.create_default_context(cafile=configured.ca_file)
        if configured.cert_file is not None:
            where = f"attach.cert_file: {configured.cert_file}"
            if (key := configured.key_file) is not None:
                check_mode(key.stat(), key, "attach.key_file")
            context.load_cert_chain(configured.cert_file, configured.key_file, lambda: "")
    except OSError as error:
        reason = getattr(error, "reason", None) or error.strerror or "no PEM"
        raise ConfigError(
            f"cannot be used ({str(reason).lower().replace('_', ' ')})",
            where=where,
            remedy="give a PEM file that you can read, its key without a password",
        ) from error
    return context
