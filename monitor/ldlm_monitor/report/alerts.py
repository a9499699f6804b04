"""Which alerts a report shows, in which order and words, and what they mean for the health."""

from ldlm_monitor.model.names import SEVERITIES
from ldlm_monitor.model.view import AlertView, Health, RunView, Snapshot
from ldlm_monitor.text.sanitize import plain, without_run

HEALTHS: tuple[Health, ...] = ("HEALTHY", "WARNING", "UNHEALTHY", "CRITICAL")
"""In rising order: none or info, warning, error, critical."""


def worst_health(snapshot: Snapshot) -> Health:
    """The health of the run that is worst off; HEALTHY where there is none."""
    return max((run.health for run in snapshot.runs), key=HEALTHS.index, default="HEALTHY")


def firing(snapshot: Snapshot) -> list[AlertView]:
    """The firing alerts that ask for attention, the worst first."""
    found = [
        alert
        for alert in snapshot.alerts
        if alert.state == "firing" and alert.labels.get("severity") in SEVERITIES
    ]
    return sorted(found, key=lambda alert: -SEVERITIES.index(alert.labels["severity"]))


def firing_of(run: RunView, snapshot: Snapshot) -> list[AlertView]:
    """Those of one run."""
    return [alert for alert in firing(snapshot) if alert.labels.get("run") == run.name]


def summary_of(alert: AlertView) -> str:
    """Its summary, without the run's name, for a place that names that already."""
    return without_run(plain(alert.annotations.get("summary", "")), alert.labels.get("run", ""))
