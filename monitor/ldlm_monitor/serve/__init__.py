"""Shows the monitor's snapshot to Prometheus, to scripts and to browsers. Read-only."""

from ldlm_monitor.serve.http import Server
from ldlm_monitor.serve.metrics import SnapshotCollector, exposition
from ldlm_monitor.serve.web_config import Gate

__all__ = ["Gate", "Server", "SnapshotCollector", "exposition"]
