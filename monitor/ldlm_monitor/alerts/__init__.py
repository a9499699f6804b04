"""Alerting: Prometheus rule files, their state, and the templates of their annotations."""

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
