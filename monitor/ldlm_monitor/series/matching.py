"""Which series a selector lets through."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import re2

from ldlm_monitor.model.points import Labels, Matcher


def is_matched(labels: Labels, matchers: Sequence[Matcher]) -> bool:
    """Whether a series of these labels satisfies all matchers."""
    return all(satisfies(matcher, labels) for matcher in matchers)


def satisfies(matcher: Matcher, labels: Labels) -> bool:
    """Whether a series of these labels (with `__name__`) is one that the matcher lets through."""
    value = next((v for name, v in labels if name == matcher.name), "")
    if matcher.op == "=":
        return value == matcher.value
    if matcher.op == "!=":
        return value != matcher.value
    found = _compiled(matcher.value).fullmatch(value) is not None
    return found == (matcher.op == "=~")


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    return re2.compile(f"(?s:{pattern})")  # `.` matches a line feed, as in Prometheus 3
