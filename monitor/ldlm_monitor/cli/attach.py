"""`ldlm-monitor attach URL`: the screen on a daemon that runs elsewhere."""

from __future__ import annotations

import os
import signal
import threading

from ldlm_monitor.cli.flags import ScreenFlags, settings
from ldlm_monitor.cli.follow import has_terminal
from ldlm_monitor.errors import UsageError


def attach(url: str, /, *, flags: ScreenFlags | None = None) -> int:
    """Shows what a monitor sees that runs elsewhere; it goes on when the screen is closed.

    Parameters
    ----------
    url
        Where it serves, such as http://127.0.0.1:9847; it names it when it starts.
    """
    is_served = "TEXTUAL_DRIVER" in os.environ  # as textual-serve sets it, see `web`
    if not (is_served or has_terminal()):
        raise UsageError(
            "the screen needs a terminal",
            where="attach",
            remedy=f"try {url}/api/v1/runs in scripts",
        )
    found = settings(flags)
    from ldlm_monitor.tui.remote import RemoteSource

    source = RemoteSource(url)
    source.start()
    from ldlm_monitor.tui.app import MonitorApp

    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: ended.set())
    plain = True if found.ascii else False if is_served else None
    app = MonitorApp(source, ascii_only=plain, ended=ended.is_set)
    try:
        return app.run() or 0
    finally:
        source.stop()
