"""The alert that `notify test` sends."""

from collections.abc import Mapping
from typing import Any

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.snapshot import AlertView
from ldlm_monitor.service.notify.message import from_transition, message_of
from ldlm_monitor.service.notify.receiver import TrialAlert


def trial_at(now: float, external_url: str | None, labels: Mapping[str, str]) -> TrialAlert:
    """A trial at `now` (Unix seconds); `external_url` and `labels` as in the settings."""
    shared: dict[str, Any] = {
        "state": "firing",
        "labels": {"severity": "info", "run": "notify-test"},
        "annotations": {
            "summary": "A test message: alerts of ldlm-monitor arrive here.",
            "action": "Nothing: this is only a test.",
        },
        "value": 1.0,
        "active_at": now,
    }
    name, reason = "NotifyTest", "condition holds"
    passed = Transition(time=now, alert=name, previous="inactive", reason=reason, **shared)
    return TrialAlert(
        message=message_of(from_transition(passed, external_url)),
        alert=AlertView(name=name, fired_at=now, position=None, **shared),
        now=now,
        url=external_url or "",
        labels=labels,
    )
