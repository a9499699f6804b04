"""The decision on each incident and each run: their facts, and the table that `incidents` has."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ldlm_monitor.base.incident_view import DecisionView, IncidentView, RootView
from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.base.snapshot import Health, RunView
from ldlm_monitor.judge.core.run_numbers import numbers_of, rollback
from ldlm_monitor.judge.incidents import Incidents
from ldlm_monitor.judge.incidents.clues import fails
from ldlm_monitor.judge.incidents.decision_table import ILL, DecisionFacts, decide, is_repeated
from ldlm_monitor.judge.incidents.folded_evidence import NONFINITE
from ldlm_monitor.judge.run.fleet import Fleet
from ldlm_monitor.judge.run.training_run import TrainingRun
from ldlm_monitor.logs.parse.meanings import meaning_of


def decided(
    book: Incidents,
    fleet: Fleet,
    runs: Iterable[RunView],
    events: Iterable[Event],
    at: float,
    *,
    name: str | None = None,
) -> tuple[tuple[IncidentView, ...], tuple[RunView, ...]]:
    """The incidents at `at` (Unix seconds) and the runs, all with their decisions.

    `events`: the newest of all runs, the newest last. `name`: only the incidents of this run.
    """
    incidents, found = book.views(at, name), list[IncidentView]()
    for each in incidents:
        run = fleet.get(each.run)
        more = (
            {}
            if run is None
            else {
                "root": _within(each, run.life.started_at),
                "decision": _of_incident(each, run, incidents),
                "lost_seconds": _lost(each, run, at),
            }
        )
        found.append(each.model_copy(update=more))
    recent: dict[str, list[Event]] = {}
    for event in events:
        recent.setdefault(event.run, []).append(event)
    shown = list[RunView]()
    for view in runs:
        run = fleet.get(view.name)
        decision = (
            None if run is None else of_run(run, found, recent.get(view.name, ()), view.health)
        )
        same = decision == view.decision
        shown.append(view if same else view.model_copy(update={"decision": decision}))
    return tuple(found), tuple(shown)


def of_run(
    run: TrainingRun,
    incidents: Sequence[IncidentView],
    events: Sequence[Event],
    health: Health = "HEALTHY",
) -> DecisionView | None:
    """The decision on a run now; None where nothing failed.

    It is about the failure that its last attempt has not survived. `incidents` have their own
    decisions; `events`: the run's newest, the newest last. A decision to go on does not decide a
    run whose `health` is bad.
    """
    attempt, is_ill = run.life.attempts.number, health in ILL
    standing = [
        each.decision
        for each in incidents
        if each.run == run.name
        and each.attempt == attempt
        and (each.state != "recovered" or _is_for_the_next_run(each, run))
        and (each.ended_reason != "quiet" or run.life.ended)
        and each.decision is not None
        and not (is_ill and each.decision.decision == "GO_ON")
    ]
    if standing:
        known = [each for each in standing if each.decision != "UNKNOWN"]
        # A launcher may report without a cause what an earlier line explains.
        return (known or standing)[-1]
    facts = replace(_facts_of_run(run, last_word(run, events)), health=health)
    return decide(facts) if facts.failed or is_ill or facts.numbers != "finite" else None


def _is_for_the_next_run(incident: IncidentView, run: TrainingRun) -> bool:
    """Whether a fault that an ended run survived is one for the next: that of a machine."""
    return incident.root.tier == "hardware" and run.life.ended


def _within(incident: IncidentView, started: float | None) -> RootView:
    """Its cause, not before its run started: a line's wait can be longer than the log's clock."""
    root = incident.root
    first = incident.opened_at if started is None else min(started, incident.opened_at)
    if root.at is None or root.at >= first:
        return root
    return root.model_copy(update={"at": first})


def _lost(incident: IncidentView, run: TrainingRun, now: float) -> float | None:
    ended = run.life.ended_at if run.life.ended_at is not None else now
    return run.steps.lost_since(min(incident.began_at, incident.opened_at), ended)


def _of_incident(
    incident: IncidentView, run: TrainingRun, incidents: Sequence[IncidentView]
) -> DecisionView:
    root = incident.root
    present = incident.attempt == run.life.attempts.number
    of_loss = _facts_of_loss(run) if present or root.kind == NONFINITE else DecisionFacts()
    lines = [root.position, *(each.position for each in incident.excerpt)]
    return decide(
        replace(
            of_loss,
            kind=root.kind,
            tier=root.tier,
            message=root.message,
            steps="some" if incident.last_step or run.life.attempts.counts_in_epoch else "none",
            repeated=is_repeated(incident, incidents),
            state=run.life.state if present else "crashed",
            failed=True,
            confidence=incident.confidence,
            node=root.host or root.node,
            evidence=tuple(dict.fromkeys(line for line in lines if line is not None and line.path)),
            why=root.why,
        )
    )


def _facts_of_run(run: TrainingRun, event: Event | None) -> DecisionFacts:
    """Facts of a run without an incident, whose log ends with `event`, or with no error at all."""
    if event is not None:
        return DecisionFacts(
            kind=event.kind,
            message=f"{event.message} {event.fields.get('event', '')}".strip()[:500],
            steps="some" if run.progress.step else "none",
            state=run.life.state,
            failed=True,
            confidence="probable",
            node=str(event.fields.get("host") or event.node or "") or None,
            evidence=(event.position,),
        )
    found = _facts_of_loss(run)
    if run.life.state not in ("crashed", "killed", "stalled"):
        return found
    end = run.life.end_evidence
    found = replace(found, failed=True, steps="none" if run.progress.step is None else "some")
    if end is None:
        return found
    return replace(found, kind=end.kind, message=end.message, evidence=(end.position,))


def last_word(run: TrainingRun, events: Sequence[Event]) -> Event | None:
    """The first error after the run's last step, if no incident has it; None without one."""
    step = run.life.progress_position
    for event in events:
        place = event.position
        is_later = run.progress.step is None or _is_at_or_after(place, step)
        is_later = is_later and (run.began is None or _is_at_or_after(place, run.began))
        # A rank was sent SIGTERM although its run was not over.
        words = meaning_of(event).words
        is_left = "sigterm" in words and run.life.state != "finished"
        if is_later and (fails(event) or "hint" in words or is_left):
            return event
    return None


def _is_at_or_after(place: Position, other: Position) -> bool:
    return place.path != other.path or place.line >= other.line


def _facts_of_loss(run: TrainingRun) -> DecisionFacts:
    """A run's state and loss; where that is no number any more, what it goes back to."""
    numbers = numbers_of(run)
    saved, skip = rollback(run) if numbers == "lasting" else (None, None)
    return DecisionFacts(
        state=run.life.state, numbers=numbers, rollback_step=saved, skip_steps=skip
    )
