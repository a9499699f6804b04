"""Files that are already there, placed in time and merged."""

import os
from datetime import datetime
from itertools import accumulate, pairwise
from pathlib import Path

import pytest

from ldlm_monitor.base.arrival import Arrival, Kind
from ldlm_monitor.logs.history.file_head import callback_run, launch_facts
from ldlm_monitor.logs.history.history_file import HistoryFile, JudgedBefore
from ldlm_monitor.logs.history.kinship import has_losses
from ldlm_monitor.logs.history.merge import place
from ldlm_monitor.logs.history.stretch import NOMINAL_ROWS
from ldlm_monitor.logs.parse.run_names import RunNames
from ldlm_monitor.logs.source.backlog import Backlog
from ldlm_monitor.logs.source.file_system import DIRECT
from ldlm_monitor.logs.source.notices import Journal

LOG = "train_20260129_101500_node0.log"
END = 1_769_681_800.0
"""2026-01-29 10:16:40 UTC."""


def bar(step: int, elapsed: int) -> str:
    clock = f"{elapsed // 60:02d}:{elapsed % 60:02d}"
    return (
        f"\rTraining:  {step}%|▏| {step}/475 [{clock}<09:00,  1.00it/s, "
        "Epoch=0/1, Progress=1.0%, Loss=2.5, Text=2."
    )


def written(path: Path, text: str, at: float = END) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, newline="")
    os.utime(path, (at, at))
    return path


def test_a_log_ends_when_it_was_last_written_and_its_bars_tell_the_rest(tmp_path: Path) -> None:
    log = written(tmp_path / LOG, bar(1, 1) + bar(2, 14) + bar(3, 104) + "\n")
    history = place([log], RunNames())
    times = [when for when, chunk, _ in history.play() if b"Training" in chunk.data]
    assert times == [END - 103, END - 90, END]
    assert history.untimed_runs == frozenset()


def test_rows_of_the_runs_step_log_come_at_the_time_of_their_step(tmp_path: Path) -> None:
    log = written(tmp_path / LOG, bar(1, 1) + bar(2, 14) + bar(3, 104) + "\n")
    rows = written(
        tmp_path / "training_log.jsonl",
        "".join(f'{{"step": {step}, "loss": 2.5}}\n' for step in range(4)),
        at=END + 5000,
    )
    names = RunNames()
    names.tie(str(rows), names.origin(str(log)).run)
    played = place([log, rows], names).play()
    times = {
        chunk.data: when for when, chunk, _ in played if chunk.path == str(rows) and chunk.data
    }
    assert times[b'{"step": 3, "loss": 2.5}\n'] == END
    assert times[b'{"step": 2, "loss": 2.5}\n'] == END - 90


def test_rows_with_their_own_time_come_at_it(tmp_path: Path) -> None:
    rows = written(
        tmp_path / "health_rank0.jsonl",
        "".join(f'{{"type": "step", "step": {n}, "time": {END + n}}}\n' for n in range(3)),
    )
    times = [when for when, chunk, _ in place([rows], RunNames()).play() if chunk.data]
    assert times == [END, END + 1, END + 2]


@pytest.mark.parametrize(
    "line",
    [
        "2026-01-29T10:16:4{n}.123456789Z stdout F step {n} | loss 2.5\n",
        "2026-01-29T11:16:4{n}+01:00 step {n} | loss 2.5\n",
        '{{"step": {n}, "loss": 2.5, "timestamp": "2026-01-29T10:16:4{n}Z"}}\n',
        '{{"log":"step {n} | loss 2.5\\n","stream":"stdout","time":"2026-01-29T10:16:4{n}.5Z"}}\n',
    ],
)
def test_lines_that_a_container_stamped_came_then_whenever_they_were_copied(
    tmp_path: Path, line: str
) -> None:
    log = written(
        tmp_path / "pod.log", "".join(line.format(n=n) for n in range(4)), at=END + 86_400
    )
    history = place([log], RunNames(), apart=0.5)
    times = [when for when, chunk, _ in history.play() if chunk.data]
    assert times == [pytest.approx(END + n, abs=0.6) for n in range(4)]
    assert history.end == times[-1]


