"""Alerts that a run's newest lines raise by themselves, before its history was judged."""

from collections.abc import Sequence
from pathlib import Path

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.names import SEVERITIES
from ldlm_monitor.judge.core.assemble import MonitorSettings, rules_of
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.judge.run.stall import Stall
from ldlm_monitor.logs.history.merge import place
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.parse.run_names import RunNames
from ldlm_monitor.logs.source.file_system import Disk

_FAILURES = SEVERITIES[2:]  # what a history shows besides is no news


class EarlyAlerts:
    """What the settings' rules say of a run that has its newest lines alone.

    These lines are placed in time and judged as the history is, so that an alert which is over by
    then is none, and one that fires has the key, the severity and the text that it has once all is
    judged. `stall`: limits that none reaches.
    """

    def __init__(
        self, settings: MonitorSettings, names: RunNames, stall: Stall, disk: Disk
    ) -> None:
        self._rules, self._parser = rules_of(settings), Parser(settings.formats)
        self._settings, self._names, self._stall, self._disk = settings, names, stall, disk

    def of(self, run: str, paths: Sequence[Path], size: int, now: float) -> list[Transition]:
        """The failures that fire at `now` (Unix seconds), by the last `size` bytes of each file.

        Numbers of lines are estimates.
        """
        monitor = Monitor(
            rules=self._rules,
            parser=self._parser,
            names=self._names,
            evaluation_interval=self._settings.evaluation_interval,
            end_series_after=self._settings.end_series_after_seconds,
            stall=self._stall,
        )
        history = place(  # of the budget, half may be the start of a file, which is not judged
            paths, self._names, budget=2 * size, now=now, ends=False, ahead=True, disk=self._disk
        )
        passed: list[Transition] = []
        for when, _, chunk, file in history.in_order():
            if chunk.offset + len(chunk.data) <= file.backlog.size - size:
                continue
            since = history.since(at := min(when, now), chunk, file)
            passed += monitor.feed(chunk, at, counted=False, since=since)
        for file in history.files:
            file.backlog.tail.close()
        last = {each.key: each for each in [*passed, *monitor.tick(now)]}
        return [
            each
            for each in last.values()
            if each.state == "firing"
            and each.labels.get("run") == run
            and each.labels.get("severity") in _FAILURES
        ]
