"""What happened to a run in one line: of how it is now, or of one change of an alert."""

import math
import re
from collections.abc import Sequence
from typing import Final

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.headline import FINISHED_MARK, SEVERITY_MARKS, STATE_MARKS, Headline
from ldlm_monitor.base.incident_view import DecisionView, IncidentView
from ldlm_monitor.base.names import RUN_FINISHED, STALL_ALERT
from ldlm_monitor.base.snapshot import AlertView, ReasonView, RunView
from ldlm_monitor.base.text.format import duration, number
from ldlm_monitor.base.text.sanitize import summary_of
from ldlm_monitor.judge.core.run_health import NONFINITE_ALERTS, decided_on
from ldlm_monitor.judge.incidents.folded_evidence import NONFINITE, STACKS, STALL
from ldlm_monitor.judge.incidents.short_causes import short_cause

_OVER: Final = " (over)"  # ends a reason that is past
_FEW: Final = 3  # runs that a line names. A choice: more do not fit, and share a cause
_OF_MANY: Final = {
    STALL_ALERT: ("stalled", "stepping again"),
    RUN_FINISHED: ("finished", "going on after their end"),
    "NonFiniteLoss": ("with a loss of NaN", "with a finite loss again"),
    "TrainingCrashed": ("crashed", "crashed, over"),
    "JobKilled": ("killed", "killed, over"),
    "OutOfMemory": ("out of memory", "out of memory, over"),
    "NcclTimeout": ("with an NCCL timeout", "without an NCCL timeout again"),
    "RankLost": ("without a rank", "with all ranks again"),
}
"""Of an alert of many runs, what they are while it fires, and after it."""
_WITHOUT_CAUSE: Final = ("TrainingCrashed", "JobKilled")  # whose words in `_OF_MANY` name none
_OTHER_MARK: Final = "⚪"  # of a severity that is none of ours
_HAS_STEP = re.compile(r"\bstep \d", re.IGNORECASE)
_NO_NUMBER = re.compile(r"\b(?:NaN|Inf)\b(?! or)")  # in a line that says which it is
_LOSS = re.compile(r"\b\w*loss\w*")  # the quantity in a line about one that is not finite
_MOST_RANKS = 12  # characters of a list of ranks, a choice: a longer one displaces the reason
_CLAUSE = re.compile(r"[.;:(]|, ")  # ends the first clause of an advice


def headline_of(
    run: RunView, alerts: Sequence[AlertView], incidents: Sequence[IncidentView]
) -> Headline | None:
    """How a run is now: its worst reason, or how it ended; None while nothing is to be said."""
    if not run.reasons:
        return _ended(run)
    reason = run.reasons[0]
    name = reason.text.partition(":")[0] if reason.kind == "alert" else ""
    incident = _incident(run, reason, incidents)
    text = reason.text.removeprefix(f"{name}: ").removesuffix(_OVER)
    what, where = _event(run, name, text, incident)
    where += _OVER if reason.text.endswith(_OVER) else ""
    decision = decided_on(run, name)
    advice = "" if decision is not None else _advised(run, alerts)
    return Headline(
        mark=SEVERITY_MARKS.get(reason.severity, _OTHER_MARK),
        run=run.name,
        what=what,
        where=where,
        todo=decision.todo if decision is not None else advice,
        sure=_sure(decision),
        tries=incident.action if incident is not None and incident.is_to_mend else "",
        since=reason.since,
    )


def headline_of_change(
    change: Transition,
    run: RunView | None,
    incidents: Sequence[IncidentView],
    stood_since: float | None = None,
) -> Headline:
    """What a change of an alert says of its run (None: of the monitor itself, or unknown).

    `incidents` are those of the run; `stood_since`: when the run took its last step before a stall.
    """
    if run is None:
        summary = summary_of(change.annotations, "") or change.alert
        over = "" if change.state == "firing" else f" ({change.state})"
        return Headline(
            mark=_mark(change), run=change.labels.get("run", ""), what=f"{summary}{over}"
        )
    if change.alert == RUN_FINISHED:
        return _of_end(change, run)
    found = next((each for each in incidents if each.id == change.incident), None)
    is_symptom = change.labels.get("severity") not in ("critical", "error")
    incident = None if is_symptom else found
    text = summary_of(change.annotations, run.name) or change.alert
    what, where = _event(run, change.alert, text, incident, change.labels.get("rank"))
    if change.state in ("firing", "pending"):
        decision = found.decision if found is not None else _of_numbers(run, change.alert)
        return Headline(
            mark=_mark(change),
            run=run.name,
            what=what,
            where=where,
            todo=decision.todo if decision else _clause(change.annotations.get("action", "")),
            sure=_sure(decision),
            since=change.active_at,
        )
    began = stood_since if stood_since is not None else change.active_at
    lasted = "" if change.time is None else duration(max(change.time - began, 0.0))
    went_on = change.step != run.step or (run.last_progress_at or began) > change.active_at
    mark, end = _mark(change), _end(run)
    if change.state == "ended" or (end and not went_on):
        mark, where = STATE_MARKS["ended"], f"{where}, until the run {end or 'ended'}"
    elif change.state == "resolved" and change.alert == STALL_ALERT and went_on:
        is_seen = change.step is not None and change.step != run.step
        what = f"stepping again after {lasted or 'a pause'}"
        where = f" (step {change.step} → {run.step})" if is_seen else ""
    elif change.state == "resolved":
        after = f" after {lasted}" if lasted else ""
        what = f"over{after}: {what}"
    else:
        what = f"no data any more: {what}"
    return Headline(mark=mark, run=run.name, what=what, where=where, since=began)


