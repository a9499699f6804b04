"""Points in Prometheus' protobuf format, the only one that has native histograms.

Messages and field numbers: `io/prometheus/client/metrics.proto` of
https://github.com/prometheus/client_model; wire format: https://protobuf.dev/programming-guides/encoding/.
Encoded here, as the few fields need no schema, no generated code and no dependency.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from ldlm_monitor.base.histogram import SCHEMA, ZERO_THRESHOLD, CountPoint
from ldlm_monitor.base.names import Metric
from ldlm_monitor.base.points import Labels, Point
from ldlm_monitor.base.text.sanitize import encodable, visible

_TYPES = {"counter": 0, "gauge": 1, "histogram": 4}  # MetricType
_MEMBERS = {"gauge": 2, "counter": 3}  # fields of Metric


class ProtobufBody:
    """Families of a scrape, each with its length before it; `redact` as for text."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._families: list[bytes] = []
        # An empty message is written all the same: Prometheus needs a label's value to be there.
        text = cache(lambda value: _field(2, visible(encodable(redact(value))).encode()))
        pair = cache(lambda name, value: _field(1, _field(1, name.encode()) + text(value)))
        self._labels = cache(lambda labels: b"".join(pair(*each) for each in sorted(labels)))

    def add(self, metric: Metric, points: Iterable[Point]) -> None:
        """Add a metric's series; if one occurs twice, its last value is kept."""
        head = _field(1, metric.name.encode()) + _field(2, metric.help.encode())
        parts = [head, _number(3, _TYPES[metric.kind])]
        if metric.kind == "histogram":
            series = self._histograms(points)
        else:
            series = self._values(points, _MEMBERS[metric.kind])
        parts += [_field(4, labels + value) for labels, value in series.items()]
        family = b"".join(parts)
        self._families.append(_varint(len(family)) + family)

    def encode(self) -> bytes:
        """The whole body."""
        return b"".join(self._families)

    def _values(self, points: Iterable[Point], member: int) -> dict[bytes, bytes]:
        values: dict[Labels, float] = {}
        created: dict[Labels, bytes] = {}
        for point in points:
            if point.name.endswith("_created"):
                seconds = int(point.value)
                nanoseconds = int((point.value - seconds) * 1e9)
                created[point.labels] = _field(3, _number(1, seconds) + _number(2, nanoseconds))
            else:
                values[point.labels] = point.value
        return {
            self._labels(labels): _field(member, _double(1, value) + created.get(labels, b""))
            for labels, value in values.items()
        }

    def _histograms(self, points: Iterable[Point]) -> dict[bytes, bytes]:
        """Each with its classic buckets, and its native ones."""
        found: dict[Labels, list[bytes]] = {}
        for point in points:
            bound = dict(point.labels).get("le")
            labels = tuple(pair for pair in point.labels if pair[0] != "le")
            parts = found.setdefault(labels, [])
            if bound is not None:
                parts.append(_field(3, _number(1, int(point.value)) + _double(2, float(bound))))
            elif isinstance(point, CountPoint):
                parts += [_number(1, int(point.value)), _native(point.zeros, point.native)]
            else:
                parts.append(_double(2, point.value))
        return {self._labels(labels): _field(7, b"".join(parts)) for labels, parts in found.items()}


def _native(zeros: int, counts: Mapping[int, int]) -> bytes:
    """Schema, zero bucket, and the filled buckets: spans of neighbours, and each count as its
    difference to the one before."""
    parts = [_number(5, _zigzag(SCHEMA)), _double(6, ZERO_THRESHOLD), _number(7, zeros)]
    spans: list[list[int]] = []  # offset from the end of the span before, and length
    end = before = 0
    for index in sorted(counts):
        if not spans or index != end:
            spans.append([index - end, 0])
        spans[-1][1] += 1
        parts.append(_number(13, _zigzag(counts[index] - before)))
        end, before = index + 1, counts[index]
    # A span of no buckets marks a native histogram that has none.
    for offset, length in spans or [[0, 0]]:
        parts.append(_field(12, _number(1, _zigzag(offset)) + _number(2, length)))
    return b"".join(parts)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _field(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content
