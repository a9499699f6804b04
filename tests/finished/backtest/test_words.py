"""The scores of a backtest and of decisions, as people read them."""

import json
from pathlib import Path

import pytest

from ldlm_monitor.base.errors import TruthError
from ldlm_monitor.base.snapshot import RunView
from ldlm_monitor.finished.backtest.decision_score import (
    DecisionCase,
    DecisionScore,
    decision_json,
    decision_of,
    decision_score_text,
    score_decisions,
)
from ldlm_monitor.finished.backtest.play import score_text
from ldlm_monitor.finished.backtest.score import (
    Delay,
    EventScore,
    FalseAlarm,
    LogScore,
    Overall,
    Scores,
)
from tests.finished.replaying import asked

HEALTHY = LogScore(
    file="good.log", healthy=True, recall=None, precision=None, expected=0, found=0, alerts=0,
    true_alerts=0, expected_events=(), false_alarms=(),
)  # fmt: skip
BROKEN = LogScore(
    file="bad.log",
    healthy=False,
    recall=2 / 3,
    precision=0.5,
    expected=3,
    found=2,
    alerts=4,
    true_alerts=2,
    expected_events=(
        EventScore(kind="nan", severity="failure", line=20),
        EventScore(
            kind="nan", severity="failure", line=30, alert="NonFiniteLoss", alert_line=31,
            seconds_to_detect=75.0, lines_to_detect=1,
        ),
        EventScore(
            kind="nan", severity="warning", line=40, alert="NonFiniteLoss", alert_line=41,
            lines_to_detect=1,
        ),
        EventScore(kind="nan", severity="warning", line=50, alert="NonFiniteLoss"),
    ),
    false_alarms=(
        FalseAlarm(alert="LossSpike", severity="warning", line=7, benign="warm-up"),
        FalseAlarm(alert="TrainingStalled", severity="error", line=None, benign=None),
    ),
)  # fmt: skip
OVERALL = Overall(
    recall=2 / 3, precision=1.0, expected=3, found=2, alerts=4, true_alerts=4, logs=2, healthy=1,
    healthy_with_false_alarms=0, seconds_to_detect=Delay(count=1, median=75.0, longest=3600.0),
    lines_to_detect=Delay(count=2, median=1.5, longest=12.0),
)  # fmt: skip


def test_each_log_has_its_events_and_false_alerts_before_the_sums() -> None:
    missed = score_text(Scores(overall=OVERALL, logs=(BROKEN,))).splitlines()[1]
    assert missed.startswith("    MISSED  failure nan at bad.log:20: no NonFinite")
    lines = score_text(Scores(overall=OVERALL, logs=(HEALTHY, BROKEN))).splitlines()
    lines.remove(missed)
    assert lines == [
        "good.log  healthy",
        "bad.log  2 of 3 found  2 of 4 alerts false  recall 66.7 %  precision 50 %",
        "    found   failure nan at bad.log:30 by NonFiniteLoss after 1m 15s",
        "    found   warning nan at bad.log:40 by NonFiniteLoss after 1 line",
        "    found   warning nan at bad.log:50 by NonFiniteLoss",
        "    FALSE   warning LossSpike at bad.log:7 (warm-up, which is benign)",
        "    FALSE   error TrainingStalled at bad.log",
        "",
        "2 logs, 1 of them healthy, 0 of those with a false alarm",
        "recall          66.7 %  2 of 3 found",
        "precision       100 %   4 of 4 alerts true",
        (
            "time to detect  median 1m 15s, longest 1h (1 found by the log's own time);"
            " median 1.5, longest 12 lines (2 found in logs without times)"
        ),
    ]


def test_without_logs_and_delays_the_sums_stand_alone() -> None:
    unknown = OVERALL.model_copy(
        update={"recall": None, "seconds_to_detect": None, "lines_to_detect": None}
    )
    lines = score_text(Scores(overall=unknown, logs=())).splitlines()
    assert (len(lines), lines[1], lines[3]) == (
        4, "recall          -       2 of 3 found", "time to detect  -",
    )  # fmt: skip


