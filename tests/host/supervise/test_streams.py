"""What the relay reads and writes: the log, the command's streams, links and terminals."""

import fcntl
import os
import pty
import re
import socket
import struct
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from ldlm_monitor.host.supervise.streams import WRITE_BYTES, Link, OutputStream, RunLog, Terminal


def written(path: Path, *pieces: tuple[int, bytes], rotate: int = 1 << 20) -> RunLog:
    log = RunLog(path, rotate)
    for stream, data in pieces:
        log.write(stream, data)
    return log


def test_a_log_has_the_output_in_order_of_arrival(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"before\n")
    log = written(path, (1, b"one "), (1, b"two\n"), (2, b"three\n"), (1, b"four\n"))
    assert path.read_bytes() == b"before\none two\nthree\nfour\n"
    assert log.lost == 0


def test_a_line_that_another_stream_cuts_is_ended_first(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    written(path, (1, b"half"), (2, b"error\n"), (1, b"rest\n"), (2, b"a"), (2, b"b"), (0, b"n\n"))
    assert path.read_bytes() == b"half\nerror\nrest\nab\nn\n"


def test_a_line_of_ours_has_its_time(tmp_path: Path) -> None:
    log = written(tmp_path / "a.log", (1, b"half"))
    log.note("attempt 1 starts \udcff")
    half, line = (tmp_path / "a.log").read_text().splitlines()
    assert half == "half"
    form = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ldlm-monitor run: attempt 1 starts \\udcff"
    assert re.fullmatch(form, line)


def test_a_full_file_is_renamed_at_the_end_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    log = written(path, (1, b"12345"), (1, b"6789\n"), rotate=10)
    assert path.read_bytes() == b""
    log.write(1, b"123456789\n")
    log.write(1, b"short\n")
    found = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    assert found == {"a.log.1": b"123456789\n", "a.log.2": b"123456789\n", "a.log": b"short\n"}


def test_a_file_that_cannot_be_renamed_grows_on_to_twice_its_size(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    (tmp_path / "a.log.1").mkdir()
    (tmp_path / "a.log.1" / "file").touch()
    log = written(path, (1, b"123456789\n"), (1, b"1234567\n"), rotate=10)
    assert path.stat().st_size == 18
    (tmp_path / "a.log.1" / "file").unlink()
    (tmp_path / "a.log.1").rmdir()
    log.write(1, b"\n")
    assert path.stat().st_size == 19
    log.write(1, b"\n")
    assert (path.stat().st_size, (tmp_path / "a.log.1").stat().st_size) == (0, 20)


def test_what_a_full_disk_does_not_take_is_counted() -> None:
    log = written(Path("/dev/full"), (1, b"12345\n"), (1, b"123"))
    assert log.lost == 10 - 1


@pytest.fixture
def pipes() -> Iterator[tuple[int, int, int, int]]:
    """The command's end and ours, our target and its reader."""
    source, command = os.pipe()
    seen, target = os.pipe()
    yield command, source, target, seen
    for each in (command, source, target, seen):
        try:
            os.close(each)
        except OSError:
            continue


def test_output_is_passed_on_in_pieces_before_the_next_is_read(
    pipes: tuple[int, int, int, int],
) -> None:
    command, source, target, seen = pipes
    stream = OutputStream(1, source, target)
    data = b"x" * (WRITE_BYTES + 10)
    os.write(command, data)
    assert stream.read() == data
    stream.write()
    assert (len(os.read(seen, 1 << 16)), len(stream.pending)) == (WRITE_BYTES, 10)
    stream.write()
    assert (len(os.read(seen, 1 << 16)), stream.pending) == (10, b"")
    assert stream.source == source


def test_output_that_nobody_sees_is_not_kept_for_him(pipes: tuple[int, int, int, int]) -> None:
    command, source, _, _ = pipes
    stream = OutputStream(2, source, None)
    os.write(command, b"x")
    assert (stream.read(), stream.pending) == (b"x", b"")


def test_the_end_of_output_closes_our_side(pipes: tuple[int, int, int, int]) -> None:
    command, source, target, _ = pipes
    stream = OutputStream(1, source, target)
    os.close(command)
    assert (stream.read(), stream.source) == (b"", None)
    stream.close()


def test_a_reader_that_is_gone_ends_the_commands_stream(pipes: tuple[int, int, int, int]) -> None:
    command, source, target, seen = pipes
    stream = OutputStream(1, source, target)
    os.write(command, b"x")
    stream.read()
    os.close(seen)
    stream.write()
    assert (stream.pending, stream.source, stream.target) == (b"", None, target)
    with pytest.raises(BrokenPipeError):
        os.write(command, b"y")


def test_a_target_that_takes_nothing_is_left_out_and_the_log_goes_on(
    pipes: tuple[int, int, int, int],
) -> None:
    command, source, _, _ = pipes
    with open("/dev/full", "wb", buffering=0) as full:
        stream = OutputStream(1, source, full.fileno())
        os.write(command, b"x")
        stream.read()
        stream.write()
    assert (stream.pending, stream.source, stream.target) == (b"", source, None)


@pytest.fixture
def linked() -> Iterator[tuple[Link, socket.socket]]:
    ours, others = socket.socketpair()
    link = Link(ours.detach())
    yield link, others
    link.close()
    others.close()


def test_a_link_carries_objects_a_line_each(linked: tuple[Link, socket.socket]) -> None:
    link, other = linked
    link.send({"signal": 15})
    link.send({"note": "größe"})
    assert other.recv(1000) == b'{"signal": 15}\n{"note": "gr\\u00f6\\u00dfe"}\n'
    other.sendall(b'{"a": 1}\n{"b": [2]}\n{"c"')
    assert link.receive() == [{"a": 1}, {"b": [2]}]
    assert link.receive(0.0) == []
    other.sendall(b": 3}\n")
    assert link.receive(5.0) == [{"c": 3}]
    assert link.is_open


def test_a_link_whose_other_side_is_gone_is_closed(linked: tuple[Link, socket.socket]) -> None:
    link, other = linked
    other.sendall(b'{"over": 0}\n')
    other.close()
    assert link.receive() == [{"over": 0}]
    assert link.is_open
    link.send({"signal": 15})
    assert link.receive(-1.0) == []
    assert not link.is_open
    link.send({"signal": 15})


@pytest.fixture
def ours() -> Iterator[int]:
    """The descriptor of a terminal of 33 rows and 77 columns."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 33, 77, 0, 0))
    yield slave
    os.close(slave)
    os.close(master)


def size(descriptor: int) -> tuple[int, ...]:
    return struct.unpack("4H", fcntl.ioctl(descriptor, termios.TIOCGWINSZ, bytes(8)))[:2]


def test_the_commands_terminal_has_the_size_and_the_modes_of_ours(ours: int) -> None:
    terminal = Terminal([ours])
    terminal.resize()
    slave = terminal.open()
    assert terminal.master is not None
    try:
        assert size(slave) == (33, 77)
        modes = termios.tcgetattr(slave)
        assert modes[3] == termios.tcgetattr(ours)[3]
        assert not modes[1] & termios.OPOST
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("4H", 20, 50, 0, 0))
        terminal.resize()
        assert size(slave) == (20, 50)
    finally:
        os.close(slave)
        os.close(terminal.master)


def test_keys_are_passed_on_raw_until_the_terminal_is_released(ours: int) -> None:
    terminal, before = Terminal([ours]), termios.tcgetattr(ours)
    terminal.release()
    terminal.grab()
    terminal.grab()
    assert not termios.tcgetattr(ours)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)
    terminal.release()
    assert termios.tcgetattr(ours) == before


def test_without_a_terminal_there_is_nothing_to_resize() -> None:
    terminal = Terminal([])
    terminal.resize()
    assert (terminal.streams, terminal.master) == (frozenset(), None)
