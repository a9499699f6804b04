"""Logs as Docker's json-file driver, containerd and CRI-O write them, read as what they hold."""

import json
from itertools import pairwise, zip_longest
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.chunk import Origin
from ldlm_monitor.base.records import Event, Record, Sample
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.source.backlog import Backlog
from ldlm_monitor.logs.source.decoded_files import is_decoded
from ldlm_monitor.logs.source.decoders import CriLines, DockerLines, form_of
from ldlm_monitor.logs.source.notices import Journal

BROKEN = "OSError: [Errno 28] No space left on device"
PIECE = 16 * 1024
"""What both engines write of a line at once."""


def stamp(second: int) -> str:
    return f"2025-01-21T04:41:{second:02}.283302001Z"


def docker(*texts: str, stream: str = "stderr", end: str = "\n") -> str:
    """As `daemon/logger/jsonfilelog` writes it, with Go's escapes."""
    found = []
    for second, text in enumerate(texts):
        whole = text + end
        for start in range(0, len(whole), PIECE):
            row = {"log": whole[start : start + PIECE], "stream": stream, "time": stamp(second)}
            line = json.dumps(row, separators=(",", ":"), ensure_ascii=False)
            found.append(line.replace("<", "\\u003c").replace(">", "\\u003e"))
    return "".join(line + "\n" for line in found)


def cri(*texts: str, stream: str = "stderr", piece: int = PIECE) -> str:
    found = []
    for second, text in enumerate(texts):
        parts = [text[start : start + piece] for start in range(0, len(text), piece)]
        for index, part in enumerate(parts):
            tag = "F" if index == len(parts) - 1 else "P"
            found.append(f"{stamp(second)} {stream} {tag} {part}\n")
    return "".join(found)


def parsed(log: Path, text: str) -> list[Record]:
    log.write_text(text)
    backlog, parser, origin = Backlog.new(log, Journal()), Parser(), Origin("r")
    found = [record for chunk in backlog.all(0.0) for record in parser.feed(chunk, origin, 0.0)]
    backlog.tail.close()
    return found + parser.finish(str(log))


def samples(records: list[Record]) -> list[tuple[int | None, float | None, float | None]]:
    return [(r.step, r.values.get("loss"), r.time) for r in records if isinstance(r, Sample)]


ROWS = [json.dumps({"step": step, "loss": 2.5 - step / 10}) for step in range(6)]
EXPECTED = [(step, 2.5 - step / 10, 1737434460.283302 + step) for step in range(6)]


@pytest.mark.parametrize("wrapped", [docker, cri])
def test_rows_of_json_are_read_with_the_time_of_the_container(log, wrapped) -> None:
    read = samples(parsed(log, wrapped(*ROWS)))
    assert read == [(step, loss, pytest.approx(time)) for step, loss, time in EXPECTED]


@pytest.mark.parametrize("wrapped", [docker, cri])
def test_a_row_that_was_cut_after_16_kib_is_one_row(log, wrapped) -> None:
    row = json.dumps({"step": 3, "note": "x" * 3 * PIECE, "loss": 1.5})
    records = parsed(log, wrapped(ROWS[0], row, ROWS[4]))
    assert [step for step, _, _ in samples(records)] == [0, 3, 4]
    assert [record.position.line for record in records] == [1, 2, 3]


@pytest.mark.parametrize("piece", [1, 7, 20])
def test_parts_of_any_length_are_put_together(log, piece: int) -> None:
    assert [step for step, _, _ in samples(parsed(log, cri(*ROWS, piece=piece)))] == [*range(6)]


@pytest.mark.parametrize("wrapped", [docker, cri])
def test_a_line_is_what_it_holds_with_rank_and_time(log, wrapped) -> None:
    (event,) = [r for r in parsed(log, wrapped(f"[rank3]: {BROKEN}")) if isinstance(r, Event)]
    assert (event.kind, event.rank, event.message) == ("no_space_left", 3, BROKEN)
    assert event.time == pytest.approx(1737434460.283302)
    assert event.position.offset == 0


