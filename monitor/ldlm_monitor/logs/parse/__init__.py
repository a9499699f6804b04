"""Parses the bytes of logs into typed records.

`Parser` turns chunks into samples, events and heartbeats. Files of a known structure have
readers (listed in `READERS`); other files are text, parsed by the definitions of
`packaged_formats`. `clock_marks` finds the steps and elapsed seconds of a finished file in a light
first pass; `frame_times` and `METRIC_TIME` find the times in files of experiment trackers.
"""

from ldlm_monitor.logs.parse.definitions import load as load_formats
from ldlm_monitor.logs.parse.definitions import packaged_files as packaged_formats
from ldlm_monitor.logs.parse.parser import ParseCounters, Parser, clock_marks
from ldlm_monitor.logs.parse.structured_files import READERS, frame_times, is_rows, metric_of
from ldlm_monitor.logs.parse.structured_files import ROW_TIME as METRIC_TIME

__all__ = [
    "METRIC_TIME",
    "READERS",
    "ParseCounters",
    "Parser",
    "clock_marks",
    "frame_times",
    "is_rows",
    "load_formats",
    "metric_of",
    "packaged_formats",
]
