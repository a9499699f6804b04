"""What numbers tell that no line says: each detector's output is a metric `ldlm_detect_*`.

A detector is a function of the values of its quantity, one a logged step, in order: how
they were cut into batches makes no difference. Its thresholds live in rule files.
"""

from ldlm_monitor.detect.detectors import Detectors, DetectorsByRun

__all__ = ["Detectors", "DetectorsByRun"]
