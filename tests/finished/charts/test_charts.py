"""Charts: nothing that matters is lost in them, and no text becomes markup."""

from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ldlm_monitor.finished.charts import Figure, FigureMark, axis_of, svg
from ldlm_monitor.finished.compare.output import BUCKETS, bucketed

FINITE = st.floats(-1e12, 1e12) | st.floats(allow_nan=False, allow_infinity=False)


def parsed(chart: Figure) -> ElementTree.Element:
    return ElementTree.fromstring(svg(chart))


def titles(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter("title")]


def test_no_spike_is_lost_in_buckets() -> None:
    values = [1.0] * 10_000
    values[7_777] = 50.0
    line = bucketed("loss", range(10_000), values)
    assert len(line.xs) <= BUCKETS
    assert max(line.highs) == 50.0


def test_a_nan_is_a_stroke_with_its_step() -> None:
    line = bucketed("loss", [0, 1, 3], [2.0, 1.9, 1.8], nonfinite=[2])
    assert "not finite at 2" in titles(parsed(Figure(title="loss", lines=[line])))


def test_values_that_are_not_finite_side_by_side_are_one_stretch() -> None:
    """However many: a run may go on with NaN for a million steps."""
    bad = [*range(100_000, 200_000), 250_000]
    line = bucketed("r", range(0, 100_000, 100), [2.0] * 1000, nonfinite=bad)
    drawing = svg(Figure(title="loss", lines=[line, bucketed("s", [0, 250_000], [2.0, 1.0])]))
    assert len(drawing) < 20_000
    root = ElementTree.fromstring(drawing)
    assert "not finite from 100000 to 199999 (100000 times)" in titles(root)
    assert "not finite at 250000" in titles(root)
    assert "not finite (100001 times): r" in [text.text for text in root.iter("text")]


def test_long_names_that_begin_alike_differ_in_the_legend() -> None:
    lines = [bucketed(f"train_20261121_0{n}5842", [0, 1], [1.0, 2.0]) for n in (6, 7, 8)]
    names = [span.text for span in parsed(Figure(title="loss", lines=lines)).iter("tspan")]
    assert len(set(names)) == 3


@example([95811496.0, 5.9e-301])
@given(st.lists(FINITE, min_size=1, max_size=60))
def test_any_values_make_a_drawing_within_its_frame(values: list[float]) -> None:
    root = parsed(Figure(title="x", lines=[bucketed("x", range(len(values)), values)]))
    for path in root.iter("path"):
        places = [
            float(number)
            for pair in (path.get("d") or "").strip("MZ").replace("V", " ").split("L")
            for number in pair.replace("H", " ").split()
        ]
        assert all(0 <= place <= 1000 for place in places)


@example([1.5])
@given(st.lists(FINITE, min_size=1, max_size=30))
def test_ticks_lie_on_the_axis_and_are_few(values: list[float]) -> None:
    axis = axis_of(values)
    assert all(axis.low <= tick <= axis.high for tick in axis.ticks)
    assert len(axis.ticks) <= 12


def test_values_of_many_sizes_get_a_logarithmic_axis() -> None:
    assert axis_of([0.001, 1.0, 40.0]).logarithmic
    assert not axis_of([1.0, 2.0]).logarithmic
    assert not axis_of([-1.0, 100.0]).logarithmic


def test_on_a_logarithmic_axis_equal_ratios_are_equally_far_apart() -> None:
    axis = axis_of([0.001, 1.0, 40.0])
    places = [axis.share(value) for value in (axis.low, 0.01, 0.1, 1.0, axis.high)]
    assert (places[0], places[-1]) == (0.0, 1.0)
    assert places[2] - places[1] == pytest.approx(places[3] - places[2])
    assert places == sorted(set(places))


def test_names_and_marks_are_text() -> None:
    line = bucketed("<b>&", [0, 1], [1.0, 2.0])
    chart = Figure(title='"<i>', lines=[line, line], marks=[FigureMark(1, "</svg><script>", "bad")])
    root = parsed(chart)
    assert not list(root.iter("script"))
    assert "</svg><script>" in titles(root)


@pytest.mark.parametrize("first", [0, 8659, 1_000_000])
def test_no_two_ticks_have_the_same_name(first: int) -> None:
    line = bucketed("loss", range(first, first + 4), [100.0001, 100.0002, 100.0003, 100.0004])
    names: dict[str | None, list[str | None]] = {"end": [], "middle": []}
    for text in parsed(Figure(title="x", lines=[line])).iter("text"):
        if (anchor := text.get("text-anchor")) in names:
            names[anchor].append(text.text)
    for found in names.values():
        assert len(set(found)) == len(found) > 1


def test_ticks_of_steps_are_whole_numbers() -> None:
    assert axis_of([8659, 8661], straight=True).ticks == (8659, 8660, 8661)
