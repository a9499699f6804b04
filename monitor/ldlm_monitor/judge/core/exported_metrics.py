"""The catalogue of all metrics that the monitor exports."""

from ldlm_monitor.base.names import BASE_METRICS
from ldlm_monitor.judge.detect import GAUGES

METRICS = BASE_METRICS | GAUGES
"""Each exported metric by its name."""
