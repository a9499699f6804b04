"""Bytes of logs in, typed records out.

`Parser` is the room's door: feed it chunks, and it gives samples, events and
heartbeats. `clock_marks` is a light first pass over a finished file.
"""

from ldlm_monitor.parse.clock import clock_marks
from ldlm_monitor.parse.parser import ROW_SUFFIXES, ParseCounters, Parser

__all__ = ["ROW_SUFFIXES", "ParseCounters", "Parser", "clock_marks"]
