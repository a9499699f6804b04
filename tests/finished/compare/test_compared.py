"""Runs compared with the first of them: the table, the JSON and the charts, as they were read."""

import json
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.base.errors import InputError, UsageError
from ldlm_monitor.finished.charts import Figure, FigureMark, Line, page
from ldlm_monitor.finished.compare.comparison import Comparison, compare
from ldlm_monitor.finished.compare.difference_words import (
    ACCURACY,
    LOSS,
    PACE,
    USUAL,
    Quantity,
    Target,
    signed,
    targets_of,
    verdict,
)
from ldlm_monitor.finished.compare.intervals import Difference
from ldlm_monitor.finished.compare.learned import point_of
from ldlm_monitor.finished.compare.output import bucketed, charts, table, value
from ldlm_monitor.finished.compare.sides import Side, sides_of
from tests.finished.approved import approve
from tests.finished.compare.made import write_run
from tests.finished.replaying import asked


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("runs")
    write_run(made / "base.jsonl", warm_up=10, memory=40.0)
    write_run(made / "faster.jsonl", seed=2, step=0.15, memory=24.0, loss=1.8)
    write_run(made / "larger.jsonl", seed=3, step=0.3, batch=40, warm_up=25)
    write_run(made / "short.jsonl", seed=4, steps=12)
    write_run(made / "untimed.jsonl", seed=5, timed=False)
    late = [{"step": step, "loss": 2.0, "eval_loss": 2.5} for step in range(1000, 1040)]
    late[20]["loss"] = late[30]["loss"] = float("nan")
    (made / "late.jsonl").write_text("".join(json.dumps(row) + "\n" for row in late))
    return made


def sides(folder: Path, *names: str, warm_up: float | None = None) -> list[Side]:
    found: list[str] = []
    made = sides_of([asked(folder / f"{name}.jsonl") for name in names], warm_up, found.append)
    assert found == []
    return made


def rounded(document: Any) -> Any:
    """Numbers with six digits: the last ones of a float differ between machines."""
    if isinstance(document, dict):
        return {key: rounded(item) for key, item in document.items()}
    if isinstance(document, list):
        return [rounded(item) for item in document]
    return float(f"{document:.6g}") if isinstance(document, float) else document


def written(comparison: Comparison, folder: Path) -> str:
    text = comparison.model_dump_json(exclude={"version"}).replace(f"{folder}/", "")
    return json.dumps(rounded(json.loads(text)), indent=1) + "\n"


ALL = ("base", "faster", "larger", "short", "untimed", "late")


def test_a_comparison_has_a_line_for_each_run_under_each_quantity(folder: Path) -> None:
    at = (point_of("150"), point_of("20s"), point_of("5000"))
    found = compare(sides(folder, *ALL), targets=USUAL, at=at, confidence=0.9)
    approve("compared.txt", table(found))
    approve("compared.json", written(found, folder))


def test_two_runs_are_compared_at_steps_and_times_that_are_asked_for(folder: Path) -> None:
    at = (point_of("150"), point_of("20s"), point_of("0.5min"))
    targets = targets_of(["speed=+25%", "memory=-60%", "loss=-10", "accuracy=+1"])
    found = compare(sides(folder, "base", "faster"), targets=targets, at=at)
    approve("compared_two.txt", table(found))
    approve("compared_two.json", written(found, folder))


def test_a_warm_up_may_be_given_as_a_number_of_steps_or_as_a_share(folder: Path) -> None:
    left_out = [
        [side.warm_up_steps for side in sides(folder, "base", "short", warm_up=warm_up)]
        for warm_up in (0, 1, 7, 0.5, 0.33)
    ]
    assert left_out == [[0, 0], [1, 1], [7, 7], [150, 6], [99, 4]]


def test_the_warm_up_is_found_otherwise(folder: Path) -> None:
    found = [side.warm_up_steps for side in sides(folder, "base", "faster", "larger", "short")]
    assert found[0] in (10, 15)
    assert found[1] == 0
    assert 25 <= found[2] <= 35
    assert found[3] == 0


