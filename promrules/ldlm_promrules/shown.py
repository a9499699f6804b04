"""Answers to queries as `promtool query` prints them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ldlm_promrules.golang import quoted
from ldlm_promrules.promql.floats import decimal_text


def shown(answer: Mapping[str, Any]) -> str:
    """An answer of `instant` or `over` as text: a line for each series, or each of its samples."""
    kind, result = answer["resultType"], answer["result"]
    if kind in ("scalar", "string"):
        at, value = result
        return f"{kind}: {value} @[{decimal_text(float(at))}]"
    return "\n".join(_lines(result))


def _lines(result: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for each in result:
        metric = shown_series(each["metric"])
        if "value" in each:
            at, value = each["value"]
            yield f"{metric} => {value} @[{decimal_text(float(at))}]"
        else:
            yield f"{metric} =>"
            yield from (f"{value} @[{decimal_text(float(at))}]" for at, value in each["values"])


def shown_series(labels: Mapping[str, str]) -> str:
    """Labels as Prometheus writes them: `up{job="a", instance="b"}`."""
    name = labels.get("__name__", "")
    inner = ", ".join(
        f"{label}={quoted(value)}" for label, value in sorted(labels.items()) if label != "__name__"
    )
    return f"{name}{{{inner}}}" if inner or not name else name