def test_a_timeout_of_half_an_hour_below_the_last_stamp_is_no_other_zone(tmp_path: Path) -> None:
    local = datetime.fromtimestamp(END - 1800).astimezone()
    stamped = f"{local:%Y-%m-%d %H:%M:%S} step 1 | loss 2.5\n"
    log = written(tmp_path / "a.log", stamped + "RuntimeError: Timed out waiting 1800000ms\n")
    first, *_ = place([log], RunNames()).play()
    assert first[0] == END - 1800


def test_rows_that_tell_their_times_come_in_pieces_at_the_time_of_the_last_row(
    tmp_path: Path,
) -> None:
    times = [END, END + 1, END + 3, END + 6, END + 6, END + 20, END + 12]
    text = "".join(f'{{"step": {step}, "time": {when}}}\n' for step, when in enumerate(times))
    rows = written(tmp_path / "health_rank0.jsonl", '{"type": "run"}\n' + text)
    played = list(place([rows], RunNames(), apart=5.0).play())
    assert b"".join(chunk.data for _, chunk, _ in played) == rows.read_bytes()
    assert [(when - END, chunk.data.count(b"step")) for when, chunk, _ in played if chunk.data] == [
        (0, 1),
        (3, 2),
        (6, 2),
        (20, 2),
    ]


def test_of_rows_without_time_only_the_order_is_known(tmp_path: Path) -> None:
    rows = written(tmp_path / "a.jsonl", '{"step": 0}\n{"step": 1}\n{"step": 2}\n')
    history = place([rows], RunNames())
    assert [chunk.data for _, chunk, _ in history.play() if chunk.data] == [
        b'{"step": 0}\n',
        b'{"step": 1}\n',
        b'{"step": 2}\n',
    ]
    assert history.untimed_runs == {"a"}


def test_a_million_rows_without_time_come_in_few_pieces_and_whole(tmp_path: Path) -> None:
    rows = written(tmp_path / "a.jsonl", "".join(f'{{"step": {n}}}\n' for n in range(200_000)))
    pieces = [chunk.data for _, chunk, _ in place([rows], RunNames()).play()]
    assert len(pieces) <= NOMINAL_ROWS + rows.stat().st_size // 200_000 + 10
    assert b"".join(pieces) == rows.read_bytes()


def test_files_are_merged_by_time(tmp_path: Path) -> None:
    first = written(tmp_path / "a" / LOG, bar(1, 0) + bar(2, 60) + "\n", at=END)
    second = written(tmp_path / "b" / LOG, bar(1, 0) + bar(2, 60) + "\n", at=END + 30)
    history, shares = place([first, second], RunNames()), list[tuple[int, int]]()
    history.watch = lambda done, total: shares.append((done, total))
    sizes = [len(chunk.data) for _, chunk, _ in history.play()]
    times = [when for when, _, _ in place([first, second], RunNames()).play()]
    assert times == sorted(times)
    assert len(set(times)) == 4
    assert shares == [(done, history.size) for done in accumulate(sizes)]
    assert shares[-1][0] == history.size == first.stat().st_size + second.stat().st_size


def test_a_log_says_which_launch_it_is(tmp_path: Path) -> None:
    log = written(
        tmp_path / LOG,
        "+ export NCCL_DEBUG_FILE=/tmp/nccl_debug_0.log\nWorking directory: /opt/saved/qwen\n"
        "Error executing job with overrides: ['logging.run_name=qwen']\n",
    )
    facts = launch_facts(log)
    assert facts.working_directory == "/opt/saved/qwen"
    assert facts.run_names == ("qwen",)
    assert facts.nccl_debug_file == "/tmp/nccl_debug_0.log"
    timed = written(tmp_path / "timed.log", "2026-01-29 10:15:00 Working directory: /opt/saved/a\n")
    assert launch_facts(timed).working_directory == "/opt/saved/a"
    quoted = written(tmp_path / "quoted.log", "echo Working directory: /opt/saved/a\n")
    assert launch_facts(quoted).working_directory is None
    assert not has_losses(log, DIRECT)
    late = written(tmp_path / "b.log", "x" * 3_000_000 + "\n" + bar(1, 1))
    assert has_losses(late, DIRECT)


