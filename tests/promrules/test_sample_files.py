"""Files of samples in Prometheus' text format, OpenMetrics, and the notation of its tests."""

from pathlib import Path

import pytest

from ldlm_promrules import sample_files
from ldlm_promrules.errors import SampleError
from ldlm_promrules.sample_files import read_samples
from ldlm_promrules.samples import Labels

Held = dict[Labels, list[tuple[float, float]]]


def held(path: Path, interval: float | None = None) -> Held:
    found = read_samples(path, interval, at=5.0).select((), -1e12, 1e12)
    return {each.labels: [*zip(each.times, each.values, strict=True)] for each in found}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "samples"


def test_times_are_milliseconds_in_the_text_format_and_seconds_in_openmetrics(file: Path) -> None:
    text = '# HELP a A { in a comment.\na{b="x y",c="\\"}"} 2.5e1 1500\nd +Inf\n\n'
    a = (("__name__", "a"), ("b", "x y"), ("c", '"}'))
    file.write_text(text, encoding="utf-8")
    assert held(file) == {a: [(1.5, 25.0)], (("__name__", "d"),): [(5.0, float("inf"))]}
    file.write_text(text + "# EOF\n", encoding="utf-8")
    assert held(file)[a] == [(1500.0, 25.0)]


def test_samples_may_stand_in_any_order_and_have_exemplars(file: Path) -> None:
    lines = ("a 3 30", 'a 1 10.5 # {trace_id="x"} 0.5 10', "a 2 20", "# EOF")
    file.write_text("\n".join(lines), encoding="utf-8")
    assert held(file) == {(("__name__", "a"),): [(10.5, 1.0), (20.0, 2.0), (30.0, 3.0)]}


def test_the_notation_of_tests_has_a_value_each_interval(file: Path) -> None:
    file.write_text('# two\na{b="1"} 0+2x2 _ 9\n\na{b="2"} stale\n', encoding="utf-8")
    assert held(file, 30)[("__name__", "a"), ("b", "1")] == [
        (0.0, 0.0), (30.0, 2.0), (60.0, 4.0), (120.0, 9.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "interval", "message"),
    [
        ("a 1\nb\n", None, "line 2: '' is no value"),
        ("a one\n", None, "line 1: 'one' is no value"),
        ("a 1_0\n", None, "is no value"),
        ("a 1 2 3\n", None, "is no value"),
        ("{ 1\n", None, "is no series"),
        ("a{b=1} 1\n", None, "are no labels"),
        ("a 1 99999999999999999\n", None, "beyond the year 9999"),
        ("a 1 1e999\n", None, "beyond the year 9999"),
        ("a 1+\n", 60.0, "are no values"),
        ("a {{schema:0 sum:1}}\n", 60.0, "native histograms"),
        ("a 1x9\n", 1e11, "beyond the year 9999"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    file: Path, text: str, interval: float | None, message: str
) -> None:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SampleError, match=message) as caught:
        read_samples(file, interval)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_bytes_than_text_are_refused(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(SampleError, match="not UTF-8"):
        read_samples(file)


def test_a_short_line_of_many_values_takes_no_memory(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_files, "MAX_SAMPLES", 1000)
    file.write_text("a 0x899\nb 0+1x999999999999\n", encoding="utf-8")
    with pytest.raises(SampleError, match="line 2: more than 1,000 samples"):
        read_samples(file, 0.001)
