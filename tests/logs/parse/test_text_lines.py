"""However the bytes of a file are cut into chunks, the records are the same."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Record
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.parse.text_lines import Lines, clean, raw_index

ORIGIN = Origin(run="r")

PIECES = [
    "Training:   2%| | 43/1900 [00:02<01:57, 15.78it/s, Epoch=0/2, Loss=5.6459, Text=5.6",
    "Training:  49%| | 44/90 [00:02<00:03, 9.8it/s, Loss=nan,WARNING: Invalid latent_pred detected",
    "Eval:  20%|██        | 4/20 [00:00<00:00, 36.34it/s]\x1b[A",
    "WARNING: Invalid latent_pred detected",
    "=" * 60,
    "ERROR: Invalid gradient norm at step 7",
    "  Gradient norm: inf",
    "  Loss: 6.262142",
    "  Skipping optimizer step and resetting gradients...",
    "Traceback (most recent call last):",
    '  File "/job/train.py", line 8, in main',
    "    raise ValueError('CUDA out of memory')",
    "ValueError: bad batch",
    "[rank1]: Traceback (most recent call last):",
    '[rank1]:   File "/job/train.py", line 8, in main',
    "[rank1]: IndexError: Target 30521 is out of bounds.",
    "During handling of the above exception, another exception occurred:",
    "train.py FAILED",
    "-" * 40,
    "[0]:",
    "  rank      : 1 (local_rank: 1)",
    "  exitcode  : -9 (pid: 804)  (SIGKILL)",
    "W1121 07:07:23.512000 631 torch/x.py:10] Sending process 634 closing signal SIGTERM",
    "",
    "+ echo 'ERROR: NaN'",
    '{"step": 3, "loss": NaN}',
    "nothing of interest",
]
RECORDS = st.lists(
    st.tuples(st.sampled_from(PIECES), st.sampled_from(["\n", "\r\n", "\r"])), max_size=40
)


def fed(data: bytes, cuts: list[int]) -> list[Record]:
    parser = Parser()
    found: list[Record] = []
    edges = [0, *cuts, len(data)]
    for start, end in pairwise(edges):
        line = 1 + data.count(b"\n", 0, start)
        chunk = Chunk("a.log", (1, 1, 0), start, line, data[start:end])
        found += parser.feed(chunk, ORIGIN, 0.0)
    found += parser.finish("a.log")
    return sorted(found, key=lambda record: (record.position.offset, repr(record)))


@given(RECORDS, st.data())
def test_any_split_into_whole_records_gives_the_same_records(parts, data) -> None:
    ends = [0]
    for text, terminator in parts:
        ends.append(ends[-1] + len((text + terminator).encode()))
    whole = "".join(text + terminator for text, terminator in parts).encode()
    borders = [end for end in ends[1:-1] if whole[end - 1 : end + 1] != b"\r\n"]
    cuts = sorted(data.draw(st.sets(st.sampled_from(borders)))) if borders else []
    assert repr(fed(whole, cuts)) == repr(fed(whole, []))


@given(st.binary(max_size=400), st.integers(0, 10**9), st.integers(1, 10**6))
def test_records_are_what_lies_between_terminators(data, offset, number) -> None:
    lines = Lines(Chunk("a", (1, 1, 0), offset, number, data))
    cut = []
    while (line := lines.following()) is not None:
        cut.append((line.raw, line.offset, line.number))
    expected, at = [], 0
    for match in re.finditer(rb"\r\n|\r|\n|\Z", data):
        if match.start() < len(data) or at < len(data):
            start = number + data.count(b"\n", 0, at)
            expected.append((data[at : match.start()], offset + at, start))
        at = match.end()
    assert cut == expected


@given(st.binary(min_size=1, max_size=400), st.data())
def test_going_straight_to_a_byte_gives_the_record_around_it(data, draw) -> None:
    chunk = Chunk("a", (1, 1, 0), 0, 1, data)
    lines, walked = Lines(chunk), []
    while (line := lines.following()) is not None:
        walked.append(line)
    wanted = [line for line in walked if line.raw and draw.draw(st.booleans())]
    again = Lines(chunk)
    assert [again.around(line.end - 1) for line in wanted] == wanted


@given(st.binary(max_size=200))
def test_parsing_any_bytes_raises_nothing(data) -> None:
    fed(data, [])


def test_escapes_are_stripped_and_places_stay_those_of_the_raw_bytes() -> None:
    raw = b"\x1b[36mab\x1b[0mcd\x08\x08ef"
    cleaned = clean(raw)
    assert cleaned == b"abcdef"
    for index, byte in enumerate(cleaned):
        assert raw[raw_index(raw, index)] == byte