@pytest.mark.parametrize("wrapped", [docker, cri])
def test_a_traceback_is_one_event(log, wrapped) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/job/train.py", line 8, in <module>',
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    ]
    (event,) = parsed(log, wrapped(*lines))
    assert isinstance(event, Event)
    assert (event.kind, event.fields["tried_bytes"]) == ("cuda_oom", 2 * 1024**3)


def test_parts_of_two_streams_do_not_mix(log) -> None:
    out, errors = ROWS[1], f"[rank3]: {BROKEN}"
    first, second = cri(out, stream="stdout", piece=15), cri(errors, piece=25)
    pairs = zip_longest(first.splitlines(), second.splitlines())
    records = parsed(log, "".join(line + "\n" for pair in pairs for line in pair if line))
    assert {type(record) for record in records} == {Sample, Event}


@pytest.mark.parametrize("wrapped", [docker, cri])
def test_each_drawing_of_a_bar_has_the_containers_time(log, wrapped) -> None:
    bar = "Training: {:3}%|#| {}/100 [00:{:02}<01:00,  1.00it/s, Loss=1.5]"
    text = "".join("\r" + bar.format(n, n, n) for n in range(1, 4))
    records = parsed(log, wrapped(text))
    assert [r.step for r in records if isinstance(r, Sample)] == [1, 2, 3]
    assert [r.time for r in records] == [pytest.approx(1737434460.283302)] * len(records)


def test_a_bar_without_end_is_read_while_it_is_redrawn(log, reading) -> None:
    reader = reading(log)
    with log.open("w") as file:
        file.write(docker("\rstep 1\rstep 2", end=""))
        file.flush()
        assert [line.rpartition(b" F ")[2] for line in reader.look() if b"step" in line] == [
            b"step 1"
        ]
        file.write(docker("\rstep 3", end="").replace("\\r", "\\r"))
        file.flush()
        assert [line.rpartition(b" F ")[2] for line in reader.look() if b"step" in line] == [
            b"step 2"
        ]


@pytest.mark.parametrize(
    ("keys", "separators", "escapes"),
    [
        (["log", "stream", "time"], (", ", ": "), False),
        (["log", "stream", "attrs", "time"], (" , ", " : "), True),
        (["stream", "log", "time"], (",", ":"), True),
        (["time", "stream", "log"], (", ", ": "), False),
        (["time", "log", "stream"], (",", ":"), False),
    ],
)
def test_blanks_other_orders_and_escapes_are_dockers_too(log, keys, separators, escapes) -> None:
    rows = [json.loads(line) | {"attrs": {"tag": "x"}} for line in docker(*ROWS).splitlines()]
    text = "".join(
        json.dumps({key: row[key] for key in keys}, separators=separators, ensure_ascii=escapes)
        + "\n"
        for row in rows
    )
    assert samples(parsed(log, text)) == EXPECTED


@pytest.mark.parametrize("first", ['{"time": "2026-01-01T00:00:00Z", "loss"', '{"stream": "x"'])
def test_json_rows_that_begin_alike_are_no_containers(log, first) -> None:
    log.write_text(first + ": 2.5}\n")
    backlog = Backlog.new(log, Journal())
    assert [form_of(backlog.head), not is_decoded(backlog.descriptor())] == [None, True]
    backlog.tail.close()


@pytest.mark.parametrize(
    "line",
    ['{"log":"x', '{"log":"x"}', '{"log":3,"stream":1,"time":2}', '{"log":["a"]}', '{"log":"x"'],
)
def test_what_is_not_dockers_is_left_as_it_is(log, reading, line: str) -> None:
    log.write_text(docker("first") + line + "\n" + docker("whole"))
    first, second, third = reading(log).look()
    assert first.endswith(b" stderr F first")
    assert second == line.encode()
    assert third.endswith(b" stderr F whole")


def test_plain_lines_of_cri_are_not_changed(log, reading) -> None:
    log.write_text(cri(*ROWS))
    assert reading(log).look() == log.read_bytes().splitlines()