def test_of_a_big_log_the_start_and_the_end_are_read_and_the_rest_is_said_to_be_skipped(
    tmp_path: Path,
) -> None:
    text = "* World size: 2\n" + "".join(bar(step, step) for step in range(20_000)) + "\n"
    log = written(tmp_path / LOG, text)
    history = place([log], RunNames(), budget=200_000)
    pieces = list(history.play())
    data = b"".join(chunk.data for _, chunk, _ in pieces)
    assert 190_000 < len(data) < 201_000
    assert data.startswith(b"* World size: 2\n")
    assert data.endswith(bar(19_999, 19_999).encode() + b"\n")
    for _, chunk, _ in pieces:
        assert log.read_bytes()[chunk.offset :].startswith(chunk.data)
    assert "skipped" in history.notices[0]
    # What was left out is no pause: the start comes when the end begins.
    times = [when for when, chunk, _ in pieces if chunk.data]
    assert max(b - a for a, b in pairwise(times)) <= 1.0


def test_the_callbacks_own_name_of_the_run_counts_unless_a_better_one_is_known(
    tmp_path: Path,
) -> None:
    first = '{"schema":"ldlm.health/1","type":"run","run":"qwen-7b","rank":0}\n'
    rows = written(tmp_path / "health_rank0.jsonl", first)
    names = RunNames()
    place([rows], names)
    assert names.origin(str(rows)).run == "qwen-7b"
    given = RunNames("mine")
    place([rows], given)
    assert given.origin(str(rows)).run == "mine"


@pytest.mark.parametrize(
    "first",
    [
        '{"schema":"ldlm.health/1","type":"run"}',
        '{"schema":"somebody.else/1","type":"run","run":"theirs"}',
        '{"type":"step","step":1,"run":"theirs"}',
        '{"schema":7,"type":"run","run":"theirs"}',
        "[1, 2]",
        '{"schema":"ldlm.health/1","type":"run","run":"cut he',
        pytest.param('{"a":' * 40_000, id="deep"),
    ],
)
def test_what_is_no_header_of_the_callback_names_no_run(tmp_path: Path, first: str) -> None:
    assert callback_run(written(tmp_path / "health_rank0.jsonl", first + "\n")) is None


def test_a_file_that_cannot_be_read_is_told_and_the_others_are_placed(tmp_path: Path) -> None:
    log = written(tmp_path / LOG, bar(1, 1) + "\n")
    history = place([tmp_path / "gone.log", log], RunNames())
    assert list(history.unreadable) == [tmp_path / "gone.log"]
    assert [file.path for file in history.files] == [str(log)]


def test_a_json_line_of_a_log_hides_no_bars_wherever_it_stands(tmp_path: Path) -> None:
    config = '{"step": 7, "lr": 1e-4}\n'
    text = bar(1, 1) + "\n" + config * 40_000 + bar(2, 14) + "\n" + config + bar(3, 104) + "\n"
    log = written(tmp_path / LOG, text)
    times = [
        when for when, chunk, _ in place([log], RunNames()).play() if b"Training" in chunk.data
    ]
    assert times == [END - 103, END - 90, END]


def test_a_bar_counts_that_follows_a_record_longer_than_what_is_read_at_once(
    tmp_path: Path,
) -> None:
    log = written(tmp_path / LOG, bar(1, 1) + "\n" + "x" * 900_000 + bar(2, 14) + bar(3, 104))
    times = [
        when for when, chunk, _ in place([log], RunNames()).play() if b"Training" in chunk.data
    ]
    assert times == [END - 103, END - 90, END]


