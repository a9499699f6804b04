"""Labels of an element as operations change them, and when its metric name goes.

Prometheus drops the name of a metric as soon as an operation changes what its value
means. With the feature flag `promql-delayed-name-removal`, under which its own test
scripts run, the element is only marked, and the name goes at the end of the query.
The mark is a label with an empty name: it sorts first, and no selector can ask for it.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from ldlm_monitor.model.points import Labels

NAME = "__name__"
MARK = ("", "")

Rename: TypeAlias = Callable[[Labels], Labels]

_METADATA = frozenset({"", NAME, "__type__", "__unit__"})
"""What describes a metric rather than the thing measured, and goes with the name."""


def without_name(labels: Labels) -> Labels:
    """The labels except `__name__` and what goes with it."""
    if labels and labels[0][0] == NAME and (len(labels) == 1 or labels[1][0][0] != "_"):
        return labels[1:]
    return tuple(pair for pair in labels if pair[0] not in _METADATA)


def name_later(labels: Labels) -> Labels:
    """The labels with the mark that says that the name goes at the end of the query."""
    return labels if labels and labels[0] == MARK else (MARK, *labels)


def unmarked(labels: Labels) -> Labels:
    """The labels as they are, mark aside."""
    return labels[1:] if labels and labels[0] == MARK else labels


def settled(labels: Labels) -> Labels:
    """The labels as the query gives them: without the name where the mark says so."""
    return without_name(labels) if labels and labels[0] == MARK else labels


@lru_cache(maxsize=1024)
def signature_of(on: bool, names: tuple[str, ...]) -> Rename:
    """What of an element's labels decides which group it belongs to."""
    wanted = frozenset(names)
    if on:
        return lambda labels: tuple(pair for pair in labels if pair[0] in wanted)
    ignored = wanted | {"", NAME}

    def others(labels: Labels) -> Labels:
        if not wanted and labels and labels[0][0] == NAME:
            return labels[1:]
        return tuple(pair for pair in labels if pair[0] not in ignored)

    return others


def with_label(labels: Labels, name: str, value: str) -> Labels:
    """The labels with one of them set; an empty value takes it away.

    A name that is set anew stays.
    """
    present = dict(unmarked(labels) if name == NAME else labels)
    present.pop(name, None)
    if value:
        present[name] = value
    return tuple(sorted(present.items()))
