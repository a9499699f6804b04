"""`ldlm-monitor FILE_OR_GLOB...`: follow logs, raise alerts, serve metrics."""

from __future__ import annotations

import difflib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ldlm_monitor.base.errors import INTERRUPTED, UsageError
from ldlm_monitor.service.cli.command_table import NAMES
from ldlm_monitor.service.cli.flags import FollowFlags, settings_for_inputs

if TYPE_CHECKING:
    from ldlm_monitor.base.queries import Source
    from ldlm_monitor.base.snapshot import Snapshot
    from ldlm_monitor.service.config import Settings

_NEAR = 0.75
"""difflib's ratio from which a word is a mistyped command: one wrong letter of four, two of eight.
It found 60 of 60 random typing errors, and of 43 usual names of logs and folders only plurals."""


def follow(*files: str, flags: FollowFlags | None = None) -> int:
    """Follows training logs and reports what goes wrong: NaN, crashes, hangs.

    Serves Prometheus metrics, too. Write ./report for a file that has a command's name.

    Args:
        files: Files, folders or quoted globs; - is standard input.
    """
    if files:
        _refuse_mistyped_command(files[0])
    found = settings_for_inputs(flags, files)
    if found.once:
        from ldlm_monitor.service.cli.health_report import write_once

        return write_once(found)

    load = partial(settings_for_inputs, flags, files)
    if found.web:
        return _in_browsers(found, load)
    if not found.headless and "-" not in found.files and has_terminal():
        return _on_screen(found, load)
    from ldlm_monitor.service.cli import logs
    from ldlm_monitor.service.cli.health_report import run_page
    from ldlm_monitor.service.daemon import daemon
    from ldlm_monitor.service.daemon.stop_signals import Signals

    logs.configure(found)
    signals = Signals()
    snapshot = daemon.run(found, load, signals, page=run_page)
    return _ended(signals.exit_code, snapshot if signals.exit_code else None)


def _refuse_mistyped_command(word: str) -> None:
    """Raises UsageError for a bare word that names no file and is near a command's name.

    Otherwise a mistyped command would start a daemon that waits for a file of that name.
    """
    # A plural is a usual name of a folder, such as TensorBoard's `runs`.
    if not word.isalpha() or word.removesuffix("s") in NAMES or Path(word).exists():
        return
    if close := difflib.get_close_matches(word.lower(), NAMES, n=1, cutoff=_NEAR):
        raise UsageError(
            "neither a file nor a command",
            where=word,
            remedy=f"did you mean ldlm-monitor {close[0]}? A file of this name is written ./{word}",
        )


def has_terminal() -> bool:
    """Whether a screen can be drawn and typed at (Textual draws on stderr)."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    on_terminal = all(stream is not None and stream.isatty() for stream in streams)
    return on_terminal and os.environ.get("TERM", "") not in ("", "dumb")


def require_terminal(where: str, remedy: str) -> None:
    """Raises UsageError, with its `where` and `remedy`, if no screen can be drawn."""
    if not has_terminal():
        raise UsageError("the screen needs a terminal", where=where, remedy=remedy)


def show_screen(
    source: Source,
    found: Settings,
    *,
    ascii_only: bool | None = None,
    ended: Callable[[], bool] = lambda: False,
    **more: Any,
) -> int:
    """Shows a source until the screen is closed, `ended` returns True, or SIGTERM arrives.

    Returns the exit code. `ascii_only`: what holds without the setting, None if the locale decides.
    `more`: for `MonitorApp`.
    """
    from ldlm_monitor.screen.app import MonitorApp

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    app = MonitorApp(
        source,
        ascii_only=True if found.ascii else ascii_only,
        ended=lambda: stop.is_set() or ended(),
        look=found.screen,
        **more,
    )
    return app.run() or 0


def _on_screen(found: Settings, load: Callable[[], Settings]) -> int:
    """Run the daemon behind the screen, which shows its log lines; stderr gets them at the end."""
    gc.disable()  # garbage collection would take a seventh of the time until the screen opens
    from ldlm_monitor.screen.app import MonitorApp
    from ldlm_monitor.service.cli import logs
    from ldlm_monitor.service.cli.opening import Opening

    kept = logs.KeptMessages()
    logs.configure(found, kept)
    opening = Opening(found, load, has_screen=True)

    def opened() -> None:
        gc.enable()
        opening.start()

    app = MonitorApp(
        cast("Source", opening),
        ascii_only=True if found.ascii else None,
        ended=opening.ended,
        notices=kept.take,
        bell=found.bell,
        look=found.screen,
        opened=opened,
    )
    code = INTERRUPTED
    try:
        code = app.run() or 0
    finally:
        gc.enable()
        try:
            code = _ended(*opening.close(code))
        finally:
            kept.flush_to(sys.stderr)
    return code


def _in_browsers(found: Settings, load: Callable[[], Settings]) -> int:
    import asyncio

    from ldlm_monitor.service.cli import logs, web
    from ldlm_monitor.service.cli.opening import Opening

    logs.configure(found)
    opening = Opening(found, load)
    opening.start()
    try:
        if url := opening.url():
            asyncio.run(web.show(found, opening.name, url, opening.ended))
    finally:
        code, snapshot = opening.close(0)
    return _ended(code, snapshot)


def _ended(code: int, snapshot: Snapshot | None) -> int:
    """Prints the report of `snapshot`, if any: a person who ends the monitor needs the state."""
    if snapshot is not None:
        from ldlm_monitor.finished.report.plain_text import health_report

        sys.stdout.write("\n" + health_report(snapshot))
    return code
