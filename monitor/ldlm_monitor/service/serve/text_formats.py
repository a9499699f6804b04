"""Points in Prometheus' text format and in OpenMetrics.

Not by the client library, which took four times as long for 800 runs and writes 0 as `0.0`: most
values are whole numbers, and a scrape is a twentieth smaller without it.
Formats: https://prometheus.io/docs/instrumenting/exposition_formats/ and
https://prometheus.io/docs/specs/om/open_metrics_spec/
"""

import math
from collections.abc import Callable, Iterable

from ldlm_monitor.base.names import Metric
from ldlm_monitor.base.points import Labels, Point
from ldlm_monitor.base.text.sanitize import encodable, visible
from ldlm_promrules.golang import not_finite

_ESCAPED = {ord("\\"): r"\\", ord('"'): r"\"", ord("\n"): r"\n"}
_ESCAPED |= {code: "\ufffd" for code in range(0x20) if code not in _ESCAPED}
"""Control characters are replaced: a NUL ends a whole scrape in Prometheus' lexer."""
_WHOLE = 1e15  # below it a float holds each whole number, and Go reads the digits back exactly


class Body:
    """Lines of a scrape; `redact` is applied to every label's value, `is_open`: OpenMetrics."""

    def __init__(self, redact: Callable[[str], str], *, is_open: bool) -> None:
        self._redact = redact
        self._is_open = is_open
        self._lines: list[str] = []
        self._values: dict[str, str] = {}  # of labels, as written
        self._labels: dict[Labels, str] = {}

    def add(self, metric: Metric, points: Iterable[Point]) -> None:
        """Add a metric's series; if one occurs twice, its last value is kept."""
        name = metric.name
        if self._is_open and metric.kind == "counter":
            name = name.removesuffix("_total")
        self._lines.append(f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}")
        # Redaction may make the labels of two series equal.
        shown: dict[str, float] = {}
        for point in points:
            if self._is_open or not point.name.endswith("_created"):  # a series of its own there
                labels = self._labels.get(point.labels)
                if labels is None:
                    labels = self._labels[point.labels] = self._written(point.labels)
                shown[point.name + labels] = point.value
        self._lines += [f"{series} {_number(value)}" for series, value in shown.items()]

    def encode(self) -> bytes:
        """The whole body."""
        end = "\n# EOF\n" if self._is_open else "\n"
        return ("\n".join(self._lines) + end).encode()

    def _written(self, labels: Labels) -> str:
        pairs = ",".join(f'{name}="{self._value(text)}"' for name, text in sorted(labels))
        return f"{{{pairs}}}" if pairs else ""

    def _value(self, text: str) -> str:
        if (written := self._values.get(text)) is None:
            written = visible(encodable(self._redact(text))).translate(_ESCAPED)
            self._values[text] = written
        return written


def _number(value: float) -> str:
    value = float(value)
    if value.is_integer() and abs(value) < _WHOLE:
        return f"{value:.0f}"
    return repr(value) if math.isfinite(value) else not_finite(value)
