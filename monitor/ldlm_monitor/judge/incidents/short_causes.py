"""A first cause in few words, for the one line that a message begins with."""

import re
from collections.abc import Mapping, Sequence
from functools import cache

from ldlm_monitor.base.incident_view import RootView
from ldlm_monitor.base.text.yaml_loader import packaged_yaml

_LEVEL = re.compile(r"^(?:(?:ERROR|WARNING|Warning|CRITICAL|FATAL|error): )+")  # the log's own word
_MODULE = re.compile(r"^(?:\w+\.)+(?=\w+(?:Error|Exception|Interrupt)\b)")  # of an exception


def short_cause(root: RootView) -> str:
    """The first cause in few words: those of its kind, or what its line says."""
    by_kind, by_line = _words()
    for kind, pattern, words in by_line:
        if kind == root.kind and (found := pattern.search(root.message)):
            return words.format(*found.groups())
    plain = _MODULE.sub("", _LEVEL.sub("", root.message))
    return by_kind.get(root.kind) or plain.removesuffix(".")


@cache
def _words() -> tuple[Mapping[str, str], Sequence[tuple[str, re.Pattern[str], str]]]:
    """By its kind a cause; by kind and words of its line, where these say which it is."""
    read = packaged_yaml(__package__, "data/short_causes.yml")
    by_line = ((each["kind"], re.compile(each["line"]), each["words"]) for each in read["by_line"])
    return read["by_kind"], tuple(by_line)