def plain(step: int, description: str = "", total: int = 900, every: int = 10) -> str:
    clock = f"{step * every // 60:02d}:{step * every % 60:02d}"
    return f"{description}{step * 100 // total:3d}%|▏| {step}/{total} [{clock}<30:00, 10.0s/it]"


@pytest.mark.parametrize("end", ["\r", "\n"])
@pytest.mark.parametrize("description", ["", "Epoch 1: "])
def test_bars_before_the_first_line_with_a_time_are_placed_by_their_elapsed_seconds(
    description: str, end: str, tmp_path: Path
) -> None:
    bars = end.join(plain(step, description) for step in range(1, 31))
    evaluation = end.join(plain(step, "", 20, 2) for step in range(1, 21))
    lines = f"{end}2026-01-29 10:05:00+00:00 INFO saved\n2026-01-29 10:06:00+00:00 INFO saved\n"
    log = written(tmp_path / LOG, bars + end + evaluation + lines)
    found = {
        int(each.split(b"/900")[0].rpartition(b" ")[2]): when
        for when, chunk, _ in place([log], RunNames()).play()
        for each in chunk.data.splitlines()
        if b"/900" in each
    }
    last = SAVED_AT - 2
    assert found == {step: last - 10 * (30 - step) for step in range(1, 31)}


SAVED_AT = 1_769_681_100.0  # 10:05:00 UTC


@pytest.mark.parametrize("end", ["\r", "\n"])
def test_bars_between_two_lines_with_a_time_are_spread_between_them(
    end: str, tmp_path: Path
) -> None:
    bars = end.join(plain(step) for step in range(1, 101)) + end
    text = f"2026-01-29 10:05:00+00:00 INFO a\n{bars}\n2026-01-29 10:15:00+00:00 INFO b\n"
    log = written(tmp_path / LOG, text)
    times = [when - SAVED_AT for when, chunk, _ in place([log], RunNames()).play()]
    assert len(times) > 50
    assert max(b - a for a, b in pairwise(times)) < 30


def test_a_bar_that_stands_still_does_so_from_its_last_elapsed_second_on(tmp_path: Path) -> None:
    bars = "\r".join(plain(step) for step in range(31))
    head = "2026-01-29 10:05:00+00:00 INFO a\n"
    log = written(tmp_path / LOG, f"{head}{bars}\n2026-01-29 12:00:00+00:00 INFO still here\n")
    last = max(when for when, chunk, _ in place([log], RunNames()).play() if b"%" in chunk.data)
    assert last - SAVED_AT == 300


def test_bars_go_on_from_line_to_line(tmp_path: Path) -> None:
    parts = ["\r".join(plain(step) for step in range(begin, begin + 30)) for begin in (1, 31)]
    stamps = ("10:05:00", "10:10:10", "10:30:00")
    lines = [f"\n2026-01-29 {stamp}+00:00 INFO a\n" for stamp in stamps]
    log = written(tmp_path / LOG, "".join((lines[0], parts[0], lines[1], parts[1], lines[2])))
    times = [
        when - SAVED_AT for when, chunk, _ in place([log], RunNames()).play() if b"%" in chunk.data
    ]
    assert times == [float(10 * step) for step in range(1, 61)]


LINE = 10
"""Bytes of each line of a file that was followed before."""


def resumed(
    path: Path, read: int, *arrivals: tuple[float, int, int, Kind], budget: int | None = None,
    judged: int = 99,
) -> HistoryFile:  # fmt: skip
    """A file of which a monitor had read `read` lines; arrivals: when it read which lines."""
    journal, whole = Journal(), path.read_bytes()
    path.write_bytes(whole[: read * LINE])
    before = Backlog.new(path, journal, is_followed=True)
    list(before.chunks(END))
    position = before.position()
    before.tail.close()
    path.write_bytes(whole)
    os.utime(path, (END, END))
    assert position is not None
    rows = [
        Arrival(at, str(path), (0, 0, 0), start * LINE, stop * LINE, start + 1, kind, order)
        for order, (at, start, stop, kind) in enumerate(arrivals)
    ]
    backlog = Backlog.of(position, END, journal)
    assert backlog is not None
    seen = JudgedBefore(position, rows, judged)
    return HistoryFile(backlog, "r", now=END, seen=seen, budget=budget, disk=DIRECT)


