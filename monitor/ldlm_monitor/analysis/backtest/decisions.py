"""Scores the decisions on finished logs against what a reader decided (`replay --decide`)."""

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from ldlm_monitor.config import Settings
from ldlm_monitor.incidents.decisions import nothing_failed
from ldlm_monitor.model.errors import TruthError
from ldlm_monitor.model.incident_view import DecisionView, DecisionWord, View
from ldlm_monitor.model.view import RunView
from ldlm_monitor.playback.replay import Replay
from ldlm_monitor.source.input_patterns import resolve

_RESTARTS = ("RESTART", "RESTART_WITHOUT")


class Reading(View):
    """What a reader decided on a log. `also`: what would be as right; `clear`: no doubt is left."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    decision: DecisionWord
    also: tuple[DecisionWord, ...] = ()
    clear: bool = True


class TrueDecision(Reading):
    """The first reader's decision on `file`, and a `second` one's, who had not seen the first.

    Further keys, such as the log's source, are ignored.
    """

    file: str
    second: Reading | None = None

    @property
    def is_clear(self) -> bool:
        """Whether no reader had a doubt, and both decided alike."""
        other = self.second
        return self.clear and (other is None or (other.clear and other.decision == self.decision))


class DecisionScore(View):
    """How many of `logs` were decided, and rightly. The last four are of the `clear` ones."""

    logs: int = 0
    decided: int = 0
    right: int = 0
    wrong: int = 0
    unknown: int = 0
    clear: int = 0
    clear_right: int = 0
    false_stop: int = Field(default=0, description="STOP where the run should go on")
    false_restart: int = Field(default=0, description="a restart where a person must mend it")
    cases: tuple[dict[str, str | bool], ...] = ()


def decision_json(run: RunView) -> str:
    """A run's decision as one JSON object, in the contract's form."""
    found = decision_of(run)
    shown = found.model_dump(mode="json", exclude={"rule", "if_wrong"})
    file = found.evidence[0].path if found.evidence else run.files[0] if run.files else ""
    return json.dumps({"file": file, "run": run.name, "attempt": run.attempt, **shown})


def decision_of(run: RunView) -> DecisionView:
    """The decision on a run, GO_ON where nothing failed."""
    return run.decision or nothing_failed()


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


def score_decisions(settings: Settings, truth: Path) -> DecisionScore:
    """Replay each log that the truth file lists, as a run of its own; absent ones are left out.

    Raises `TruthError` and what `Replay` raises.
    """
    entries = {entry.file: entry for entry in load_decisions(truth)}
    logs = [path for path in resolve(settings.files, base=Path()).present() if path.name in entries]
    if not logs:
        raise TruthError(
            "lists none of these logs", where=str(truth), remedy="name the logs by its file names"
        )
    cases = [(entries[log.name], _decided(settings, log)) for log in logs]
    return _summed(cases)


def _decided(settings: Settings, log: Path) -> DecisionView:
    """The decision on the log's last run."""
    alone = settings.model_copy(update={"files": (str(log),), "companions": False})
    runs = Replay(alone).end().runs
    return decision_of(runs[-1]) if runs else nothing_failed()


def _summed(cases: list[tuple[TrueDecision, DecisionView]]) -> DecisionScore:
    known = [(true, found) for true, found in cases if found.decision != "UNKNOWN"]
    right = [(true, found) for true, found in known if _is_right(true, found)]
    clear = [(true, found) for true, found in cases if true.is_clear]
    wrong = [(true, found) for true, found in clear if not _is_right(true, found)]
    return DecisionScore(
        logs=len(cases),
        decided=len(known),
        right=len(right),
        wrong=len(known) - len(right),
        unknown=len(cases) - len(known),
        clear=len(clear),
        clear_right=len(clear) - len(wrong),
        false_stop=sum(found.decision == "STOP" for _, found in wrong),
        false_restart=sum(
            found.decision in _RESTARTS and true.decision == "STOP" for true, found in wrong
        ),
        cases=tuple(_case(true, found) for true, found in cases),
    )


def _is_right(true: TrueDecision, found: DecisionView) -> bool:
    return found.decision in (true.decision, *true.also)


def _case(true: TrueDecision, found: DecisionView) -> dict[str, str | bool]:
    return {
        "file": true.file,
        "truth": true.decision,
        "decision": found.decision,
        "rule": found.rule,
        "right": _is_right(true, found),
        "clear": true.is_clear,
    }


def decision_score_text(score: DecisionScore) -> Iterator[str]:
    """Each wrong or unknown case, then the sums."""
    for case in score.cases:
        if not case["right"]:
            doubt = "" if case["clear"] else " (not clear)"
            found = f"{case['decision']} by {case['rule']}"
            yield f"{case['file']}: {found}, not {case['truth']}{doubt}"
    yield (
        f"{score.logs} logs: {score.decided} decided, {score.right} of them rightly, "
        f"{score.unknown} UNKNOWN"
    )
    yield (
        f"{score.clear} clear ones: {score.clear_right} rightly, {score.false_stop} false STOP, "
        f"{score.false_restart} false RESTART"
    )
