"""Recordings and finished logs on the screen: `ldlm-monitor demo`, and `replay --tui`."""

from __future__ import annotations

import math
import signal
import tempfile
import threading
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from ldlm_monitor.cli.flags import ScreenFlags, settings
from ldlm_monitor.cli.follow import has_terminal
from ldlm_monitor.model.errors import UsageError

if TYPE_CHECKING:
    from ldlm_monitor.config import Settings

SPEED = 10.0
"""The recording's 450 seconds take 45: long enough to follow, short enough to finish."""
RECORDING = "demo.jsonl.gz"


def demo(*, speed: float = SPEED, flags: ScreenFlags | None = None) -> int:
    """Plays three recorded trainings: a NaN, a slow rank, and one that hangs.

    Parameters
    ----------
    speed
        Seconds of the trainings in one second; < and > change it.
    """
    with as_file(files("ldlm_monitor") / "playback" / RECORDING) as recording:
        return play(settings(flags), recording, name="demo", speed=speed)


def play(found: Settings, recording: Path | None, *, name: str, speed: float | None) -> int:
    """Plays a recording (None: the settings' files) on the screen; its exit code.

    Raises `UsageError` where there is no terminal, and what reading raises.
    """
    if speed is not None and not 0 < speed < math.inf:
        raise UsageError(f"{speed:g} is no speed", where="--speed", remedy="try --speed 10")
    if not has_terminal():
        raise UsageError(
            "the screen needs a terminal", where=name, remedy="run it where one can type"
        )
    from ldlm_monitor.daemon.local_source import LocalSource
    from ldlm_monitor.notify import Silences
    from ldlm_monitor.playback import Playback, Showing, of_logs, of_recording

    with tempfile.TemporaryDirectory(prefix="ldlm-monitor-") as folder:
        if recording is None:
            load = partial(of_logs, found)
        else:
            load = partial(of_recording, recording, found, Path(folder))
        showing = Showing(Playback(load, speed))
        silences = Silences(Path(folder) / "silences.sqlite")
        source = LocalSource(
            showing.snapshot, silences, name, clock=showing.clock, opened=showing.opened
        )
        from ldlm_monitor.tui.app import MonitorApp

        ended = threading.Event()
        signal.signal(signal.SIGTERM, lambda number, frame: ended.set())
        app = MonitorApp(
            source,
            ascii_only=True if found.ascii else None,
            clock=showing.clock,
            player=showing,
            ended=lambda: ended.is_set() or showing.has_failed,
        )
        showing.start()
        try:
            return app.run() or 0
        finally:
            showing.close()
            silences.close()


def recording_among(files: tuple[str, ...]) -> Path | None:
    """The recording among `files`; None: all are logs. Raises `UsageError` for both at once."""
    from ldlm_monitor.playback.recording import is_recording

    found = [Path(file) for file in files if is_recording(Path(file))]
    if not found:
        return None
    if len(files) > 1:
        raise UsageError(
            "a recording is played alone", where=str(found[0]), remedy="name it and nothing else"
        )
    return found[0]
