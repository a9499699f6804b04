"""The public names, on which users' rules and dashboards rely."""

import pytest

from ldlm_monitor.base.names import (
    BASE_METRICS,
    CANONICAL_VALUES,
    DELIVERY_DURATION,
    ENDED_STATES,
    EVALUATION_DURATION,
    PAST_TIMES,
    RATES,
    RUN_STATES,
    SEVERITIES,
    STEP_DURATION,
    Metric,
    created,
    severity_rank,
)


def test_a_worse_severity_has_a_higher_rank_and_an_unknown_one_the_lowest() -> None:
    named = ("debug", "info", "warning", "error", "critical")
    assert [severity_rank(each) for each in named] == [-1, 0, 1, 2, 3]
    assert named[1:] == SEVERITIES


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ldlm_train_loss", "gauge"), ("ldlm_events_total", "counter"),
        ("ldlm_train_step_duration_seconds", "histogram"), ("ldlm_train_step_seconds", "gauge"),
    ],
)  # fmt: skip
def test_the_name_of_a_metric_says_its_type(name: str, kind: str) -> None:
    assert BASE_METRICS[name].kind == kind
    assert Metric(name, "").kind == kind


def test_durations_alone_are_histograms() -> None:
    histograms = {name for name, metric in BASE_METRICS.items() if metric.kind == "histogram"}
    assert histograms == {STEP_DURATION, EVALUATION_DURATION, DELIVERY_DURATION}


def test_each_metric_is_found_by_its_name_with_help_and_labels() -> None:
    for name, metric in BASE_METRICS.items():
        assert metric.name == name
        assert metric.help.endswith(".")
    assert BASE_METRICS["ldlm_events_total"].labels == ("kind", "severity")
    assert BASE_METRICS["ldlm_train_loss"].labels == ()
    assert BASE_METRICS["ldlm_alerts"].labels == ("alertname", "alertstate", "severity")


def test_gauges_of_past_times_are_exported() -> None:
    assert BASE_METRICS.keys() >= PAST_TIMES


def test_the_series_of_when_a_counter_began_is_named_after_it() -> None:
    assert created("ldlm_run_restarts_total") == "ldlm_run_restarts_created"
    assert created("ldlm_x_duration_seconds") == "ldlm_x_duration_seconds_created"


def test_the_ended_states_are_the_last_of_all() -> None:
    assert {*RUN_STATES[-4:]} == ENDED_STATES
    assert ENDED_STATES.isdisjoint({"starting", "running", "stalled"})


def test_rates_are_quantities_that_logs_are_translated_to() -> None:
    assert CANONICAL_VALUES.issuperset(RATES)