def lines_of(file: HistoryFile) -> list[tuple[float, int, int]]:
    """When which lines come, by a history of this file alone."""
    history = place([], RunNames(), continued=[file], floor=END - 5)
    found = [(when, chunk) for when, chunk, _ in history.play() if chunk.data]
    return [
        (when, chunk.offset // LINE, (chunk.offset + len(chunk.data)) // LINE)
        for when, chunk in found
    ]


def test_what_was_read_before_a_restart_comes_when_it_was_read(tmp_path: Path) -> None:
    log = written(tmp_path / LOG, "".join(f"line {number:04}\n" for number in range(10)))
    file = resumed(log, 6, (END - 90, 0, 4, "records"), (END - 60, 4, 6, "records"))
    assert (file.seen_to, file.size, file.note) == (6 * LINE, 10 * LINE, "")
    assert [file.seen_at(each * LINE) for each in (0, 3, 4, 6)] == [END - 90] * 2 + [END - 60, None]
    found = lines_of(file)
    assert found[:2] == [(END - 90, 0, 4), (END - 60, 4, 6)]
    assert {start for _, start, _ in found[2:]} >= {6}
    assert all(END - 5 <= when <= END for when, *_ in found[2:])


def test_only_what_came_after_the_last_judged_row_is_news(tmp_path: Path) -> None:
    log = written(tmp_path / LOG, "".join(f"line {number:04}\n" for number in range(10)))
    reads = ((END - 90, 0, 4, "records"), (END - 60, 4, 6, "records"))
    file = resumed(log, 6, *reads, judged=0)  # type: ignore[arg-type]
    place([], RunNames(), continued=[file], floor=END - 5)
    found = [(chunk, file.is_news(chunk, order)) for _, order, chunk in file.pieces(ends=True)]
    news = {chunk.offset // LINE: new for chunk, new in found if chunk.data}
    assert [news[start] for start in (0, 4, 6)] == [False, True, True]


@pytest.mark.parametrize(
    ("budget", "first", "lines"), [(None, 0, 10), (1000, 0, 10), (65, 4, 10), (45, 6, 9)]
)
def test_within_a_budget_what_was_not_judged_is_read_whole_from_a_known_record_on(
    tmp_path: Path, budget: int | None, first: int, lines: int
) -> None:
    log = written(tmp_path / LOG, "".join(f"line {number:04}\n" for number in range(10)))
    reads = ((END - 90, 0, 4, "records"), (END - 60, 4, 6, "records"))
    file = resumed(log, 6, *reads, budget=budget)  # type: ignore[arg-type]
    assert first in [start for _, start, _ in lines_of(file)]
    assert (file.whole().start, file.whole().stop) == (first * LINE, 10 * LINE)
    assert (file.size, bool(file.note)) == (lines * LINE, lines < 10)


def test_an_earlier_launch_in_the_file_is_not_read_again(tmp_path: Path) -> None:
    log = written(tmp_path / LOG, "".join(f"line {number:04}\n" for number in range(10)))
    file = resumed(log, 6, (END - 90, 0, 3, "skipped"), (END - 60, 3, 6, "records"))
    assert next(start for _, start, _ in lines_of(file)) == 3
    assert file.seen_to == 6 * LINE


def test_lines_whose_rows_the_read_log_dropped_are_read_again(tmp_path: Path) -> None:
    log = written(tmp_path / LOG, "".join(f"line {number:04}\n" for number in range(10)))
    file = resumed(log, 6, (END - 60, 4, 6, "records"))
    found = lines_of(file)
    assert (found[0][1], file.whole().start) == (0, 0)
    assert all(when <= END - 60 for when, start, _ in found if start < 4)
