"""Finds, before anything is parsed, the bytes that cannot wait until others are judged."""

from collections.abc import Sequence
from pathlib import Path

from ldlm_monitor.logs.parse.event_rules import EventRule
from ldlm_monitor.logs.parse.patterns import compile_pattern
from ldlm_monitor.logs.parse.triggers import Scanner, compiled

_URGENT = ("error", "critical")  # severities of events that are judged at once
_NOT_FINITE = compile_pattern(r"(?i)[^a-z](?:nan|inf|infinity)[^a-z]")


class Urgency:
    """Whether bytes may hold a failure or a value that is not finite; for one thread.

    It scans for the triggers of events, as the parser does, at some 150 MB/s. What it finds is
    read first: a find that turns out to be nothing only changes the order of files.
    """

    def __init__(self, format_files: Sequence[Path] = ()) -> None:
        rules = compiled(tuple(format_files))
        self._scanner = Scanner(rules.databases)
        self._urgent = frozenset(
            index
            for index, named in enumerate(rules.named)
            if any(isinstance(rule, EventRule) and rule.spec.severity in _URGENT for rule in named)
        )

    def __call__(self, data: bytes) -> bool:
        """Whether a record in `data` may be urgent."""
        if _NOT_FINITE.search(data):
            return True
        return any(expression in self._urgent for _, expression in self._scanner.scan(data))
