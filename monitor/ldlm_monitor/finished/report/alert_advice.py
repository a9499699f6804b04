"""The alerts that a report shows, and advice for each.

The advice is in `advice.yml`. A setting has the name that the run's own log gives it; where the
log has none, it is described in words, or named as the launch script of the run's framework does.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from ldlm_monitor.base.names import RUN_FINISHED, SEVERITIES, severity_rank
from ldlm_monitor.base.snapshot import AlertView, Snapshot
from ldlm_monitor.base.text.yaml_loader import packaged_yaml

_LAUNCHED = "MM-LDLM"  # the framework whose launch script has its own names for settings


def firing(snapshot: Snapshot) -> list[AlertView]:
    """The firing alerts with a severity of `names.SEVERITIES`, the worst first.

    Without that a run has finished, which the report says of each run.
    """
    found = [
        alert
        for alert in snapshot.alerts
        if alert.state == "firing"
        and alert.labels.get("severity") in SEVERITIES
        and alert.name != RUN_FINISHED
    ]
    return sorted(found, key=lambda alert: -severity_rank(alert.labels["severity"]))


@dataclass(frozen=True, slots=True)
class Advice:
    """Change `setting` (words, or a variable) by `factor`, or set it `to`, because of `reason`.

    `aliases`: its names in configurations; one in capitals is of the launch script of MM-LDLM.
    """

    setting: str
    aliases: tuple[str, ...]
    reason: str
    factor: float | None = None
    to: str | None = None

    def text(self, settings: Mapping[str, str], framework: str) -> str | None:
        """The advice in one sentence; None if `settings`, a run's, have that value already."""
        name, now = self._current(settings)
        if self.to is not None and now == self.to:
            return None
        launch = (each for each in self.aliases if each.isupper() and framework == _LAUNCHED)
        name = name or next(launch, self.setting)
        aim = self.to or self._scaled(now)
        direction = "lower" if (self.factor or 1) < 1 else "raise"
        setting = f"set {name} to {aim}" if " " in name else f"{name}={aim}"
        change = setting if aim else f"{direction} {name}"
        return f"{change}{f' (now {now})' if now else ''}: {self.reason}"

    def _current(self, settings: Mapping[str, str]) -> tuple[str | None, str | None]:
        """The setting's name and value in the run's log."""
        known = {key.rpartition(".")[2].casefold(): key for key in settings}
        names = (name.casefold() for name in (self.setting, *self.aliases))
        key = next((known[name] for name in names if name in known), None)
        return (None, None) if key is None else (key, settings[key])

    def _scaled(self, now: str | None) -> str | None:
        if not now or not self.factor:
            return None
        try:
            scaled = float(now) * self.factor
        except ValueError:
            return None
        if not math.isfinite(scaled):  # a log may hold any number of digits
            return None
        if now.isdecimal():
            return str(round(scaled)) if scaled >= 1 else None
        return f"{scaled:g}"


@cache
def advice() -> dict[str, tuple[Advice, ...]]:
    """The packaged advice by alert name, in the order in which to try it."""
    data = packaged_yaml(__package__, "advice.yml")
    known = {
        name: Advice(aliases=tuple(data["settings"][each["setting"]]), **each)
        for name, each in data["advice"].items()
    }
    return {alert: tuple(known[name] for name in names) for alert, names in data["alerts"].items()}


def recommendations(
    alerts: Iterable[str], settings: Mapping[str, str], framework: str = "unknown"
) -> list[str]:
    """Sentences of advice for the alerts of these names, in their order, without duplicates."""
    advised = (
        each.text(settings, framework) for alert in alerts for each in advice().get(alert, ())
    )
    return list(dict.fromkeys(text for text in advised if text))
