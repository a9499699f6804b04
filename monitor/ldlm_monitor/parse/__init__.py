"""Bytes of logs in, typed records out.

`Parser` is the room's door: feed it chunks, and it gives samples, events and
heartbeats. `clock_marks` is a light first pass over a finished file. What it recognises
are `READERS` of whole files and the definitions of `packaged_formats`. `frame_times` and
`METRIC_TIME` tell when the records of trackers' files were written.
"""

from ldlm_monitor.parse.formats import load as load_formats
from ldlm_monitor.parse.formats import packaged_files as packaged_formats
from ldlm_monitor.parse.parser import ParseCounters, Parser, clock_marks
from ldlm_monitor.parse.whole_file import READERS, ROW_SUFFIXES, frame_times, metric_of
from ldlm_monitor.parse.whole_file import ROW_TIME as METRIC_TIME

__all__ = [
    "METRIC_TIME",
    "READERS",
    "ROW_SUFFIXES",
    "ParseCounters",
    "Parser",
    "clock_marks",
    "frame_times",
    "load_formats",
    "metric_of",
    "packaged_formats",
]
