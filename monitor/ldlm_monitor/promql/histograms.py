"""Quantiles of classic histograms: counters of observations up to a bound `le`.

Semantics: Prometheus 3 `promql/quantile.go`.
"""

import math
import re
from bisect import bisect_left

from ldlm_monitor.model.points import Labels
from ldlm_monitor.promql.floats import INF, NAN, divide
from ldlm_monitor.promql.labels import unmarked, without_name
from ldlm_monitor.promql.nodes import Vector

BOUND = "le"
SMALL_DELTA = 1e-12
"""Relative difference of two counts that is arithmetic's, not the histogram's."""

_FLOAT = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?)", re.I | re.ASCII)


def histogram_quantile(rank: float, vector: Vector) -> Vector:
    """The quantile of each histogram in the vector; what is no bucket is left out."""
    histograms: dict[Labels, list[tuple[float, float]]] = {}
    for labels, count in vector:
        bound = dict(labels).get(BOUND, "")
        if _FLOAT.fullmatch(bound):
            rest = tuple(pair for pair in unmarked(labels) if pair[0] != BOUND)
            histograms.setdefault(rest, []).append((float(bound), count))
    return [
        (without_name(labels), _quantile(rank, buckets)) for labels, buckets in histograms.items()
    ]


def _quantile(rank: float, buckets: list[tuple[float, float]]) -> float:
    """Linear interpolation within the bucket where the rank falls (`BucketQuantile`)."""
    if math.isnan(rank):
        return NAN
    if not 0 <= rank <= 1:
        return math.copysign(INF, rank)
    bounds, counts = _merged(buckets)
    if bounds[-1] != INF or len(bounds) < 2 or counts[-1] == 0:
        return NAN
    wanted = rank * counts[-1]
    # The counts rise, NaN aside; with NaN Go's binary search decides, and so does this one.
    index = bisect_left(range(len(bounds) - 1), True, key=lambda i: counts[i] >= wanted)
    if index == len(bounds) - 1:
        return bounds[-2]
    if index == 0 and bounds[0] <= 0:
        return bounds[0]
    start, below = (bounds[index - 1], counts[index - 1]) if index else (0.0, 0.0)
    return start + (bounds[index] - start) * divide(wanted - below, counts[index] - below)


def _merged(buckets: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Bounds and counts by rising bound; equal bounds as one, counts made to rise."""
    bounds: list[float] = []
    counts: list[float] = []
    for bound, count in sorted(buckets, key=lambda bucket: bucket[0]):
        if bounds and bounds[-1] == bound:
            counts[-1] += count
        else:
            bounds.append(bound)
            counts.append(count)
    reached = counts[0]
    for index in range(1, len(counts)):
        count = counts[index]
        if count < reached or _almost_equal(reached, count):
            counts[index] = reached
        else:
            reached = count
    return bounds, counts


def _almost_equal(left: float, right: float) -> bool:
    if left == right or (math.isnan(left) and math.isnan(right)):
        return True
    if left == 0 or right == 0:
        return False
    return abs(left - right) / (abs(left) + abs(right)) < SMALL_DELTA
