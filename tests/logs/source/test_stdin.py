"""A pipe: bytes that come once, read in a thread, ended by the writer."""

import gzip
import os
import queue

import pytest

from ldlm_monitor.logs.source.follower import StdinSource
from ldlm_monitor.logs.source.notices import Journal
from ldlm_monitor.logs.source.split import PEEK_SECONDS, RECORD_BYTES


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    with open(reading, "rb") as source, open(writing, "wb", buffering=0) as sink:
        yield source, sink


def test_a_pipe_is_read_in_whole_records_until_it_is_closed(pipe):
    source, sink = pipe
    rung: queue.SimpleQueue = queue.SimpleQueue()
    stdin = StdinSource(source, rung.put)
    sink.write(b"one\ntwo")
    assert rung.get(timeout=30) == stdin.path
    (chunk,) = stdin.read(0.0)
    assert (chunk.path, chunk.data, chunk.line) == ("-", b"one\n", 1)
    assert stdin.next_peek() == PEEK_SECONDS
    (peek,) = stdin.read(PEEK_SECONDS)
    assert (peek.data, peek.peek) == (b"two", True)
    sink.close()
    rung.get(timeout=30)
    (last,) = stdin.read(3.0)
    assert (last.data, last.final, last.offset, last.line) == (b"two", True, 4, 2)
    assert stdin.ended
    assert list(stdin.read(9.0)) == []
    stdin.thread.join()


def test_nothing_yet_is_no_end(pipe):
    source, sink = pipe
    rung: queue.SimpleQueue = queue.SimpleQueue()
    stdin = StdinSource(source, rung.put)
    assert list(stdin.read(0.0)) == []
    assert not stdin.ended
    sink.close()
    rung.get(timeout=30)
    stdin.thread.join()


def test_a_record_that_is_too_long_is_counted_and_said(pipe):
    source, sink = pipe
    rung: queue.SimpleQueue = queue.SimpleQueue()
    journal = Journal()
    stdin = StdinSource(source, rung.put, journal)
    sink.write(b"x" * (RECORD_BYTES + 10) + b"\nnext\n")
    sink.close()
    data = b""
    while not stdin.ended:
        rung.get(timeout=30)
        data += b"".join(chunk.data for chunk in stdin.read(0.0))
    assert data == b"x" * RECORD_BYTES + b"\nnext\n"
    assert [notice.kind for notice in journal.drain()] == ["record_cut"]
    stdin.thread.join()


def test_damage_is_named_in_words(pipe):
    source, sink = pipe
    rung: queue.SimpleQueue = queue.SimpleQueue()
    journal = Journal()
    stdin = StdinSource(source, rung.put, journal)
    packed = gzip.compress(b"one\n" * 100)[:-9]
    sink.write(packed)
    sink.close()
    rung.get(timeout=30)
    stdin.thread.join()
    (notice,) = journal.drain()
    assert str(notice) == (
        f"-: its end is missing: the gzip is cut at byte {len(packed)}; what came before is read"
    )
