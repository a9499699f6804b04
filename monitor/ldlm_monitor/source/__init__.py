"""Finds the input files and reads what is new in them, as `model.chunk.Chunk`s."""

from ldlm_monitor.source.backlog import Backlog
from ldlm_monitor.source.companions import (
    Companion,
    LaunchFacts,
    Surroundings,
    companions,
    undecided,
)
from ldlm_monitor.source.file_system import DIRECT, Disk
from ldlm_monitor.source.follow import Follower, StdinSource
from ldlm_monitor.source.identity import NEW, FilePosition, Found, Known, KnownContents
from ldlm_monitor.source.journal import Journal, Notice
from ldlm_monitor.source.patterns import InputPatterns, resolve
from ldlm_monitor.source.timed_disk import TimedDisk
from ldlm_monitor.source.wake import Waker

__all__ = [
    "DIRECT",
    "NEW",
    "Backlog",
    "Companion",
    "Disk",
    "FilePosition",
    "Follower",
    "Found",
    "InputPatterns",
    "Journal",
    "Known",
    "KnownContents",
    "LaunchFacts",
    "Notice",
    "StdinSource",
    "Surroundings",
    "TimedDisk",
    "Waker",
    "companions",
    "resolve",
    "undecided",
]
