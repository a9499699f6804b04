"""Alerting: Prometheus rule files, the states of alerts, and the templates of annotations.

All three are our own code: Prometheus' is in Go, and `templates` says what PyPI has.
"""

from ldlm_monitor.alerts.active import ActiveAlert, Ending
from ldlm_monitor.alerts.rules import (
    AlertRule,
    RecordingRule,
    RuleSet,
    check_rules,
    load_rules,
    packaged_rules,
)
from ldlm_monitor.alerts.state import AlertStates
from ldlm_monitor.alerts.template_expansion import NO_CONTEXT, Context
from ldlm_monitor.alerts.templates import Template

__all__ = [
    "NO_CONTEXT",
    "ActiveAlert",
    "AlertRule",
    "AlertStates",
    "Context",
    "Ending",
    "RecordingRule",
    "RuleSet",
    "Template",
    "check_rules",
    "load_rules",
    "packaged_rules",
]
