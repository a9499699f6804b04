"""Alerts that a run's newest lines raise by themselves, before its history was judged."""

from collections.abc import Iterable

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.names import SEVERITIES
from ldlm_monitor.judge.core.assemble import MonitorSettings, rules_of
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.judge.run.stall import Stall
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.parse.run_names import RunNames

_FAILURES = SEVERITIES[2:]  # what a history shows besides is no news


class EarlyAlerts:
    """What the settings' rules say of a run that has its newest lines alone.

    So an alert has the key, the severity and the text with which it fires once the history is
    judged, as long as the failure is one that these lines show. `stall`: limits that none reaches.
    """

    def __init__(self, settings: MonitorSettings, names: RunNames, stall: Stall) -> None:
        self._rules, self._parser = rules_of(settings), Parser(settings.formats)
        self._names, self._stall = names, stall

    def of(self, run: str, ends: Iterable[tuple[float, Chunk]], now: float) -> list[Transition]:
        """The failures that fire at `now`. `ends`: the ends of the run's files, and their writes.

        Times are Unix seconds. Lines count from where the end of a file begins.
        """
        monitor = Monitor(
            rules=self._rules, parser=self._parser, names=self._names, stall=self._stall
        )
        firing: dict[str, Transition] = {}
        passed: list[Transition] = []
        for written, chunk in sorted(ends, key=lambda end: end[0]):
            passed += monitor.feed(chunk, written, counted=False)
        for each in [*passed, *monitor.tick(now)]:
            firing.pop(each.key, None)
            if each.state == "firing":
                firing[each.key] = each
        return [
            each
            for each in firing.values()
            if each.labels.get("run") == run and each.labels.get("severity") in _FAILURES
        ]
