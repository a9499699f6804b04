"""Recordings and finished logs, played back on a clock that can be stopped and sped up."""

from ldlm_monitor.playback.engine import Playback, Showing
from ldlm_monitor.playback.reel import Reel, of_logs, of_recording

__all__ = ["Playback", "Reel", "Showing", "of_logs", "of_recording"]
