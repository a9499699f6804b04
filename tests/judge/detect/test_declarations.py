"""What a detector declares is enough: it gets the values of its quantity, and its metrics exist."""

import json
import math

import pytest

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.names import DETECT_PREFIX
from ldlm_monitor.base.points import BUSY_SECONDS
from ldlm_monitor.judge.core.exported_metrics import METRICS
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.judge.detect import QUANTITIES
from ldlm_monitor.judge.detect.detector import Detector
from ldlm_monitor.judge.detect.detectors import DETECTORS
from ldlm_monitor.logs.parse.vocabulary import is_metric

NOW = 1_795_000_000.0
ROWS = 600
"""Enough for every window that a gauge waits for, but those of the plateau."""


def detected(quantity: str) -> set[str]:
    """The detectors' metrics of runs that log a quantity: NaN and noise, then zeros, or ln 2."""
    noise = [math.nan, *(2.0 + row * 37 % 11 / 10 for row in range(1, ROWS))]
    runs = noise, [*noise, *[0.0] * ROWS], [0.6931] * ROWS
    return set().union(*(_metrics(quantity, values) for values in runs))


def _metrics(quantity: str, values: list[float]) -> set[str]:
    rows = [json.dumps({"step": step, quantity: value}) for step, value in enumerate(values)]
    monitor = Monitor()
    data = "".join(row + "\n" for row in rows).encode()
    monitor.feed(Chunk("train.jsonl", (1, 1, 0), offset=0, line=1, data=data), NOW)
    monitor.tick(NOW + 5)
    names = {point.name for point in monitor.snapshot().points}
    return {name for name in names if name.startswith(DETECT_PREFIX)}


@pytest.mark.parametrize("detector", DETECTORS)
def test_a_detector_gets_the_values_of_the_quantity_that_it_names(
    detector: type[Detector],
) -> None:
    assert detected(detector.quantity) & {DETECT_PREFIX + gauge for gauge in detector.gauges}


@pytest.mark.parametrize("detector", DETECTORS)
def test_every_gauge_of_a_detector_is_in_the_catalogue_of_metrics(
    detector: type[Detector],
) -> None:
    assert detected(detector.quantity) <= METRICS.keys()


@pytest.mark.parametrize("quantity", sorted(QUANTITIES))
def test_a_detector_reads_a_quantity_that_logs_have(quantity: str) -> None:
    """A quantity that the vocabulary lacks is one that no trainer's log is translated to."""
    assert is_metric(quantity) or quantity == BUSY_SECONDS
