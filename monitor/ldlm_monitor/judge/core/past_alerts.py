"""What was and is over: alerts and incidents of a run, each with what ended it."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.base.snapshot import OverBy, PastView, RunView
from ldlm_monitor.base.text.sanitize import summary_of
from ldlm_monitor.judge.incidents.folded_evidence import NONFINITE

KEPT: Final = 20  # past alerts kept of a run. A choice: more cost memory, fewer hide old ones
_OVER_BY: Final[Mapping[str, OverBy]] = {
    "recovered": "recovered",
    "quiet": "recovered",
    "restarted": "restart",
    "run ended": "run_end",
}
"""What ended an incident or alert, by the reason of its end."""


class PastAlerts:
    """The last alerts of each run that fired and are over."""

    def __init__(self) -> None:
        self._by_run: dict[str, deque[PastView]] = {}
        self._incidents: dict[str, str | None] = {}  # of firing alerts, by their keys
        self._fired_at: dict[tuple[str, str], float | None] = {}  # the last of a run and name

    def take(self, change: Transition) -> None:
        """Process a transition; one whose data stopped is not known to be over.

        Nor is an alert over that fires on with another severity: both changes have one time.
        """
        run, key = change.labels.get("run", ""), change.key
        past = self._by_run.get(run, ())
        if not run or change.is_heartbeat:
            return
        if change.state == "firing":
            self._incidents[key] = change.incident
            self._fired_at[run, change.alert] = change.time
            if past and (past[-1].name, past[-1].end) == (change.alert, change.time):
                self._by_run[run].pop()
        elif change.previous == "firing":
            incident = self._incidents.pop(key, None)
            goes_on = self._fired_at.get((run, change.alert)) == change.time
            if change.time is None or goes_on or change.state not in ("resolved", "ended"):
                return
            over_by = "recovered" if change.state == "resolved" else _OVER_BY[change.reason]
            found = PastView(
                kind="alert", name=change.alert, severity=change.labels.get("severity", "info"),
                text=summary_of(change.annotations, run), begin=change.active_at,
                end=change.time, over_by=over_by, incident=incident,
            )  # fmt: skip
            self._by_run.setdefault(run, deque(maxlen=KEPT)).append(found)

    def forget(self, run: str) -> None:
        """Drop what is over of a run."""
        self._by_run.pop(run, None)
        self._fired_at = {key: at for key, at in self._fired_at.items() if key[0] != run}

    def shown_in(
        self, runs: Iterable[RunView], incidents: Iterable[IncidentView]
    ) -> tuple[RunView, ...]:
        """The runs with what is over of each."""
        failed = dict[str, list[IncidentView]]()
        for incident in incidents:
            failed.setdefault(incident.run, []).append(incident)
        found = ((run, self._of(run, failed.get(run.name, ()))) for run in runs)
        return tuple(run.model_copy(update={"past": past}) if past else run for run, past in found)

    def _of(self, run: RunView, incidents: Sequence[IncidentView]) -> tuple[PastView, ...]:
        """What is over of a run, by its begin. `incidents`: those of the run, of which alerts may
        be a part.
        """
        found = [*self._by_run.get(run.name, ()), *_incidents(run, incidents)]
        shown = {each.id for each in incidents}
        kept = (each for each in found if each.kind == "incident" or each.incident not in shown)
        return tuple(sorted(kept, key=lambda each: each.begin))


def _incidents(run: RunView, incidents: Sequence[IncidentView]) -> Iterator[PastView]:
    for each in incidents:
        over_by, of_numbers = _OVER_BY.get(each.ended_reason), each.root.kind == NONFINITE
        # With a run that did not finish, or whose loss was lost, its failure holds.
        is_lost = run.health == "CRITICAL" and of_numbers
        holds = run.state != "finished" or is_lost
        lasts = holds and (over_by == "run_end" or (each.ended_reason == "quiet" and run.ended_at))
        if over_by is None or each.ended_at is None or lasts:
            continue
        if of_numbers and over_by == "run_end":  # the run went on, and ended before that was sure
            over_by = "recovered"
        yield PastView(
            kind="incident", name=each.id, severity=each.severity, text=each.title,
            begin=each.began_at, end=each.ended_at, over_by=over_by, incident=each.id,
        )  # fmt: skip
