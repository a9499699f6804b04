"""A quantity that came regularly is missed when it comes no longer, while the steps go on."""

import json
from collections.abc import Iterable, Mapping

import pytest

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.names import METRIC_LAPSE, METRIC_SILENCE
from ldlm_monitor.judge.core.monitor import Monitor

NOW = 1_795_000_000.0
Row = Mapping[str, float | str | None]


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


@pytest.mark.parametrize("gone", [None, "n/a"])
def test_a_loss_that_stood_alone_is_missed_by_the_rows_that_name_it(
    at_once: bool, gone: str | None
) -> None:
    rows = [{"step": step, "loss": 2.5 if step < 80 else gone} for step in range(200)]
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


NAN = float("nan")


def lapsed(rows: Iterable[Row], *, at_once: bool) -> dict[str, float]:
    """The quantities that are no numbers any more, and in how many records."""
    points = feed(rows, at_once=at_once).snapshot().points
    found = {dict(each.labels)["name"]: each.value for each in points if each.name == METRIC_LAPSE}
    return {name: records for name, records in found.items() if records}


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (logged(range(40), kl=0.1) + logged(range(40, 70), kl=NAN), {"kl": 30}),
        (logged(range(40), kl=0.1) + logged(range(40, 59), kl=NAN), {}),
        (logged(range(40), kl=0.1) + logged(range(40, 70), kl=NAN) + logged([70], kl=0.1), {}),
        (logged(range(70), kl=NAN), {}),
        ([row for at in range(200) for row in logged([at], kl=0.1 if at % 2 else NAN)], {}),
        (
            [row for at in range(90) for row in logged([at], kl=0.1 if at % 9 else NAN)]
            + logged(range(90, 110), kl=NAN),
            {"kl": 20},
        ),
    ],
    ids=["since a step", "for few", "for a time", "always", "each second", "seldom before"],
)
def test_a_value_that_is_no_number_any_more(
    at_once: bool, rows: list[Row], found: dict[str, float]
) -> None:
    assert lapsed(rows, at_once=at_once) == found


def test_a_loss_that_is_no_number_has_its_own_alert(at_once: bool) -> None:
    rows = logged(range(40), loss=2.5, grad_norm=1.0) + logged(
        range(40, 90), loss=NAN, grad_norm=NAN
    )
    assert lapsed(rows, at_once=at_once) == {}


@pytest.mark.parametrize(
    ("shares", "count"), [([0.0] * 40, 0), ([0.0, 0.25, 0.0], 1), ([0.0, 0.25, 0.25], 1)]
)
def test_a_share_of_losses_that_were_no_numbers_counts_as_such(
    at_once: bool, shares: list[float], count: int
) -> None:
    rows = [
        row for at, share in enumerate(shares) for row in logged([at], frac_non_finite_loss=share)
    ]
    points = feed(rows, at_once=at_once).snapshot().points
    counted = [each for each in points if each.name == "ldlm_train_nonfinite_total"]
    assert sum(each.value for each in counted if dict(each.labels)["quantity"] == "loss") == count
