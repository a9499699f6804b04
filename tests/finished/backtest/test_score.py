"""What counts as found, missed and false, and how long it took."""

from dataclasses import replace
from typing import Any

import pytest

from ldlm_monitor.finished.backtest.score import Alarm, Delay, LogScore, overall, score
from ldlm_monitor.finished.backtest.truth import TrueEvent, Truth

NAN = TrueEvent(kind="nan", line_number=20, severity="failure", quote="loss: nan")
OOM = TrueEvent(kind="oom_cuda", line_number=133, severity="failure", quote="CUDA out of memory")
SPIKE = TrueEvent(kind="loss_spike", line_number=40, severity="warning")
NONFINITE = Alarm("NonFiniteLoss", "critical", 20, "loss: nan", time=100.0)
MEMORY = Alarm("OutOfMemory", "critical", 13, "OutOfMemoryError: CUDA out of memory", below=True)
CRASHED = replace(MEMORY, alert="TrainingCrashed")


def judge(events: list[TrueEvent], *alarms: Alarm, times: Any = None) -> LogScore:
    truth = Truth.model_validate({"file": "a.log", "truth": {"events": events}})
    return score(truth, alarms, times or {})


def reported(result: LogScore) -> list[str | None]:
    return [event.alert for event in result.expected_events]


def false(result: LogScore) -> list[tuple[str, int | None]]:
    return [(alarm.alert, alarm.line) for alarm in result.false_alarms]


def test_an_alert_at_the_line_has_found_the_failure() -> None:
    result = judge([NAN], NONFINITE, times={NAN: 97.5})
    (event,) = result.expected_events
    assert (event.alert, event.alert_line) == ("NonFiniteLoss", 20)
    assert (event.seconds_to_detect, event.lines_to_detect) == (2.5, 0)
    assert (result.recall, result.precision) == (1.0, 1.0)


def test_a_later_alert_has_found_it_too_and_its_delay_is_told_in_lines_without_a_clock() -> None:
    late = replace(NONFINITE, line=26, time=None)
    (event,) = judge([NAN], late, times={NAN: 97.5}).expected_events
    assert (event.alert, event.seconds_to_detect, event.lines_to_detect) == (
        *("NonFiniteLoss", None, 6),
    )
    assert judge([NAN], replace(late, time=100.0)).expected_events[0].seconds_to_detect is None


def test_an_alert_before_the_failure_is_false_and_has_not_found_it() -> None:
    early = replace(NONFINITE, line=19)
    result = judge([NAN], early)
    assert (reported(result), false(result)) == ([None], [("NonFiniteLoss", 19)])
    assert (result.recall, result.precision) == (0.0, 0.0)


def test_an_alert_after_the_last_line_that_counts_is_false() -> None:
    event = NAN.model_copy(update={"last_line": 25})
    assert reported(judge([event], replace(NONFINITE, line=25))) == ["NonFiniteLoss"]
    late = judge([event], replace(NONFINITE, line=26))
    assert (reported(late), len(late.false_alarms)) == ([None], 1)


def test_an_alert_of_another_kind_is_false() -> None:
    result = judge([NAN], MEMORY, replace(NONFINITE, alert="GradientNormHigh", severity="warning"))
    assert reported(result) == [None]
    assert [alarm.alert for alarm in result.false_alarms] == ["OutOfMemory", "GradientNormHigh"]


def test_a_traceback_is_named_by_its_first_line_and_known_by_the_quote_below() -> None:
    result = judge([OOM], MEMORY)
    assert (reported(result), result.expected_events[0].lines_to_detect) == (["OutOfMemory"], 0)
    assert reported(judge([OOM], replace(MEMORY, below=False))) == [None]
    assert reported(judge([OOM], replace(MEMORY, text="OutOfMemoryError: on the host"))) == [None]