def test_the_curves_of_runs_are_drawn_over_each_other(folder: Path) -> None:
    drawn = charts(sides(folder, "base", "faster", "late"))
    assert [(each.title, each.unit) for each in drawn] == [
        ("loss", ""), ("eval loss", ""), ("samples/s", ""), ("GPU memory allocated", "GiB"),
    ]  # fmt: skip
    assert [[line.name for line in each.lines] for each in drawn] == [
        ["base", "faster", "late"], ["late"], ["base", "faster"], ["base", "faster"],
    ]  # fmt: skip
    memory = drawn[-1].lines[0]
    assert (memory.color, drawn[1].lines[0].color) == (0, 2)
    assert memory.means[0] == pytest.approx(40e9 / 2**30, rel=0.08)


def test_a_drawing_is_as_it_was_approved() -> None:
    one = Line(
        name="one <run>", xs=[0, 10, 20, 30, 40], means=[4.0, 3.0, float("nan"), 2.5, 2.0],
        lows=[3.5, 2.5, float("nan"), 2.0, 2.0], highs=[4.5, 3.5, float("nan"), 3.0, 2.0],
        nonfinite=[20, 21, 39],
    )  # fmt: skip
    two = Line(
        name="two", xs=[0, 40], means=[1e-3, 8.0], lows=[1e-3, 8.0], highs=[1e-3, 8.0], color=6
    )
    marks = (
        FigureMark(5, "it began", "bad"), FigureMark(38, "it ended & stayed", "bad"),
        FigureMark(20, "resumed", "resume"), FigureMark(99, "outside", "bad"),
    )  # fmt: skip
    several = Figure(title="loss", lines=[one, two], unit="nats", marks=marks)
    alone = Figure(title="pace", lines=[Line(name="x", xs=[3], means=[7], lows=[7], highs=[7])])
    spike = Figure(title="spike", lines=[bucketed("x", range(1000), [1.0] * 999 + [2.0])])
    drawing = page([several, alone, spike])
    head, _, rest = drawing.partition("<style>")
    approve("charts.svg", (head + rest.partition("</style>")[2]).replace("><", ">\n<"))


def test_buckets_have_the_mean_and_the_extremes_of_their_values() -> None:
    line = bucketed("loss", range(1000), [float(n % 4) for n in range(1000)], [5], color=3)
    assert len(line.xs) == 334
    assert (line.xs[:3], line.xs[-1]) == ([0, 3, 6], 999)
    assert line.means[:3] == [1.0, pytest.approx(4 / 3), pytest.approx(5 / 3)]
    assert (line.lows[:3], line.highs[:3]) == ([0.0, 0.0, 0.0], [2.0, 3.0, 3.0])
    assert (line.means[-1], line.nonfinite, line.color) == (3.0, [5], 3)
    assert len(bucketed("loss", range(400), [1.0] * 400).xs) == 400
    assert bucketed("loss", [], []).xs == []


@pytest.mark.parametrize(
    ("amount", "unit", "shown"),
    [
        (None, "s", "-"), (2**30, "B", "1.0 GiB"), (90.0, "s", "1m 30s"),
        (1234.567, "/s", "1234.6/s"), (0.5, "", "0.5"),
    ],
)  # fmt: skip
def test_a_value_has_its_unit(amount: float | None, unit: str, shown: str) -> None:
    assert value(amount, unit) == shown


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("500", ("step", 500.0)), ("90s", ("time", 90.0)), ("30min", ("time", 1800.0)),
        (" 2h ", ("time", 7200.0)), ("1.5h", ("time", 5400.0)),
    ],
)  # fmt: skip
def test_a_point_is_a_step_or_a_time(text: str, point: tuple[str, float]) -> None:
    assert point_of(text) == point


@pytest.mark.parametrize("text", ["", "1.5", "5d", "-3", "1e3", "1234567890123"])
def test_what_is_no_point_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--at: cannot read .*; write a step"):
        point_of(text)


def test_targets_are_shares_and_may_be_none() -> None:
    assert targets_of(None) == USUAL
    assert targets_of([]) == targets_of(["none"]) == ()
    assert targets_of(["speed=+30%", "loss=-0.5 %", "a_1=12"]) == (
        Target("speed", 0.3), Target("loss", -0.005), Target("a_1", 0.12),
    )  # fmt: skip


@pytest.mark.parametrize("text", ["speed", "speed=", "=3", "speed=a", "speed=1234567", "Speed=3"])
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--target: cannot read"):
        targets_of([text])


