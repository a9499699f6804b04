"""A quantity that came regularly is missed when it comes no longer, while the steps go on."""

import json
from collections.abc import Iterable, Mapping

import pytest

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.judge.run.rhythm import SILENCE_STEPS

NOW = 1_795_000_000.0
Row = Mapping[str, float | None]


def silent(rows: Iterable[Row], *, at_once: bool) -> dict[str, float]:
    """The quantities of a JSONL file that have come no longer, and for how many steps."""
    monitor, offset, line = Monitor(), 0, 1
    texts = [json.dumps(row) + "\n" for row in rows]
    for text in ["".join(texts)] if at_once else texts:
        data = text.encode()
        monitor.feed(Chunk("train.jsonl", (1, 1, 0), offset=offset, line=line, data=data), NOW)
        offset, line = offset + len(data), line + data.count(b"\n")
    monitor.tick(NOW + 5)
    points = monitor.snapshot().points
    return {dict(each.labels)["name"]: each.value for each in points if each.name == SILENCE_STEPS}


def logged(steps: Iterable[int], **values: float | None) -> list[Row]:
    return [{"step": step, "lr": 0.1, **values} for step in steps]


@pytest.fixture(params=[True, False], ids=["at once", "row by row"])
def at_once(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.parametrize("gone", [{}, {"loss": None}])
def test_a_loss_that_comes_no_longer_is_missed(at_once: bool, gone: dict[str, None]) -> None:
    rows = logged(range(80), loss=2.5) + logged(range(80, 120), **gone)
    assert silent(rows, at_once=at_once) == {"loss": 40}


def test_what_comes_seldom_is_missed_after_longer(at_once: bool) -> None:
    rows = [row for step in range(0, 400, 10) for row in logged([step], loss=2.5)]
    rows += [row for step in range(400) for row in logged([step])]
    rows.sort(key=lambda row: row["step"] or 0)
    assert silent(rows, at_once=at_once) == {}


def test_what_came_a_few_times_is_not_missed(at_once: bool) -> None:
    rows = logged(range(10), loss=2.5, memory=80.0) + logged(range(10, 400), loss=2.5)
    assert silent(rows, at_once=at_once) == {}


def test_a_training_that_begins_anew_has_a_rhythm_of_its_own(at_once: bool) -> None:
    rows = logged(range(80), loss=2.5, aux=1.0) + logged(range(80), loss=2.4)
    assert silent(rows, at_once=at_once) == {}


def test_records_without_steps_are_counted(at_once: bool) -> None:
    rows: list[Row] = [{"loss": 2.5, "lr": 0.1, "epoch": row / 100} for row in range(60)]
    rows += [{"lr": 0.1, "epoch": 0.6 + row / 100} for row in range(30)]
    assert silent(rows, at_once=at_once) == {"loss": 30}


def test_the_rows_of_an_evaluation_are_no_steps(at_once: bool) -> None:
    rows: list[Row] = [{"loss": 2.5, "lr": 0.1, "epoch": row / 100} for row in range(60)]
    rows += [{"eval_loss": 2.5, "epoch": 0.6} for _ in range(15)]
    assert silent(rows, at_once=at_once) == {}
