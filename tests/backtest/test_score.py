"""What counts as found, missed and false, and how long it took."""

from dataclasses import replace
from typing import Any

import pytest

from ldlm_monitor.analysis.backtest.score import Alarm, EventResult, LogScore, overall, score
from ldlm_monitor.analysis.backtest.truth import TrueEvent, Truth

NAN = TrueEvent(kind="nan", line_number=20, severity="failure", quote="loss: nan")
OOM = TrueEvent(kind="oom_cuda", line_number=133, severity="failure", quote="CUDA out of memory")
SPIKE = TrueEvent(kind="loss_spike", line_number=40, severity="warning")
NONFINITE = Alarm("NonFiniteLoss", "critical", 20, "loss: nan", time=100.0)
MEMORY = Alarm("OutOfMemory", "critical", 13, "OutOfMemoryError: CUDA out of memory", below=True)
CRASHED = replace(MEMORY, alert="TrainingCrashed")


def judge(events: list[TrueEvent], *alarms: Alarm, times: Any = None) -> LogScore:
    truth = Truth.model_validate({"file": "a.log", "truth": {"events": events}})
    return score(truth, alarms, times or {})


def told(result: LogScore) -> list[str | None]:
    return [finding.alarm and finding.alarm.alert for finding in result.findings]


def test_an_alert_at_the_line_has_found_the_failure() -> None:
    result = judge([NAN], NONFINITE, times={NAN: 97.5})
    assert result.findings == (EventResult(NAN, NONFINITE, seconds=2.5, lines=0),)
    assert (result.counts.recall, result.counts.precision) == (1.0, 1.0)


def test_a_later_alert_has_found_it_too_and_its_delay_is_told_in_lines_without_a_clock() -> None:
    late = replace(NONFINITE, line=26, time=None)
    assert judge([NAN], late, times={NAN: 97.5}).findings == (EventResult(NAN, late, None, 6),)
    assert judge([NAN], replace(late, time=100.0)).findings[0].seconds is None


def test_an_alert_before_the_failure_is_false_and_has_not_found_it() -> None:
    early = replace(NONFINITE, line=19)
    result = judge([NAN], early)
    assert (told(result), result.false_alarms) == ([None], (early,))
    assert (result.counts.recall, result.counts.precision) == (0.0, 0.0)


def test_an_alert_after_the_last_line_that_counts_is_false() -> None:
    event = NAN.model_copy(update={"last_line": 25})
    assert told(judge([event], replace(NONFINITE, line=25))) == ["NonFiniteLoss"]
    late = judge([event], replace(NONFINITE, line=26))
    assert (told(late), len(late.false_alarms)) == ([None], 1)


def test_an_alert_of_another_kind_is_false() -> None:
    result = judge([NAN], MEMORY, replace(NONFINITE, alert="GradientNormHigh", severity="warning"))
    assert told(result) == [None]
    assert [alarm.alert for alarm in result.false_alarms] == ["OutOfMemory", "GradientNormHigh"]


def test_a_traceback_is_named_by_its_first_line_and_known_by_the_quote_below() -> None:
    result = judge([OOM], MEMORY)
    assert (told(result), result.findings[0].lines) == (["OutOfMemory"], 0)
    assert told(judge([OOM], replace(MEMORY, below=False))) == [None]
    assert told(judge([OOM], replace(MEMORY, text="OutOfMemoryError: on the host"))) == [None]


def test_the_crash_that_a_failure_causes_is_no_false_alarm_and_does_not_detect_its_cause() -> None:
    result = judge([OOM], CRASHED)
    assert (told(result), result.false_alarms) == ([None], ())
    assert judge([NAN], replace(CRASHED, line=30, below=False)).false_alarms != ()


def test_a_true_alert_that_still_fires_has_found_what_comes_next() -> None:
    again = NAN.model_copy(update={"line_number": 50})
    assert told(judge([NAN, again], NONFINITE)) == ["NonFiniteLoss", "NonFiniteLoss"]
    assert judge([NAN, again], NONFINITE).findings[1].lines == 0
    assert told(judge([NAN, again], replace(NONFINITE, until_line=49))) == ["NonFiniteLoss", None]
    false = replace(NONFINITE, line=5)
    assert told(judge([NAN, again], false)) == [None, None]


def test_a_warning_is_found_by_a_warning_and_an_error_is_too_loud_for_it() -> None:
    spike = Alarm("LossSpike", "warning", 41)
    assert told(judge([SPIKE], spike)) == ["LossSpike"]
    loud = Alarm("LossDiverging", "error", 41)
    assert (told(judge([SPIKE], loud)), judge([SPIKE], loud).false_alarms) == ([None], (loud,))
    grave = SPIKE.model_copy(update={"severity": "failure"})
    assert told(judge([grave], loud)) == ["LossDiverging"]


def test_in_a_healthy_log_every_alert_is_false_and_the_harmless_thing_behind_it_is_named() -> None:
    word = TrueEvent(kind="scary_word", line_number=20, severity="benign")
    result = judge([word], NONFINITE)
    assert (result.healthy, result.false_alarms) == (True, (NONFINITE,))
    assert result.benign == {20: "scary_word"}
    assert (result.counts.recall, result.counts.precision) == (None, 0.0)
    assert judge([word]).counts.precision is None


def test_a_kind_may_be_the_name_of_an_alert() -> None:
    event = TrueEvent(kind="TrainingStalled", line_number=9, severity="failure")
    assert told(judge([event], Alarm("TrainingStalled", "critical", 9))) == ["TrainingStalled"]


def test_an_alert_of_ones_own_counts_at_the_lines_of_the_event_alone() -> None:
    mine = replace(NONFINITE, alert="MyNan")
    assert told(judge([NAN], mine)) == ["MyNan"]
    assert told(judge([NAN], replace(mine, line=21))) == [None]
    wide = NAN.model_copy(update={"last_line": 22})
    assert told(judge([wide], replace(mine, line=21))) == ["MyNan"]


def test_an_alert_without_a_line_is_known_by_its_name() -> None:
    result = judge([NAN], replace(NONFINITE, line=None))
    assert (told(result), result.findings[0].lines) == (["NonFiniteLoss"], None)


def test_all_logs_together_count_each_event_and_each_alert_once() -> None:
    logs = [
        judge([NAN, SPIKE], NONFINITE, times={NAN: 99.0}),
        judge([OOM], MEMORY, CRASHED, replace(NONFINITE, line=1)),
        judge([]),
        judge([], NONFINITE),
    ]
    total = overall(logs)
    assert (total.logs, total.healthy, total.healthy_with_false_alarms) == (4, 2, 1)
    assert total.counts.recall == pytest.approx(2 / 3)
    assert total.counts.precision == pytest.approx(3 / 5)
    assert total.by_severity == {"failure": (2, 2), "warning": (0, 1)}
    assert total.by_kind == {"loss_spike": (0, 1), "nan": (1, 1), "oom_cuda": (1, 1)}
    assert total.seconds is not None
    assert (total.seconds.count, total.seconds.median, total.seconds.longest) == (1, 1.0, 1.0)
    assert total.lines is not None
    assert (total.lines.count, total.lines.longest) == (1, 0)


def test_nothing_expected_and_nothing_rung_has_no_ratio() -> None:
    total = overall([judge([])])
    assert (total.counts.recall, total.counts.precision) == (None, None)
    assert (total.seconds, total.lines) == (None, None)