@pytest.mark.parametrize(
    ("change", "low", "high", "result"),
    [
        (0.3, 0.3, 0.5, "reached"), (0.3, 0.29, 0.5, "open"), (0.3, 0.1, 0.29, "missed"),
        (0.3, 0.1, 0.3, "open"), (-0.3, -0.5, -0.3, "reached"), (-0.3, -0.5, -0.29, "open"),
        (-0.3, -0.29, 0.1, "missed"), (-0.3, -0.3, 0.1, "open"), (0.0, 0.0, 0.1, "reached"),
    ],
)  # fmt: skip
def test_a_target_is_reached_where_the_whole_interval_is(
    change: float, low: float, high: float, result: str
) -> None:
    difference = Difference(change=(low + high) / 2, low=low, high=high, p=0.01)
    assert Target("speed", change).judge(difference) == result


def test_speed_and_memory_stand_for_the_best_measure_that_there_is() -> None:
    speed, memory = USUAL
    assert speed.stands_for(["steps_per_second", "step_seconds", "loss"]) == "step_seconds"
    assert speed.stands_for(["samples_per_second", "tokens_per_second"]) == "tokens_per_second"
    assert memory.stands_for(["host_memory_bytes"]) == "host_memory_bytes"
    assert memory.stands_for(["loss"]) == "memory"
    assert Target("loss", 0.1).stands_for(["loss"]) == "loss"


def test_runs_of_the_same_name_are_told_apart(folder: Path) -> None:
    names = [side.name for side in sides(folder, "base", "base", "short")]
    path = str(folder / "base.jsonl")
    assert names == [path, f"{path} (2)", str(folder / "short.jsonl")]


def test_a_file_without_steps_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.log").write_text("hello\n")
    with pytest.raises(InputError, match="has no steps with numbers"):
        sides_of([asked(tmp_path / "empty.log")], None, print)


PACE_WORDS = {each.name: each for each in PACE}


@pytest.mark.parametrize(
    ("quantity", "seen", "word", "said"),
    [
        (LOSS, (-0.1, -0.15, -0.05), "better", "10 % lower [5.0, 15]"),
        (LOSS, (0.1, 0.05, 0.15), "worse", "10 % higher [5.0, 15]"),
        (ACCURACY, (0.1, 0.05, 0.15), "better", "10 % higher [5.0, 15]"),
        (LOSS, (0.0004, 0.0001, 0.0008), "same", "no difference found [0.0, +0.1] %"),
        (LOSS, (0.0005, 0.0001, 0.0009), "worse", "0.1 % higher [0.0, 0.1]"),
        (LOSS, (0.05, 0.0, 0.1), "same", "no difference found [0.0, +10] %"),
        (LOSS, (-0.05, -0.1, 0.0), "same", "no difference found [-10, 0.0] %"),
        (LOSS, (0.02, -0.08, 0.1), "same", "no difference found [-8.0, +10] %"),
        (LOSS, (0.02, -0.1, 0.1), "unclear", "unclear: [-10, +10] %, more steps are needed"),
        (LOSS, (-0.02, -0.1, 0.1), "unclear", "unclear: [-10, +10] %, more steps are needed"),
        (LOSS, (0.4, 0.2, 0.6), "worse", "40 % higher [20, 60]"),
        (PACE_WORDS["step_seconds"], (-0.2, -0.25, -0.1), "better", "25 % faster [11, 33]"),
        (PACE_WORDS["step_seconds"], (0.25, 0.2, 0.3), "worse", "20 % slower [17, 23]"),
        (PACE_WORDS["tokens_per_second"], (0.02, 0.015, 0.03), "better", "2.0 % faster [1.5, 3.0]"),
        (PACE_WORDS["tokens_per_second"], (0.009, 0.008, 0.01), "same", "no difference found"),
    ],
)
def test_a_difference_is_told_in_the_words_of_its_quantity(
    quantity: Quantity, seen: tuple[float, float, float], word: str, said: str
) -> None:
    found = verdict(quantity, Difference(*seen, p=0.01))
    assert (found[0], found[1][: len(said)]) == (word, said)


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0.2345, "+23"), (0.0995, "+10"), (0.0994, "+9.9"), (0.0, "0.0"), (-0.0004, "0.0"),
        (-0.023, "-2.3"), (-0.5, "-50"), (12.0, "+1200"),
    ],
)  # fmt: skip
def test_a_share_is_shown_in_percent_with_its_sign(share: float, shown: str) -> None:
    assert signed(share) == shown
