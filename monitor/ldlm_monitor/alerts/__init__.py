"""Alerting: Prometheus rule files, their state, and the templates of their annotations."""

from ldlm_monitor.alerts.rules import (
    AlertRule,
    RecordingRule,
    RuleSet,
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
    "load_rules",
    "packaged_rules",
]
