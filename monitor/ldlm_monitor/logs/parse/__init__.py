"""Parses the bytes of logs into typed records.

`Parser` turns chunks into samples, events and heartbeats. Files of a known structure have
readers (listed in `READERS`); other files are text, parsed by the definitions of
`packaged_formats`. `clock_marks` finds the steps and elapsed seconds of a finished file in a light
first pass; `timed_reader_of` gives the reader that finds the times in files of experiment trackers.
"""

from ldlm_monitor.logs.parse.definitions import load as load_formats
from ldlm_monitor.logs.parse.definitions import packaged_files as packaged_formats
from ldlm_monitor.logs.parse.parser import ParseCounters, Parser, bar_clocks, clock_marks
from ldlm_monitor.logs.parse.readers import (
    READERS,
    framing_named,
    framing_of,
    is_tracker,
    timed_reader_of,
)
from ldlm_monitor.logs.parse.row_reader import is_rows

__all__ = [
    "READERS",
    "ParseCounters",
    "Parser",
    "bar_clocks",
    "clock_marks",
    "framing_named",
    "framing_of",
    "is_rows",
    "is_tracker",
    "load_formats",
    "packaged_formats",
    "timed_reader_of",
]
