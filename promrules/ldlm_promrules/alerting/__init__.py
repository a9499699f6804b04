"""Alerting: Prometheus rule files, the states of alerts, and the templates of annotations.

All three are our own code: Prometheus' is in Go, and `templates` says what PyPI has.
"""

from ldlm_promrules.alert_change import AlertChange
from ldlm_promrules.alerting.active_alerts import ActiveAlert, Ending
from ldlm_promrules.alerting.alert_states import AlertStates
from ldlm_promrules.alerting.rule_files import (
    AlertRule,
    RecordingRule,
    RuleSet,
    check_rules,
    load_rules,
)
from ldlm_promrules.templates.template import Template
from ldlm_promrules.templates.template_expansion import NO_CONTEXT, Context

__all__ = [
    "NO_CONTEXT",
    "ActiveAlert",
    "AlertChange",
    "AlertRule",
    "AlertStates",
    "Context",
    "Ending",
    "RecordingRule",
    "RuleSet",
    "Template",
    "check_rules",
    "load_rules",
]
