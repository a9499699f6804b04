"""Which alerts a report shows, what they mean for the health, and what to change for each.

The advice is data: `advice.yml` names settings as the launch script spells them. Other
trainers' spellings of the same thing are found in the run's configuration under `aliases`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

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


@dataclass(frozen=True, slots=True)
class Advice:
    """Change `setting` by `factor`, or to the value `to`, because of `reason`."""

    setting: str
    aliases: tuple[str, ...]
    reason: str
    factor: float | None = None
    to: str | None = None

    def text(self, settings: Mapping[str, str]) -> str | None:
        """One sentence; None where the setting has the advised value already."""
        now = self._current(settings)
        if self.to is not None and now == self.to:
            return None
        aim = self.to if self.to is not None else self._scaled(now)
        known = f" (now {now})" if now else ""
        if aim is None:
            verb = "lower" if (self.factor or 1) < 1 else "raise"
            return f"{verb} {self.setting}{known}: {self.reason}"
        return f"{self.setting}={aim}{known}: {self.reason}"

    def _current(self, settings: Mapping[str, str]) -> str | None:
        """The logged value; None where none was logged."""
        known = {key.rpartition(".")[2].casefold(): value for key, value in settings.items()}
        names = (self.setting.casefold(), *self.aliases)
        return next((known[name] for name in names if name in known), None)

    def _scaled(self, now: str | None) -> str | None:
        if not now or not self.factor:
            return None
        try:
            scaled = float(now) * self.factor
        except ValueError:
            return None
        if now.isdecimal():
            return str(round(scaled)) if scaled >= 1 else None
        return f"{scaled:g}"


@cache
def advice() -> dict[str, tuple[Advice, ...]]:
    """By alert, what to try, the best first."""
    data = yaml.safe_load((files(__package__) / "advice.yml").read_text("utf-8"))
    known = {
        name: Advice(aliases=tuple(data["settings"][each["setting"]]), **each)
        for name, each in data["advice"].items()
    }
    return {alert: tuple(known[name] for name in names) for alert, names in data["alerts"].items()}


def recommendations(alerts: Iterable[str], settings: Mapping[str, str]) -> list[str]:
    """Sentences for the alerts of these names, each once, in the alerts' order."""
    advised = (each.text(settings) for alert in alerts for each in advice().get(alert, ()))
    return list(dict.fromkeys(text for text in advised if text))