def test_the_crash_that_a_failure_causes_is_no_false_alarm_and_does_not_detect_its_cause() -> None:
    result = judge([OOM], CRASHED)
    assert (reported(result), result.false_alarms) == ([None], ())
    assert judge([NAN], replace(CRASHED, line=30, below=False)).false_alarms != ()


def test_a_true_alert_that_still_fires_has_found_what_comes_next() -> None:
    again = NAN.model_copy(update={"line_number": 50})
    assert reported(judge([NAN, again], NONFINITE)) == ["NonFiniteLoss", "NonFiniteLoss"]
    assert judge([NAN, again], NONFINITE).expected_events[1].lines_to_detect == 0
    assert reported(judge([NAN, again], replace(NONFINITE, until_line=49))) == [
        "NonFiniteLoss",
        None,
    ]
    early = replace(NONFINITE, line=5)
    assert reported(judge([NAN, again], early)) == [None, None]


def test_a_warning_is_found_by_a_warning_and_an_error_is_too_loud_for_it() -> None:
    spike = Alarm("LossSpike", "warning", 41)
    assert reported(judge([SPIKE], spike)) == ["LossSpike"]
    loud = Alarm("LossDiverging", "error", 41)
    assert reported(judge([SPIKE], loud)) == [None]
    assert false(judge([SPIKE], loud)) == [("LossDiverging", 41)]
    grave = SPIKE.model_copy(update={"severity": "failure"})
    assert reported(judge([grave], loud)) == ["LossDiverging"]


def test_in_a_healthy_log_every_alert_is_false_and_the_harmless_thing_behind_it_is_named() -> None:
    word = TrueEvent(kind="scary_word", line_number=20, severity="benign")
    result = judge([word], NONFINITE)
    assert (result.healthy, false(result)) == (True, [("NonFiniteLoss", 20)])
    assert result.false_alarms[0].benign == "scary_word"
    assert (result.recall, result.precision) == (None, 0.0)
    assert judge([word]).precision is None


def test_a_kind_may_be_the_name_of_an_alert() -> None:
    event = TrueEvent(kind="TrainingStalled", line_number=9, severity="failure")
    assert reported(judge([event], Alarm("TrainingStalled", "critical", 9))) == ["TrainingStalled"]


def test_an_alert_of_ones_own_counts_at_the_lines_of_the_event_alone() -> None:
    mine = replace(NONFINITE, alert="MyNan")
    assert reported(judge([NAN], mine)) == ["MyNan"]
    assert reported(judge([NAN], replace(mine, line=21))) == [None]
    wide = NAN.model_copy(update={"last_line": 22})
    assert reported(judge([wide], replace(mine, line=21))) == ["MyNan"]


def test_an_alert_without_a_line_is_known_by_its_name() -> None:
    result = judge([NAN], replace(NONFINITE, line=None))
    assert (reported(result), result.expected_events[0].lines_to_detect) == (
        ["NonFiniteLoss"],
        None,
    )


def test_all_logs_together_count_each_event_and_each_alert_once() -> None:
    logs = [
        judge([NAN, SPIKE], NONFINITE, times={NAN: 99.0}),
        judge([OOM], MEMORY, CRASHED, replace(NONFINITE, line=1)),
        judge([]),
        judge([], NONFINITE),
    ]
    total = overall(logs).overall
    assert (total.logs, total.healthy, total.healthy_with_false_alarms) == (4, 2, 1)
    assert total.recall == pytest.approx(2 / 3)
    assert total.precision == pytest.approx(3 / 5)
    assert (total.found, total.expected) == (2, 3)
    assert total.seconds_to_detect == Delay(count=1, median=1.0, longest=1.0)
    assert total.lines_to_detect == Delay(count=1, median=0, longest=0)


def test_nothing_expected_and_nothing_rung_has_no_ratio() -> None:
    total = overall([judge([])]).overall
    assert (total.recall, total.precision) == (None, None)
    assert (total.seconds_to_detect, total.lines_to_detect) == (None, None)