def headline_of_incident(incident: IncidentView, run: RunView | None) -> Headline:
    """What is known now of an incident that a message is about."""
    decision = incident.decision
    what, where = _first_cause(incident, None) if run is None else _event(run, "", "", incident)
    return Headline(
        mark=SEVERITY_MARKS.get(incident.severity, _OTHER_MARK),
        run=incident.run,
        what=what,
        where=where,
        todo=decision.todo if decision else _clause(incident.action),
        sure=_sure(decision),
        since=incident.began_at,
    )


def headline_of_many(
    alert: str, severity: str, runs: Sequence[str], *, of: int, within: float, cause: str = ""
) -> Headline:
    """That `alert` fires, or with no severity is over, of `runs`; `of`: how many had it in all.

    `within`: seconds between the first and the last. `cause`: the first one of all, or
    what is seen of one that stalled ("": unknown).
    """
    going, over = _OF_MANY.get(alert, (f"with {alert}", f"without {alert} again"))
    count = f"{len(runs)} runs" if len(runs) == of else f"{len(runs)} of {of} runs"
    mark = FINISHED_MARK if alert == RUN_FINISHED else SEVERITY_MARKS.get(severity, _OTHER_MARK)
    what = f"{count} {going} within {duration(max(within, 1.0))}"
    if not severity:
        mark, what = STATE_MARKS["resolved"], f"{count} {over}"
    is_shared = severity and alert == STALL_ALERT and len(runs) > _FEW and not cause
    names = ", ".join(runs) if len(runs) <= _FEW else ""
    why = cause if alert in _WITHOUT_CAUSE and severity else ""
    why = "storage, or the monitor itself" if is_shared else why
    said = f"{what}: {why}" if why else what
    where = f" ({names})" if why and names else f": {names}" if names else ""
    return Headline(mark=mark, run="", what=said, where=where)


def _mark(change: Transition) -> str:
    if change.state in STATE_MARKS:
        return STATE_MARKS[change.state]
    return SEVERITY_MARKS.get(change.labels.get("severity", ""), _OTHER_MARK)


def _of_end(change: Transition, run: RunView) -> Headline:
    """That a run finished, or of that alert's end, that it goes on, or is not shown any more."""
    if change.state in ("firing", "pending"):
        known = _ended(run, change.value)
        return known or Headline(mark=FINISHED_MARK, run=run.name, what="finished", joins=" ")
    mark, where = STATE_MARKS["ended"], ""
    if run.ended_at is None:
        mark, what = SEVERITY_MARKS["info"], "goes on after its end"
        where = "" if run.step is None else f" (step {run.step})"
    elif run.state != "finished":
        what = f"{run.state} after its end"
    else:
        what = "its end is news no more"
    return Headline(mark=mark, run=run.name, what=what, where=where, since=change.active_at)


def _ended(run: RunView, took: float | None = None) -> Headline | None:
    """How a run without a reason for concern ended; None if it has not.

    `took`: for how many seconds it ran (0: unknown; None: by its start and end).
    """
    if run.ended_at is None:
        return None
    if run.state != "finished":
        at = "" if run.step is None else f" at step {run.step}"
        mark = STATE_MARKS["ended"]
        return Headline(mark=mark, run=run.name, what=f"{run.state}{at}", since=run.ended_at)
    if took is None and run.started_at is not None:
        took = run.ended_at - run.started_at
    loss = run.statistics.get("loss")
    facts = [
        *([] if not took else [run.about(run.started_at, run.ended_at) + duration(took)]),
        *([] if loss is None else [f"loss {number(loss.current, 3)}"]),
    ]
    is_lost = loss is not None and not math.isfinite(loss.current)
    mark = SEVERITY_MARKS["critical"] if is_lost else FINISHED_MARK
    what = f"finished: {', '.join(facts)}" if facts else "finished"
    return Headline(mark=mark, run=run.name, what=what, since=run.ended_at, joins=" ")


def _end(run: RunView) -> str:
    """How the run ended, or as its host and log show, is about to; "" while it goes on."""
    if run.ended_at is not None:
        return {"killed": "was killed"}.get(run.state, run.state)
    word = run.verdict.word if run.verdict is not None else "silent"
    return "" if word in ("silent", "hung") else {"killed": "was killed"}.get(word, word)


