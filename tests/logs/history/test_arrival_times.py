"""Placing the bytes of a log in time."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.chunk import Chunk, ClockMark
from ldlm_monitor.logs.history.arrival_times import (
    Timeline,
    at_once,
    from_bars,
    from_rows,
    from_steps,
)


def marks(*bars: tuple[int, int, float]) -> list[ClockMark]:
    return [ClockMark(offset, step, elapsed) for offset, step, elapsed in bars]


def test_the_last_bar_was_drawn_when_the_file_was_last_written() -> None:
    placed = from_bars(marks((100, 1, 2.0), (200, 2, 3.0), (300, 40, 60.0)), last_write=1000.0)
    assert placed is not None
    timeline, _ = placed
    chunk = Chunk("a.log", (1, 1, 0), 0, 1, b"x" * 400)
    pieces = [(when, piece.offset, len(piece.data)) for when, piece in timeline.split(chunk)]
    assert pieces == [(940, 0, 100), (942, 100, 100), (943, 200, 100), (1000, 300, 100)]


def test_a_bar_that_starts_over_goes_on_from_the_old_clock() -> None:
    placed = from_bars(marks((1, 50, 100.0), (10, 1, 1.0), (20, 2, 5.0)), last_write=205.0)
    assert placed is not None
    timeline, _ = placed
    pieces = timeline.split(Chunk("a.log", (1, 1, 0), 5, 1, b"x" * 25))
    assert [when for when, _ in pieces] == [200, 201, 205]


def test_bars_of_an_evaluation_come_after_the_bar_before_it_by_their_elapsed_time() -> None:
    """Up to the next training bar; a second evaluation begins where the first one ended."""
    bars = marks((10, 50, 100.0), (20, 5, 0.0), (30, 10, 30.0), (40, 5, 0.0), (50, 10, 300.0))
    inner = [replace(mark, inner=mark.offset > 10) for mark in bars]
    placed = from_bars([*inner, *marks((60, 51, 220.0))], last_write=1220.0)
    assert placed is not None
    timeline, clock = placed
    pieces = timeline.split(Chunk("a.log", (1, 1, 0), 10, 1, b"x" * 60))
    assert [(when, piece.offset) for when, piece in pieces] == [
        *((1100, 10), (1100 + 1 / 2, 20), (1130, 30), (1130 + 1 / 2, 40)),
        *((1220, 50), (1220, 60)),
    ]
    assert clock.when(51) == 1220


def test_bars_of_an_evaluation_alone_give_no_times_of_the_training() -> None:
    assert from_bars([ClockMark(0, 1, 3.0, inner=True)], last_write=1.0) is None


def test_a_step_log_borrows_the_clock_of_its_runs_bars() -> None:
    placed = from_bars(marks((0, 0, 0.0), (50, 202, 14.0), (90, 203, 104.0)), last_write=1104.0)
    assert placed is not None
    _, clock = placed
    rows = [ClockMark(offset, step, None) for offset, step in ((0, 0), (10, 202), (20, 203))]
    timeline = from_steps(rows, clock)
    pieces = timeline.split(Chunk("t.jsonl", (1, 2, 0), 0, 1, b"x" * 30))
    assert [(when, piece.offset) for when, piece in pieces] == [(1000, 0), (1014, 10), (1104, 20)]


def test_rows_of_a_resumed_run_come_with_the_bars_of_the_same_life() -> None:
    bars = marks((0, 1, 1.0), (30, 9, 9.0), (40, 6, 1.0), (90, 11, 6.0))
    placed = from_bars(bars, last_write=1015.0)
    assert placed is not None
    _, clock = placed
    again = [ClockMark(10 * row, step, None) for row, step in enumerate((1, 9, 6, 11))]
    pieces = from_steps(again, clock).split(Chunk("t.jsonl", (1, 2, 0), 0, 1, b"x" * 40))
    assert [(when, piece.offset) for when, piece in pieces] == [
        *((1001, 0), (1009, 10), (1010, 20), (1015, 30)),
    ]
    unknown = [ClockMark(10 * row, step, None) for row, step in enumerate((1, 9, 6, 9, 6, 11))]
    pieces = from_steps(unknown, clock).split(Chunk("t.jsonl", (1, 2, 0), 0, 1, b"x" * 60))
    assert [when for when, _ in pieces] == [1001, 1009, 1015], "more falls than the bars had"


def test_rows_without_any_time_keep_their_order_and_say_that_it_is_no_time() -> None:
    timeline = from_rows([0, 10, 20], last_write=500.0)
    assert not timeline.timed
    pieces = timeline.split(Chunk("t.jsonl", (1, 2, 0), 0, 1, b"x" * 30))
    assert [when for when, _ in pieces] == [498, 499, 500]


def test_a_log_without_bars_is_not_placed_by_them() -> None:
    assert from_bars([ClockMark(0, 1, None)], last_write=1.0) is None


@pytest.mark.parametrize("final", [True, False])
def test_only_the_last_piece_of_a_final_chunk_is_final(final: bool) -> None:
    chunk = Chunk("a.log", (1, 1, 0), 0, 1, b"abcdef", final=final)
    pieces = [piece for _, piece in Timeline([0, 3], [1.0, 2.0]).split(chunk)]
    assert [piece.final for piece in pieces] == [False, final]


def test_an_empty_final_chunk_still_arrives() -> None:
    chunk = Chunk("a.log", (1, 1, 0), 10, 3, b"", final=True)
    assert [piece.final for _, piece in at_once(1.0).split(chunk)] == [True]


@given(
    st.binary(max_size=60),
    st.lists(st.integers(0, 70), max_size=10, unique=True),
    st.integers(0, 30),
)
def test_pieces_are_the_chunk_with_offsets_and_lines_right(
    data: bytes, starts: list[int], offset: int
) -> None:
    offsets = sorted({0, *starts})
    timeline = Timeline(offsets, [float(start) for start in offsets])
    chunk = Chunk("a.log", (1, 1, 0), offset, 5, data)
    pieces = list(timeline.split(chunk))
    assert b"".join(piece.data for _, piece in pieces) == data
    assert [when for when, _ in pieces] == sorted(when for when, _ in pieces)
    for _, piece in pieces:
        before = data[: piece.offset - offset]
        assert piece.line == 5 + before.count(b"\n")


def test_a_piece_counts_its_own_newlines_not_those_of_the_chunk_it_is_cut_from() -> None:
    chunk = Chunk("a.log", (1, 1, 0), 0, 1, b"a\nb\nc\n")
    assert chunk.newlines == 3
    pieces = [piece for _, piece in Timeline([0, 2], [1.0, 2.0]).split(chunk)]
    assert [piece.newlines for piece in pieces] == [1, 2]


def test_times_that_are_moved_with_a_slow_clock_are_guesses_as_before() -> None:
    moved = Timeline([0, 10], [100.0, 101.0], dated=True, guess="from its last write").moved(60.0)
    assert (moved.end, moved.dated, moved.guess) == (161.0, True, "from its last write")
