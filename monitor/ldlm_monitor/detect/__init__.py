"""Detectors: gauges `ldlm_detect_*` that compare the numbers of a run with its own past.

A detector is a function of its quantity's values, one for each logged step, in order; how they
are batched makes no difference. Alert thresholds are in rule files. The statistics are our own,
since libraries (ruptures, river, scipy) compute over whole arrays or need numpy, and none gives
robust values of a bounded window incrementally.
"""

from ldlm_monitor.detect.detectors import Detectors, DetectorsByRun

__all__ = ["Detectors", "DetectorsByRun"]