def _event(
    run: RunView,
    alert: str,
    text: str,
    incident: IncidentView | None,
    rank: str | None = None,
) -> tuple[str, str]:
    """What happened, and where; `rank`: the alert's own."""
    root = incident.root if incident is not None else None
    if (root.kind == STALL) if root is not None else (alert == STALL_ALERT):
        return _pause(run, alert, text), ""
    if alert in NONFINITE_ALERTS or (root is not None and root.kind == NONFINITE):
        return _nonfinite(run, alert, incident)
    if root is None or incident is None:
        known = rank or (None if run.failed_rank is None else str(run.failed_rank))
        named = known is None or re.search(rf"\brank {known}\b", text)
        text = text.partition("; ")[0]  # a verdict follows, which a line has no room for
        return text, "" if named else f", rank {known}"
    return _first_cause(incident, run.failed_rank)


def _first_cause(incident: IncidentView, failed_rank: int | None) -> tuple[str, str]:
    root = incident.root
    what = short_cause(root) or incident.title
    which = root.rank if root.rank is not None else failed_rank
    nobody = which is None
    if which is not None and root.kind == STACKS:  # what a rank does is no fault that lies on it
        what = f"rank {which} is {what}"
    if which is not None and what.startswith(f"rank {which} "):
        which = None  # is said already
    ranks = root.ranks if which is root.rank is None and len(root.ranks) <= _MOST_RANKS else ""
    at = None if _HAS_STEP.search(what) else incident.last_step  # two numbers would contradict
    place = _place(at, which, ranks)
    waiting = incident.collective.waiting if incident.collective is not None else ""
    if waiting and nobody:
        ranks = f"rank {waiting}" if waiting.isdecimal() else f"ranks {waiting}"
        place += f", {ranks} waited" if len(waiting) <= _MOST_RANKS else ""
    return what, place


def _pause(run: RunView, alert: str, text: str) -> str:
    """That no step comes, since which, and what its host shows of it: no age, which would stand."""
    since = "no step yet" if run.step is None else f"no step since step {run.step}"
    if alert and " has ended or hangs" in f" {text}":
        since = f"ended, or {since}"
    seen = run.verdict.reasons[:1] if run.verdict is not None and not _end(run) else ()
    return ": ".join((since, *seen))


def _place(step: int | None, rank: int | None, ranks: str = "") -> str:
    at = "" if step is None else f" at step {step}"
    return at + (f", rank {rank}" if rank is not None else f", ranks {ranks}" if ranks else "")


def _nonfinite(run: RunView, alert: str, incident: IncidentView | None) -> tuple[str, str]:
    """The first value that was not finite, with its step and rank as far as they are known."""
    message = incident.root.message if incident is not None else ""
    of_gradient = alert == "NonFiniteGradient" or (not alert and "gradient" in message)
    wanted = "grad_norm" if of_gradient else "loss"
    marks = [each for each in run.nonfinite if wanted in each.quantity]
    first = next(iter(marks or run.nonfinite), None)
    named = _LOSS.search(message)
    quantity = marks[0].quantity if marks else named[0] if named else wanted
    seen = run.statistics.get(quantity)
    is_now = seen is not None and not math.isfinite(seen.current)
    said = _NO_NUMBER.search(message)
    word = said[0] if said is not None else "NaN or Inf"
    if seen is not None and is_now:
        word = number(seen.current)
    name = "gradient" if quantity == "grad_norm" else quantity
    rank = first.rank if first is not None and first.rank is not None else run.failed_rank
    at = first.step if first is not None else incident.last_step if incident is not None else None
    return f"{name} {word}", _place(at, rank)


def _incident(
    run: RunView, reason: ReasonView, incidents: Sequence[IncidentView]
) -> IncidentView | None:
    """The incident that is the reason."""
    if reason.kind != "incident":
        return None
    of_run = (each for each in reversed(incidents) if each.run == run.name)
    return next((each for each in of_run if reason.text.startswith(each.title)), None)


def _of_numbers(run: RunView, alert: str) -> DecisionView | None:
    return run.decision if alert in NONFINITE_ALERTS else None


def _advised(run: RunView, alerts: Sequence[AlertView]) -> str:
    """What the first alert among the run's reasons advises."""
    own = {each.name: each for each in alerts if each.labels.get("run") == run.name}
    names = (each.text.partition(":")[0] for each in run.reasons if each.kind == "alert")
    found = (own[name].annotations.get("action", "") for name in names if name in own)
    return _clause(next(filter(None, found), ""))


def _clause(advice: str) -> str:
    """The first clause of an advice, as the end of a line."""
    first = _CLAUSE.split(advice, 1)[0].strip()
    return first[:1].lower() + first[1:]


def _sure(decision: DecisionView | None) -> str:
    return "" if decision is None else f"({decision.confidence}): {decision.reasons[0]}"
