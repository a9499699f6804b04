"""Alerting: Prometheus rule files, the states of alerts, and the templates of annotations.

All three are our own code: Prometheus' code is in Go, and Python's template engines do not
have the syntax of Go's.
"""

from ldlm_monitor.alerts.rules import (
    AlertRule,
    RecordingRule,
    RuleSet,
    check_rules,
    load_rules,
    packaged_rules,
)
from ldlm_monitor.alerts.state import ActiveAlert, AlertStates, Ending
from ldlm_monitor.alerts.templates import Template

__all__ = [
    "ActiveAlert",
    "AlertRule",
    "AlertStates",
    "Ending",
    "RecordingRule",
    "RuleSet",
    "Template",
    "check_rules",
    "load_rules",
    "packaged_rules",
]
