"""The monitor reads what the callback's heartbeat says, and nothing that was torn."""

import os
import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_callback import rank as written
from ldlm_callback.rank import pid_namespace, start_ticks
from ldlm_monitor.host.probe.heartbeat import is_process, page_of, pages, read
from ldlm_monitor.host.probe.stacks import fetch


def identity(**changes) -> written.Identity:
    reported = {
        "pid": os.getpid(),
        "stack_signal": 12,
        "started": start_ticks(),
        "pid_namespace": pid_namespace(),
        "rank": 3,
        "host": socket.gethostname().encode(),
        "stack_file": b"stack_rank3.txt",
        "recorder_socket": b"",
    }
    return written.Identity(**{**reported, **changes})


@pytest.fixture
def page(tmp_path):
    """Write a page and return its path and its writer."""

    def make(name: str = "heartbeat_rank3", **changes):
        path = tmp_path / name
        return path, written.HeartbeatPage(path, identity(**changes))

    return make


def test_all_that_the_callback_tells_is_read(page) -> None:
    path, writer = page()
    writer.beat(
        written.Beat(
            step=41,
            time=5.0,
            phase_since=4.0,
            phase=b"eval",
            status=b"failed",
        )
    )
    writer.sync()
    reported = read(path)
    assert reported is not None
    assert (reported.pid, reported.rank) == (os.getpid(), 3)
    assert (reported.stack_signal, reported.stack_file) == (12, "stack_rank3.txt")
    assert (reported.step, reported.phase) == (41, "eval")
    assert (reported.time, reported.phase_since, reported.status) == (5.0, 4.0, "failed")
    beat = reported.record("run_b")
    assert (beat.run, beat.rank, beat.step, beat.phase) == ("run_b", 3, 41, "eval")


def test_before_the_first_step_nothing_is_known(page) -> None:
    path, writer = page()
    writer.beat(written.Beat())
    writer.sync()
    reported = read(path)
    assert reported is not None
    assert (reported.step, reported.phase, reported.status) == (-1, "init", "running")


def test_what_is_no_page_is_passed_over(page, tmp_path) -> None:
    page()[1].beat(written.Beat())
    (tmp_path / "heartbeat_rank0").write_bytes(b"x" * 4096)
    (tmp_path / "heartbeat_rank1").write_bytes(written.MAGIC)
    (tmp_path / "heartbeat_rank2").symlink_to("heartbeat_rank3")
    os.mkfifo(tmp_path / "heartbeat_rank4")
    (tmp_path / "heartbeat_rank5").mkdir()
    found = [each.path.name for each in pages([tmp_path, tmp_path, tmp_path / "missing"])]
    assert found == ["heartbeat_rank3"]


def test_a_process_is_told_by_more_than_its_number(page) -> None:
    def lives(**changes) -> bool:
        path, writer = page(**changes)
        writer.beat(written.Beat())
        writer.sync()
        reported = read(path)
        return reported is not None and is_process(reported)

    assert lives()
    assert not lives(started=start_ticks() + 1)
    assert not lives(pid=0)
    assert not lives(host=b"another")
    assert not lives(pid_namespace=1)


def test_a_page_that_nobody_writes_any_more_is_of_no_process(page) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    path, writer = page(pid=child)
    os.waitpid(child, 0)
    writer.beat(written.Beat())
    writer.sync()
    reported = read(path)
    assert reported is not None
    assert not is_process(reported)


beats = st.builds(
    written.Beat,
    step=st.integers(-1, 2**62),
    time=st.floats(0, 1e10),
    phase=st.sampled_from([b"train", b"eval", b"checkpoint"]),
)


@given(st.lists(beats, min_size=2, max_size=5), st.data())
def test_a_reader_sees_a_whole_beat_or_knows_that_it_does_not(
    tmp_path_factory, reported, data
) -> None:
    """A store goes from front to back; a read may come upon any part of it."""
    path = tmp_path_factory.mktemp("page") / "heartbeat_rank3"
    writer = written.HeartbeatPage(path, identity())
    images = []
    for beat in reported:
        writer.beat(beat)
        writer.sync()
        images.append(path.read_bytes())
    index = data.draw(st.integers(1, len(images) - 1))
    old, new = images[index - 1], images[index]
    cut = data.draw(st.integers(0, written.BEAT.size)) + written.BEAT_AT
    seen = page_of(new[:cut] + old[cut:], path)
    whole = [page_of(each, path) for each in (old, new)]
    assert seen is None or repr(seen) in [repr(each) for each in whole]


def test_a_beat_that_a_living_process_has_begun_is_read_later(page) -> None:
    path, writer = page()
    writer.beat(written.Beat(step=40))
    writer.sync()
    begun = bytearray(path.read_bytes())
    struct.pack_into("<Q", begun, written.BEAT_AT, 2)
    path.write_bytes(begun)
    assert read(path) is None


def test_a_reader_beside_a_writer_never_sees_a_mixture(tmp_path: Path) -> None:
    """Two processes: every field of a beat says the same number."""
    path = tmp_path / "heartbeat_rank3"
    writer = written.HeartbeatPage(path, identity())
    if not writer.is_direct:
        pytest.skip("the loop does not write to this file system")
    child = os.fork()
    if child == 0:
        for number in range(2**62):
            value = float(number)
            writer.beat(written.Beat(number, value, value))
    try:
        seen = set()
        for _ in range(3000):
            reported = read(path)
            if reported is None or reported.step < 0:
                continue
            assert {reported.time, reported.phase_since} == {float(reported.step)}
            seen.add(reported.step)
        assert len(seen) > 1
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_a_recorder_that_sends_byte_by_byte_is_given_up(page, tmp_path) -> None:
    """The answer would be complete after some seconds: then it is no longer read."""
    body = b"x" * 400
    address = str(tmp_path / "recorder.sock")
    path, writer = page(recorder_socket=address.encode())
    writer.beat(written.Beat(step=1, time=5.0, phase_since=4.0, phase=b"train", status=b"running"))
    writer.sync()
    rank = read(path)
    assert rank is not None
    given_up = threading.Event()

    def drip() -> None:
        client, _ = server.accept()
        with client, suppress(OSError):
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n")
            for byte in body:
                client.sendall(bytes([byte]))
                given_up.wait(0.01)

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        thread = threading.Thread(target=drip)
        thread.start()
        assert fetch(rank, 0.2) is None
        given_up.set()
        thread.join()
