"""A quantity that came regularly is missed when it comes no longer, while the steps go on."""

import json
from collections.abc import Iterable, Mapping

import pytest

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.names import METRIC_SILENCE
from ldlm_monitor.judge.core.monitor import Monitor

NOW = 1_795_000_000.0
Row = Mapping[str, float | None]


def feed(rows: Iterable[Row], *, at_once: bool) -> Monitor:
    monitor, offset, line = Monitor(), 0, 1
    texts = [json.dumps(row) + "\n" for row in rows]
    for text in ["".join(texts)] if at_once else texts:
        data = text.encode()
        monitor.feed(Chunk("train.jsonl", (1, 1, 0), offset=offset, line=line, data=data), NOW)
        offset, line = offset + len(data), line + data.count(b"\n")
    monitor.tick(NOW + 5)
    return monitor


def silent(rows: Iterable[Row], *, at_once: bool) -> dict[str, float]:
    """The quantities of a JSONL file that have come no longer, and in how many records."""
    points = feed(rows, at_once=at_once).snapshot().points
    return {dict(each.labels)["name"]: each.value for each in points if each.name == METRIC_SILENCE}


def logged(steps: Iterable[int], **values: float | None) -> list[Row]:
    return [{"step": step, "lr": 0.1 + step / 1e4, **values} for step in steps]


@pytest.fixture(params=[True, False], ids=["at once", "row by row"])
def at_once(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.parametrize("gone", [{}, {"loss": None}])
def test_a_loss_that_comes_no_longer_is_missed(at_once: bool, gone: dict[str, None]) -> None:
    rows = logged(range(80), loss=2.5) + logged(range(80, 200), **gone)
    assert silent(rows, at_once=at_once) == {"loss": 120}


def test_the_alert_cites_the_first_line_without_it() -> None:
    rows = logged(range(80), loss=2.5) + logged(range(80, 200))
    alerts = {each.name: each for each in feed(rows, at_once=True).alerts()}
    position = alerts["MetricMissing"].position
    assert position is not None
    assert (position.line, alerts["MetricMissing"].labels["severity"]) == (81, "critical")


def test_the_first_line_is_that_of_the_present_silence() -> None:
    rows = logged(range(80), loss=2.5) + logged([80]) + logged([81], loss=2.5)
    alerts = {
        each.name: each for each in feed(rows + logged(range(82, 300)), at_once=True).alerts()
    }
    position = alerts["MetricMissing"].position
    assert position is not None
    assert position.line == 83


def test_it_is_no_longer_missed_once_it_comes() -> None:
    rows = logged(range(80), loss=2.5) + logged(range(80, 200)) + logged([200], loss=2.5)
    timed = [{"time": NOW - 300 + (row["step"] or 0), **row} for row in rows]
    assert silent(timed, at_once=False) == {"loss": 0}


def test_what_comes_seldom_is_missed_after_longer(at_once: bool) -> None:
    rows = [row for step in range(400) for row in logged([step], **seldom(step))]
    assert silent(rows, at_once=at_once) == {}
    assert silent(rows + logged(range(400, 570)), at_once=at_once) == {}
    assert silent(rows + logged(range(400, 600)), at_once=at_once) == {"loss": 209}


def seldom(step: int) -> dict[str, float]:
    return {} if step % 10 else {"loss": 2.5}


def test_what_came_a_few_times_is_not_missed(at_once: bool) -> None:
    rows = logged(range(10), loss=2.5, grad_norm=1.0) + logged(range(10, 400), loss=2.5)
    assert silent(rows, at_once=at_once) == {}


@pytest.mark.parametrize(
    "other",
    [
        [{"step": step, "eval_loss": 2.5} for step in range(80, 400)],
        [{"eval_loss": 2.5, "epoch": 0.6} for _ in range(300)],
        logged(range(80, 400), loss_generator=2.5, loss_critic=1.5),
        [{"step": step, "gpu_watts": 300.0} for step in range(80, 400)],
    ],
    ids=["an evaluation with steps", "one without", "another loss", "other records"],
)
def test_rows_of_another_phase_miss_nothing(at_once: bool, other: list[Row]) -> None:
    assert silent(logged(range(80), loss=2.5) + other, at_once=at_once) == {}


def test_records_without_steps_are_counted(at_once: bool) -> None:
    rows: list[Row] = [{"loss": 2.5, "lr": row / 1e4, "epoch": row / 100} for row in range(60)]
    rows += [{"lr": row / 1e4, "epoch": row / 100} for row in range(60, 200)]
    assert silent(rows, at_once=at_once) == {"loss": 140}