@pytest.mark.parametrize("wrapped", [docker, cri])
@pytest.mark.parametrize("size", [17, 16 * 1024])
def test_a_last_line_without_its_end_counts(log, reading, wrapped, size: int) -> None:
    text, reader, found = wrapped(*ROWS).removesuffix("\n"), reading(log), []
    first = text.index("\n")
    log.write_text(text[:first])
    for start in range(first, len(text), size):
        with log.open("a") as file:
            file.write(text[start : start + size])
        found += reader.look()
    found += reader.end()
    assert [json.loads(line.partition(b" F ")[2])["step"] for line in found] == [*range(6)]
    assert len({chunk.line for chunk in reader.chunks if chunk.data and not chunk.peek}) <= 6
    assert samples(parsed(log, text))[-1][:2] == (5, 2.0)


@pytest.mark.parametrize("wrapped", [docker, cri])
def test_what_begins_a_record_is_found_behind_the_prefix(log, wrapped) -> None:
    """`Killed` and the dicts of transformers are looked for at the start of a record alone."""
    row = "{'loss': 2.5, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.1}"
    sample, killed = parsed(log, wrapped(row, "Killed"))
    assert isinstance(sample, Sample)
    assert isinstance(killed, Event)
    assert (sample.values["loss"], killed.message) == (2.5, "Killed")


TEXTS = st.lists(st.text("ab 1%\r{", max_size=12), max_size=4)


@pytest.mark.parametrize("kind", [CriLines, DockerLines], ids=["cri", "docker"])
@given(
    texts=TEXTS, other=TEXTS, tag=st.sampled_from(["F", "F:x"]), cuts=st.sets(st.integers(1, 900))
)
def test_what_is_decoded_does_not_depend_on_where_reads_were_cut(
    kind: type[CriLines | DockerLines], texts: list[str], other: list[str], tag: str, cuts: set[int]
) -> None:
    """A restart decodes in pieces of 16 KiB what came line by line: positions must agree."""
    if kind is CriLines:
        lines = [cri(*texts, piece=5).replace(" F ", f" {tag} "), cri(*other, stream="stdout")]
    else:
        lines = [docker(*texts), docker(*other, stream="stdout", end="")]
    data = "".join(lines).encode()
    places = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]

    def decoded(pieces: list[bytes]) -> bytes:
        decoder = kind()
        return b"".join(decoder.decompress(piece, 1 << 20) for piece in pieces)

    in_pieces = decoded([data[start:stop] for start, stop in pairwise(places)])
    assert in_pieces == decoded([data])


def test_a_part_that_came_without_its_newline_is_joined_once() -> None:
    first, second = docker("abc", end=""), docker("def")
    whole, cut = DockerLines(), DockerLines()
    pieces = [first.removesuffix("\n").encode(), b"\n" + second.encode()]
    assert b"".join(cut.decompress(each, 1 << 20) for each in pieces) == whole.decompress(
        (first + second).encode(), 1 << 20
    )


def test_parts_of_streams_that_no_engine_has_are_not_kept() -> None:
    """A log may hold any text: a thousand names of streams would keep a thousand parts."""
    data = "".join(docker("a", stream=f"s{number}", end="") for number in range(9)).encode()
    assert DockerLines().decompress(data, 1 << 20) == data


LONG_TIME = f"2025-01-21T{'2' * 2000}Z"
REPAINTED = "a\r" * 2000 + "\n"
LONG_ROW = {"log": REPAINTED, "stream": "stdout", "time": LONG_TIME}


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (CriLines, f"{LONG_TIME} stdout F {REPAINTED}"),
        (CriLines, f"{stamp(0)} stdout F:{'x' * 2000} {REPAINTED}"),
        (DockerLines, json.dumps(LONG_ROW) + "\n"),
    ],
    ids=["cri-time", "cri-tag", "docker-time"],
)
def test_a_prefix_that_no_engine_writes_is_not_repeated(
    kind: type[CriLines | DockerLines], line: str
) -> None:
    """Each `\\r` repeats the prefix: one of half a MiB would make a MiB of log 100 GiB."""
    assert len(kind().decompress(line.encode(), 1 << 20)) < 100 * len(line)
