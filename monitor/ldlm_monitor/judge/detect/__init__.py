"""Detectors: gauges `ldlm_detect_*` that compare the numbers of a run with its own past.

A detector reads the values of its quantity in order, one for each logged step. Its gauges depend
on the values alone, and not on how many come at once. Alert thresholds are in rule files. The
statistics are our own, since libraries (ruptures, river, scipy) compute over whole arrays or need
numpy, and none computes robust values of a bounded window incrementally.
"""

from ldlm_monitor.judge.detect.detectors import (
    CITED,
    GAUGES,
    GAUGES_OF,
    QUANTITIES,
    Detectors,
    DetectorsByRun,
)

__all__ = ["CITED", "GAUGES", "GAUGES_OF", "QUANTITIES", "Detectors", "DetectorsByRun"]
