"""`ldlm-monitor demo`: recorded trainings in which things go wrong, on the screen."""

from __future__ import annotations

from importlib.resources import as_file, files

from ldlm_monitor.cli.flags import ScreenFlags, settings

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
    from ldlm_monitor.cli.screen import play

    found = settings(flags)
    with as_file(files("ldlm_monitor") / "playback" / RECORDING) as recording:
        return play(found, recording, name="demo", speed=speed)
