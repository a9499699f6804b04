"""Scores the decisions on finished logs against what a reader decided (`replay --decide`)."""

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field, TypeAdapter, ValidationError

from ldlm_monitor.base.errors import TruthError
from ldlm_monitor.base.incident_view import DecisionView, DecisionWord, View
from ldlm_monitor.base.snapshot import RunView
from ldlm_monitor.finished.playback.log_replay import Replay, ReplaySettings
from ldlm_monitor.judge.incidents.decision_table import DecisionFacts, Numbers, decide
from ldlm_monitor.logs.source.input_patterns import resolve

_RESTARTS = ("RESTART", "RESTART_WITHOUT")


class TrueDecision(View):
    """What a reader decided on `file`. `also`: what would be as right; `clear`: no doubt is left.

    Further keys, such as the log's source, are ignored.
    """

    file: str
    decision: DecisionWord
    also: tuple[DecisionWord, ...] = ()
    clear: bool = True


class DecisionCase(View):
    """The `decision` on a log by the table's `rule`, beside the reader's (`truth`)."""

    file: str
    truth: DecisionWord
    decision: DecisionWord
    rule: str
    right: bool
    clear: bool


class DecisionScore(View):
    """How many of `logs` were decided, and rightly. The last four are of the `clear` ones."""

    logs: int
    decided: int
    right: int
    wrong: int
    unknown: int
    clear: int
    clear_right: int
    false_stop: int = Field(description="STOP where the run should go on")
    false_restart: int = Field(description="a restart where a person must mend it")
    cases: tuple[DecisionCase, ...]


def decision_json(run: RunView) -> str:
    """A run's decision as one JSON object, in the contract's form."""
    found = decision_of(run)
    shown = found.model_dump(mode="json", exclude={"rule", "if_wrong", "do"})
    file = found.evidence[0].path if found.evidence else run.files[0] if run.files else ""
    return json.dumps({"file": file, "run": run.name, "attempt": run.attempt, **shown})


def decision_of(run: RunView) -> DecisionView:
    """The decision on a run, GO_ON where nothing failed."""
    numbers: Numbers = "unseen" if run.unseen else "finite"
    return run.decision or decide(DecisionFacts(numbers=numbers, health=run.health))


def load_decisions(path: Path) -> list[TrueDecision]:
    """The entries of a truth file. Raises `TruthError`."""
    try:
        return TypeAdapter(list[TrueDecision]).validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise TruthError(
            f"is no list of decisions ({str(error).splitlines()[0]})",
            where=str(path),
            remedy='write a list of {"file": ..., "decision": ...}',
        ) from error


def score_decisions(settings: ReplaySettings, truth: Path) -> DecisionScore:
    """Replay each log that the truth file lists, as a run of its own; absent ones are left out.

    Raises `TruthError` and what `Replay` raises.
    """
    entries = {entry.file: entry for entry in load_decisions(truth)}
    logs = [path for path in resolve(settings.files, base=Path()).present() if path.name in entries]
    if not logs:
        raise TruthError(
            "lists none of these logs", where=str(truth), remedy="name the logs by its file names"
        )
    cases = tuple(_case(settings, log, entries[log.name]) for log in logs)
    known = [case for case in cases if case.decision != "UNKNOWN"]
    right = sum(case.right for case in known)
    clear = [case for case in cases if case.clear]
    wrong = [case for case in clear if not case.right]
    return DecisionScore(
        logs=len(cases),
        decided=len(known),
        right=right,
        wrong=len(known) - right,
        unknown=len(cases) - len(known),
        clear=len(clear),
        clear_right=len(clear) - len(wrong),
        false_stop=sum(case.decision == "STOP" for case in wrong),
        false_restart=sum(case.decision in _RESTARTS and case.truth == "STOP" for case in wrong),
        cases=cases,
    )


def _case(settings: ReplaySettings, log: Path, true: TrueDecision) -> DecisionCase:
    """The decision on the log's last run, against the reader's."""
    runs = Replay(settings, alone=log).end().runs
    found = decision_of(runs[-1]) if runs else decide(DecisionFacts())
    return DecisionCase(
        file=true.file,
        truth=true.decision,
        decision=found.decision,
        rule=found.rule,
        right=found.decision in (true.decision, *true.also),
        clear=true.clear,
    )


def decision_score_text(score: DecisionScore) -> Iterator[str]:
    """Each wrong or unknown case, then the sums."""
    for case in score.cases:
        if not case.right:
            doubt = "" if case.clear else " (not clear)"
            yield f"{case.file}: {case.decision} by {case.rule}, not {case.truth}{doubt}"
    yield (
        f"{score.logs} logs: {score.decided} decided, {score.right} of them rightly, "
        f"{score.unknown} UNKNOWN"
    )
    yield (
        f"{score.clear} clear ones: {score.clear_right} rightly, {score.false_stop} false STOP, "
        f"{score.false_restart} false RESTART"
    )
