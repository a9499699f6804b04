"""A search passes over what is hidden, and a curve is cut without losing a spike."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from ldlm_monitor.base.queries import LogLine, LogQuery, LogSlice, part_of, visible
from ldlm_monitor.base.records import MAX_COUNT
from ldlm_monitor.base.snapshot import CurveView, Snapshot
from ldlm_monitor.base.text.sanitize import redact


class Lines:
    """A source with one log, whose records it searches as they are."""

    name = problem = ""

    def __init__(self, *texts: str) -> None:
        self.asked = 0
        offset, self.lines = 0, list[LogLine]()
        for number, text in enumerate(texts, 1):
            end = offset + len(text) + 1
            self.lines.append(LogLine(offset=offset, end=end, line=number, text=text))
            offset = end
        self.size = offset

    def log(self, query: LogQuery) -> LogSlice:
        self.asked += 1
        at = query.at if query.at is not None else self.size
        if not query.find:
            shown = [each for each in self.lines if each.offset >= at][: query.after]
            return self.part(shown)
        hits = [
            each
            for each in (reversed(self.lines) if query.backwards else self.lines)
            if query.find.lower() in each.text.lower()
            and (each.offset < at if query.backwards else each.offset >= at)
        ]
        if not hits:
            return LogSlice(path="a.log", size=self.size, start=at, end=self.size, lines=())
        return self.part(hits[:1], hits[0].offset)

    def part(self, lines: list[LogLine], found: int | None = None) -> LogSlice:
        return LogSlice(
            path="a.log",
            size=self.size,
            start=lines[0].offset,
            end=lines[-1].end,
            lines=tuple(lines),
            found=found,
            matches=(1, len(self.lines)),
        )

    def snapshot(self) -> Snapshot:
        raise NotImplementedError

    def series(self, run: str, quantity: str, start: object, end: object, points: int) -> None: ...

    def held_back(self) -> dict[str, list[dict[str, object]]]:
        return {}

    def send(self, what: object, document: object) -> None: ...


def found_in(source: Lines, find: str, at: int = 0, *, backwards: bool = False) -> LogSlice:
    query = LogQuery(path="a.log", at=at, after=1, find=find, backwards=backwards)
    return visible(source, query, redact)


LOG = Lines("loss 2.5", "password=hunter2", "the loss of hunter2 is 3", "password=hunter2")


def test_a_search_finds_what_is_shown() -> None:
    found = found_in(LOG, "LOSS")
    assert found.found == 0
    assert [line.text for line in found.lines] == ["loss 2.5"]


def test_a_search_passes_over_a_secret() -> None:
    assert found_in(LOG, "hunter2").found == LOG.lines[2].offset


def test_a_search_backwards_passes_over_a_secret_too() -> None:
    assert found_in(LOG, "hunter2", LOG.size, backwards=True).found == LOG.lines[2].offset


def test_a_search_for_a_secret_alone_finds_nothing() -> None:
    found = found_in(Lines("loss 2.5", "password=hunter2"), "hunter2")
    assert (found.found, found.lines) == (None, ())


def test_the_number_of_matches_does_not_tell_of_hidden_ones() -> None:
    assert found_in(LOG, "loss").matches is None


def test_a_query_that_searches_nothing_is_answered_at_once() -> None:
    source = Lines("one", "two")
    found = visible(source, LogQuery(path="a.log", at=0, after=2), redact)
    assert [line.text for line in found.lines] == ["one", "two"]
    assert source.asked == 1


def test_a_search_gives_up_after_200_secrets_and_says_where_to_go_on() -> None:
    source = Lines(*["password=hunter2"] * 300)
    found = found_in(source, "hunter2")
    assert (found.found, found.lines) == (None, ())
    assert found.start == found.end == source.lines[200].offset
    assert source.asked == 400
    assert found_in(source, "hunter2", found.end).found is None


@pytest.mark.parametrize("field", ["at", "at_line", "before", "after", "rank"])
def test_numbers_in_a_query_are_natural_and_bounded(field: str) -> None:
    read = TypeAdapter(LogQuery).validate_python
    assert getattr(read({"path": "a.log", field: 0}), field) == 0
    assert getattr(read({"path": "a.log", field: MAX_COUNT - 1}), field) == MAX_COUNT - 1
    for wrong in (-1, MAX_COUNT):
        with pytest.raises(ValidationError):
            read({"path": "a.log", field: wrong})


def test_a_query_has_no_other_keys() -> None:
    with pytest.raises(ValidationError, match="other"):
        TypeAdapter(LogQuery).validate_python({"path": "a.log", "other": 1})


def curve(*means: float, spacing: int = 10) -> CurveView:
    numbers = range(len(means))
    return CurveView(
        steps=[spacing * n for n in numbers],
        times=[1000.0 + n for n in numbers],
        lows=[mean - 1 for mean in means],
        highs=[mean + 1 for mean in means],
        means=means,
        nonfinite=[n % 2 for n in numbers],
        lines=[n + 1 for n in numbers],
        offsets=[100 * n for n in numbers],
        origins=[0] * len(means),
        files=("a.log",),
    )


TEN = curve(*map(float, range(10)))


def test_a_curve_that_is_short_enough_stays() -> None:
    whole = part_of(TEN, None, None, 10)
    assert (whole.steps, whole.lows, whole.highs) == (TEN.steps, TEN.lows, TEN.highs)
    assert (whole.means, whole.nonfinite) == ([*TEN.means], TEN.nonfinite)
    assert (whole.times, whole.lines, whole.offsets) == (TEN.times, TEN.lines, TEN.offsets)
    assert whole.files == ("a.log",)


def test_merged_buckets_keep_extremes_and_begin_at_their_first_line() -> None:
    merged = part_of(TEN, None, None, 4)
    assert merged.steps == [0, 30, 60, 90]
    assert merged.lines == [1, 4, 7, 10]
    assert merged.lows == [-1, 2, 5, 8]
    assert merged.highs == [3, 6, 9, 10]
    assert merged.means == [1, 4, 7, 9]
    assert merged.nonfinite == [1, 2, 1, 1]


@pytest.mark.parametrize(
    ("start", "end", "steps"),
    [
        (20, 50, [20, 30, 40, 50]), (25, 50, [20, 30, 40, 50]), (20, 49, [20, 30, 40]),
        (None, 10, [0, 10]), (80, None, [80, 90]), (95, None, [90]), (-5, -1, []),
        (30, 30, [30]), (0, 0, [0]),
    ],
)  # fmt: skip
def test_a_part_has_the_buckets_that_hold_its_steps(
    start: int | None, end: int | None, steps: list[int]
) -> None:
    assert part_of(TEN, start, end, 100).steps == steps


def test_buckets_without_a_number_count_for_nothing() -> None:
    merged = part_of(curve(math.nan, 2.0, math.nan, math.nan), None, None, 2)
    assert (merged.lows[0], merged.highs[0], merged.means[0]) == (1.0, 3.0, 2.0)
    assert all(map(math.isnan, (merged.lows[1], merged.highs[1], merged.means[1])))


def test_no_points_are_as_one() -> None:
    assert part_of(TEN, None, None, 0).steps == [0]


@given(st.lists(st.floats(-1e6, 1e6), max_size=40), st.integers(1, 50))
def test_a_curve_has_as_many_points_as_asked_for_and_keeps_its_spikes(
    means: list[float], points: int
) -> None:
    whole = curve(*means)
    merged = part_of(whole, None, None, points)
    assert len(merged.steps) <= points
    assert len(merged.steps) == len(means) or len(merged.steps) > points // 2
    assert sum(merged.nonfinite) == sum(whole.nonfinite)
    if means:
        assert max(merged.highs) == max(whole.highs)
        assert min(merged.lows) == min(whole.lows)


def test_a_record_has_ended_unless_it_says_otherwise() -> None:
    assert LogLine(offset=0, end=5, line=1, text="loss").is_open is False
