"""Bytes of logs in, typed records out.

`Parser` is the room's door: feed it chunks, and it gives samples, events and
heartbeats. `clock_marks` is a light first pass over a finished file. What it recognises
are `READERS` of whole files and the definitions of `packaged_formats`.
"""

from ldlm_monitor.parse.clock import clock_marks
from ldlm_monitor.parse.formats import load as load_formats
from ldlm_monitor.parse.formats import packaged_files as packaged_formats
from ldlm_monitor.parse.parser import READERS, ROW_SUFFIXES, ParseCounters, Parser

__all__ = [
    "READERS",
    "ROW_SUFFIXES",
    "ParseCounters",
    "Parser",
    "clock_marks",
    "load_formats",
    "packaged_formats",
]
