"""What is drawn, without an app: text in cells, bars, charts, the grid of ranks."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style

from ldlm_monitor.base.snapshot import CurveView, RankView, RunView
from ldlm_monitor.screen import ranks
from ldlm_monitor.screen.canvas import smoothed
from ldlm_monitor.screen.chart import Chart, Mark, Viewport, draw_chart
from ldlm_monitor.screen.draw import (
    ASCII,
    UNICODE,
    Glyphs,
    StyledSpan,
    fit,
    is_utf8,
    safe,
    spark,
    style_of,
    width_of,
    wrap,
)
from ldlm_monitor.screen.log_rows import log_title
from ldlm_monitor.screen.widgets import strip_of
from tests.screen.screens import plain_text


def curve(values: Sequence[float], bad: Sequence[int] = ()) -> CurveView:
    steps = range(len(values))
    return CurveView(
        steps=steps, times=[float(s) for s in steps], lows=values, highs=values, means=values,
        nonfinite=bad or [0] * len(values), lines=steps, offsets=steps, origins=[0] * len(values),
        files=("a.log",),
    )  # fmt: skip


def a_run(steps: Sequence[int], **changes: object) -> RunView:
    views = [
        RankView(rank=rank, step=step, seen_at=100.0, phase="all_reduce" if rank == 13 else None)
        for rank, step in enumerate(steps)
    ]
    needed = (name for name, field in RunView.model_fields.items() if field.is_required())
    fields: dict[str, object] = dict.fromkeys(needed)
    fields |= {
        "name": "r", "framework": "x", "state": "running", "health": "HEALTHY", "files": (),
        "statistics": {}, "event_counts": {}, "skipped_steps": 0, "settings": {}, "attempt": 1,
        "ranks": tuple(views), "detected": {}, "world_size": len(views), "reasons": (),
        "checkpoints": (), "nonfinite": (),
    }  # fmt: skip
    return RunView(**{**fields, **changes})


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    shown = safe(text)
    assert all(character.isprintable() for character in shown)
    assert safe(text, ASCII).isascii()


def test_markup_is_text() -> None:
    assert (
        safe("[bold red]x[/] \x1b[31mred\x1b]52;c;aGk=\x07")
        == "[bold red]x[/]  [31mred ]52;c;aGk= "
    )


@given(st.text(st.characters(exclude_categories=["C", "M", "Z"])), st.integers(0, 30))
def test_a_line_takes_exactly_its_cells(text: str, width: int) -> None:
    line = [StyledSpan(text, "dim"), StyledSpan(text)]
    assert cell_len(strip_of(line, width, Style(), dark=True).text) == width
    assert cell_len(fit(text, width)) == width


@given(st.lists(st.text(st.characters(categories=["L"]), min_size=1)), st.integers(2, 20))
def test_wrapped_text_fits_and_holds_every_letter(words: list[str], width: int) -> None:
    lines = wrap(" ".join(words), width)
    assert all(width_of(line) <= width for line in lines)
    kept = "".join(span.text for line in lines for span in line)
    assert kept.replace(" ", "") == "".join(words)


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_a_nan_in_a_sparkline_is_a_mark_and_no_crash(glyphs: Glyphs) -> None:
    line = spark([1.0, math.nan, 2.0, math.inf], [0, 1, 0, 0], 6, glyphs)
    assert "".join(span.text for span in line) == (
        f"  {glyphs.levels[0]}{glyphs.nonfinite}{glyphs.levels[-1]}{glyphs.nonfinite}"
    )


def test_a_chart_shows_a_spike_of_one_step_among_many() -> None:
    values = [1.0] * 5000
    values[2500] = 9.0
    lines = draw_chart(Chart(curves=[(curve(values), "curve")]), 60, 12, UNICODE)
    assert [line[0].text.strip() for line in lines if line[0].text.strip()] == ["8", "6", "4", "2"]
    assert any(0x2800 < ord(c) <= 0x28FF for span in lines[0][1:] for c in span.text)


def test_a_chart_marks_what_is_not_finite_and_what_happened() -> None:
    values = [2.0, 1.0, math.nan, 1.0, 1.0]
    chart = Chart(
        curves=[(curve(values, [0, 0, 1, 0, 0]), "curve")], marks=[Mark(4, "!", "warning")]
    )
    marks = plain_text(draw_chart(chart, 50, 8, ASCII)).splitlines()[-2]
    assert marks.strip() == "X" + " " * (marks.index("!") - marks.index("X") - 1) + "!"


def test_a_logarithmic_axis_has_equal_room_for_each_power() -> None:
    chart = Chart(curves=[(curve([1.0, 100.0, 10000.0]), "curve")], log_axis=True)
    labels = [line[0].text.strip() for line in draw_chart(chart, 40, 13, UNICODE)]
    assert [label for label in labels if label] == ["10000", "100", "1"]


def test_ascii_charts_are_ascii() -> None:
    lines = draw_chart(Chart(curves=[(curve([3.0, 1.0, 2.0]), "curve")]), 40, 8, ASCII)
    assert plain_text(lines).isascii()
    assert {"'", "."} & set(plain_text(lines))


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=False), max_size=50),
    st.integers(10, 80), st.integers(3, 20), st.booleans(), st.sampled_from([0.0, 0.9]),
)  # fmt: skip
def test_any_curve_can_be_drawn(
    values: list[float], width: int, height: int, log_axis: bool, smoothing: float
) -> None:
    values = [max(min(value, 3.4e38), -3.4e38) for value in values]
    chart = Chart(
        curves=[(curve(values), "curve")] if values else [],
        log_axis=log_axis, smoothing=smoothing, cursor=1.0,
    )  # fmt: skip
    lines = draw_chart(chart, width, height, UNICODE)
    assert len(lines) == height
    assert all(width_of(line) <= max(width, 13) for line in lines)


def test_smoothing_has_no_bias_at_the_start() -> None:
    assert smoothed([5.0, 5.0, math.nan, 5.0], 0.9)[:2] == pytest.approx([5.0, 5.0])


def test_a_window_zooms_around_a_step_and_follows_the_end_when_whole() -> None:
    view = Viewport().zoom(0.5, 80.0, 0.0, 100.0)
    assert (view.start, view.end) == (40.0, 90.0)
    assert view.zoom(4.0, 80.0, 0.0, 100.0) == Viewport()
    assert view.pan(1.0, 0.0, 100.0).within(0.0, 200.0) == (50.0, 200.0)


def test_a_gap_far_wider_than_the_window_is_drawn_within_it() -> None:
    """Dot by dot over the whole gap, this would not end."""
    shown = replace(curve([1.0, 3.0, 2.0]), steps=[0, 10, 10**17])
    lines = draw_chart(Chart(curves=[(shown, "curve")], view=Viewport(0, 12)), 29, 6, UNICODE)
    drawn = plain_text(lines).splitlines()[0]
    assert drawn[9 + 17] != " "  # cell 17 of 20 has step 10, and the gap is drawn from it on
    assert len(drawn) == 29


def test_a_silent_rank_is_named_though_another_has_just_logged_less() -> None:
    run = a_run([500, 500, 499])
    late = run.ranks[1].model_copy(update={"seen_at": 10.0})
    run = run.model_copy(update={"ranks": (run.ranks[0], late, run.ranks[2])})
    (verdict, *_) = plain_text(ranks.grid(run, 80, 5, UNICODE)).splitlines()
    assert verdict == " 3 ranks   rank 1 is silent for 1m 30s"


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_64_ranks_are_read_at_120_columns(glyphs: Glyphs) -> None:
    steps = [500] * 64
    steps[13] = 460
    run = a_run(steps)
    shown = plain_text(ranks.grid(run, 120, ranks.needed_height(run, 120), glyphs))
    assert "64 ranks   rank 13 is 40 steps behind, in all_reduce" in shown
    assert f"{glyphs.cells[2]}13 -40" in shown
    words = shown.split()
    assert all(f"{glyphs.cells[0]}{rank}" in words for rank in range(64) if rank != 13)


def test_a_rank_is_named_with_its_place_in_the_mesh() -> None:
    steps = [500, 500, 460]
    run = a_run(steps, failed_rank=1)
    placed = [each.model_copy(update={"mesh": f"pp stage {each.rank}"}) for each in run.ranks]
    (line,) = ranks.verdict(run.model_copy(update={"ranks": tuple(placed)}), UNICODE)
    shown = plain_text([line])
    assert "rank 1 (pp stage 1) failed first" in shown
    assert "rank 2 (pp stage 2) is 40 steps behind" in shown


def test_1024_ranks_are_seen_at_a_glance() -> None:
    steps = [500] * 1024
    steps[700] = 2
    run = a_run(steps, failed_rank=3)
    height = ranks.needed_height(run, 120)
    shown = plain_text(ranks.grid(run, 120, height, UNICODE))
    assert height <= 14
    assert "rank 3 failed first" in shown
    assert shown.count("■") == 1022 + 1  # and the legend


def test_where_not_all_ranks_fit_those_that_need_a_look_do() -> None:
    steps = [500] * 1024
    steps[700] = 2
    shown = plain_text(ranks.grid(a_run(steps), 80, 3, UNICODE))
    assert "700 -498" in shown


def test_the_title_counts_the_files_that_are_merged() -> None:
    files = [f"rank{rank}.log" for rank in range(100)]
    (title,) = log_title(files[0], files, None, 80, UNICODE)
    assert title.text == " 64 of 100 files merged"
    (title,) = log_title(files[0], files[:2], None, 80, UNICODE)
    assert title.text == " 2 files merged"


@pytest.mark.parametrize(
    ("locale", "utf8"),
    [({"LANG": "C.UTF-8"}, True), ({"LANG": "de_DE.utf8", "LC_ALL": "C"}, False), ({}, False)],
)
def test_the_locale_says_whether_there_is_unicode(locale: dict[str, str], utf8: bool) -> None:
    assert is_utf8(locale) is utf8


def test_what_was_found_can_be_read_under_the_cursor() -> None:
    strip = strip_of([StyledSpan("loss", "found")], 4, Style(), dark=True, also="cursor")
    (segment,) = strip
    assert segment.style is not None
    assert segment.style.bgcolor == style_of("found", Style(), dark=True).bgcolor


def test_a_micro_sign_has_an_ascii_form() -> None:
    assert safe("3 \u00b5s, 3 \u03bcs", ASCII) == "3 us, 3 us"


@pytest.mark.parametrize(
    ("behind", "said"), [(0, "all in step"), (1, "all in step"), (2, "2 steps")]
)
def test_a_rank_that_logs_a_moment_later_is_in_step(behind: int, said: str) -> None:
    (line,) = ranks.verdict(a_run([500, 500 - behind]), UNICODE)
    assert said in plain_text([line])


@pytest.mark.parametrize(
    ("lag", "front", "kind"), [(9, 500, 1), (10, 500, 2), (29, 3000, 1), (30, 3000, 2)]
)
def test_far_behind_is_ten_steps_or_a_hundredth_of_all(lag: int, front: int, kind: int) -> None:
    shown = plain_text(ranks.grid(a_run([front, front - lag]), 80, 5, UNICODE))
    assert f"{UNICODE.cells[kind]}1 -{lag}" in shown


def test_ranks_that_report_no_steps_are_counted_and_none_is_in_step_of_an_ill_run() -> None:
    run = a_run([5, 5], world_size=8, failed_rank=7)
    (line,) = ranks.verdict(run, UNICODE)
    assert plain_text([line]) == " 2 ranks of 8 report steps   rank 7 failed first   all in step"
    assert ranks.verdict(a_run([]), UNICODE) == []
    assert ranks.grid(a_run([]), 80, 5, UNICODE) == []
    assert ranks.needed_height(a_run([]), 80) == 0
    (line,) = ranks.verdict(a_run([5, 5], health="READING"), UNICODE)
    assert "in step" not in plain_text([line])


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("", [""]), ("abc", ["abc"]), ("abcdef", ["abc", "def"]), ("abcdefg", ["abc", "def", "g"]),
        ("a b c d", ["a b", "c d"]), ("ab cdef g", ["ab", "cde", "f g"]), ("  ", [""]),
    ],
)  # fmt: skip
def test_text_is_broken_into_full_lines_without_empty_ones(text: str, rows: list[str]) -> None:
    assert ["".join(span.text for span in line) for line in wrap(text, 3)] == rows