def case(decision: str, truth: str, *, right: bool, clear: bool = True) -> DecisionCase:
    return DecisionCase.model_validate(
        {
            "file": f"{decision}.log", "truth": truth, "decision": decision, "rule": "a rule",
            "right": right, "clear": clear,
        }
    )  # fmt: skip


def test_wrong_decisions_stand_before_the_sums() -> None:
    score = DecisionScore(
        logs=4, decided=3, right=1, wrong=2, unknown=1, clear=3, clear_right=1, false_stop=2,
        false_restart=1,
        cases=(
            case("STOP", "STOP", right=True),
            case("RESTART", "STOP", right=False),
            case("UNKNOWN", "GO_ON", right=False, clear=False),
        ),
    )  # fmt: skip
    assert [*decision_score_text(score)] == [
        "RESTART.log: RESTART by a rule, not STOP",
        "UNKNOWN.log: UNKNOWN by a rule, not GO_ON (not clear)",
        "4 logs: 3 decided, 1 of them rightly, 1 UNKNOWN",
        "3 clear ones: 1 rightly, 2 false STOP, 1 false RESTART",
    ]


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB.\n"
STEPS = "".join(f"step {step} loss 2.{step}\n" for step in range(9))


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    for name, text in {"oom": OOM, "oom_too": OOM, "fine": STEPS, "unlisted": STEPS}.items():
        (tmp_path / f"{name}.log").write_text(text)
    return sorted(tmp_path.glob("*.log"))


def truth(folder: Path, **decisions: object) -> Path:
    place = folder / "truth.json"
    entries = [
        {"file": f"{name}.log", **(found if isinstance(found, dict) else {"decision": found})}
        for name, found in decisions.items()
    ]
    place.write_text(json.dumps(entries))
    return place


def test_decisions_are_counted_against_those_of_a_reader(logs: list[Path], tmp_path: Path) -> None:
    read = truth(
        tmp_path,
        oom={"decision": "RESTART", "source": "a list"},
        oom_too={"decision": "RESTART", "also": ["STOP"], "clear": False},
        fine="GO_ON",
        absent="STOP",
    )
    score = score_decisions(asked(*logs), read)
    assert {each.file: (each.decision, each.right, each.clear) for each in score.cases} == {
        "oom.log": ("STOP", False, True),
        "oom_too.log": ("STOP", True, False),
        "fine.log": ("GO_ON", True, True),
    }
    assert (score.logs, score.decided, score.right, score.wrong, score.unknown) == (3, 3, 2, 1, 0)
    assert (score.clear, score.clear_right, score.false_stop, score.false_restart) == (2, 1, 1, 0)


def test_a_list_of_other_logs_is_refused(logs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(TruthError, match="lists none of these logs"):
        score_decisions(asked(*logs), truth(tmp_path, absent="STOP"))


@pytest.mark.parametrize("text", ["", "{}", '[{"file": "a.log", "decision": "PAUSE"}]'])
def test_what_is_no_list_of_decisions_is_refused(
    logs: list[Path], tmp_path: Path, text: str
) -> None:
    place = tmp_path / "truth.json"
    place.write_text(text)
    with pytest.raises(TruthError, match="is no list of decisions"):
        score_decisions(asked(*logs), place)
    with pytest.raises(TruthError, match="is no list of decisions"):
        score_decisions(asked(*logs), tmp_path / "none.json")


def test_a_run_in_which_nothing_failed_goes_on(run: RunView) -> None:
    assert decision_of(run).decision == "GO_ON"
    written = json.loads(decision_json(run))
    assert (written["file"], written["run"], written["attempt"]) == ("a.log", "gpt", 1)
    assert written["decision"] == "GO_ON"
    assert written.keys().isdisjoint({"rule", "if_wrong"})
    assert json.loads(decision_json(run.model_copy(update={"files": ()})))["file"] == ""


@pytest.fixture
def run() -> RunView:
    return RunView(
        name="gpt", framework="", world_size=None, state="running", health="HEALTHY", step=None,
        total_steps=None, epoch=None, progress=None, eta_seconds=None, started_at=None,
        last_progress_at=None, stall_limit_seconds=None, ended_at=None, files=("a.log", "b.log"),
        statistics={}, event_counts={}, skipped_steps=0, settings={},
    )  # fmt: skip
