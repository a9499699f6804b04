"""Files are found and looked at by name although a server may be dead: see test_stalled_mounts."""

import errno
import os
import threading
from pathlib import Path

import pytest

from ldlm_monitor.logs.source.companions import LaunchFacts, Surroundings, companions
from ldlm_monitor.logs.source.file_system import OPEN_FLAGS, Disk
from ldlm_monitor.logs.source.follower import Follower
from ldlm_monitor.logs.source.input_patterns import resolve
from ldlm_monitor.logs.source.notices import Journal
from ldlm_monitor.logs.source.timed_disk import TimedDisk

SECONDS = 0.05


@pytest.fixture
def timed(server):
    return TimedDisk(Journal(), disk=server.disk, seconds=SECONDS, mounts=lambda: server.table)


def answered(timed):
    """Return once no file system owes an answer."""
    while any(caller.blocked for caller in timed._callers.values()):
        pass


def test_a_call_to_a_silent_server_fails_and_the_next_do_at_once_until_it_answers(server, timed):
    log = server.folder / "a.log"
    log.write_text("one\n")
    server.silent = {"stat"}
    for _ in range(100):
        with pytest.raises(TimeoutError):
            timed.disk.stat(log)
        with pytest.raises(TimeoutError):
            timed.disk.listing(server.folder)
    assert os.read(server.entered, 100) == b".", "it was asked once"
    assert sum(thread.name.startswith("call ") for thread in threading.enumerate()) == 1
    server.revive()
    answered(timed)
    assert timed.disk.stat(log).st_size == 4
    assert timed.disk.listing(server.folder) == [("a.log", "file")]
    timed.close()


def test_local_files_are_looked_at_where_one_asks(server, tmp_path):
    threads = set()

    def stat(path: Path) -> os.stat_result:
        threads.add(threading.current_thread())
        return os.stat(path)

    timed = TimedDisk(Journal(), disk=Disk(stat=stat), mounts=lambda: server.table)
    timed.disk.stat(tmp_path)
    assert threads == {threading.current_thread()}
    timed.disk.stat(server.folder)
    assert len(threads) == 2
    timed.close()


def test_a_file_that_is_opened_too_late_is_closed_again(server):
    log = server.folder / "a.log"
    log.write_text("one\n")
    closed = []
    disk = Disk(open=server.open, close=lambda descriptor: (os.close(descriptor), closed.append(1)))
    timed = TimedDisk(Journal(), disk=disk, seconds=SECONDS, mounts=lambda: server.table)
    server.silent = {"open"}
    with pytest.raises(TimeoutError):
        timed.disk.open(log, OPEN_FLAGS)
    server.revive()
    answered(timed)
    timed.disk.stat(log)
    timed.close()
    assert closed == [1]


def test_an_error_of_the_system_is_no_silence(server):
    def stat(path: Path) -> os.stat_result:
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")  # as from a soft mount

    timed = TimedDisk(Journal(), disk=Disk(stat=stat), mounts=lambda: server.table)
    with pytest.raises(TimeoutError, match="Connection timed out"):
        timed.disk.stat(server.folder)
    with pytest.raises(FileNotFoundError):
        timed.disk.lstat(server.folder / "none")
    timed.close()


def test_a_file_on_a_network_is_read_like_any(server, timed):
    log = server.folder / "a.log"
    log.write_bytes(b"".join(b"line %d\n" % number for number in range(100_000)))
    for start, size in ((0, 300_000), (5, 1_000_000), (700_000, 7), (10**7, 5)):
        assert timed.disk.part(log, start, size) == log.read_bytes()[start : start + size]
    timed.close()


def test_a_silence_is_told_once_whoever_finds_it_out(server):
    clock = [0.0]
    follower = Follower(disk=server.disk, mounts=lambda: server.table)
    timed = TimedDisk(
        follower.journal,
        disk=server.disk,
        seconds=SECONDS,
        mounts=lambda: server.table,
        clock=lambda: clock[0],
    )
    follower.add(server.folder / "a.log")
    server.silent = {"stat"}
    for second in range(10):
        clock[0] = second
        list(follower.read(None, 1000.0 + second))
        with pytest.raises(TimeoutError):
            timed.disk.stat(server.folder)
    (notice,) = follower.journal.drain()
    assert "no answer from" in notice.message
    server.revive()
    answered(timed)
    timed.disk.stat(server.folder)
    while not follower._remote["0:51"].idle:
        list(follower.read(None, 1020.0))
    assert [notice.kind for notice in follower.journal.drain()] == ["answering"]
    follower.close()
    timed.close()


def test_what_matches_elsewhere_is_found_while_a_server_is_silent(server, timed, tmp_path):
    (tmp_path / "here.log").write_text("")
    (tmp_path / "latest.log").symlink_to(server.folder / "there.log")
    (server.folder / "there.log").write_text("")
    arguments = ["*.log", "nfs/*.log", "nfs/there.log", "*/there.log"]
    patterns = resolve(arguments, base=tmp_path, disk=timed.disk)
    both = [tmp_path / "here.log", server.folder / "there.log"]
    assert patterns.files() == both
    server.silent = {"stat"}
    assert patterns.files() == both[:1]
    assert patterns.folders() == [tmp_path, server.folder], "there it will appear"
    server.revive()
    answered(timed)
    assert patterns.files() == both
    timed.close()


def test_companions_are_not_chosen_among_those_that_are_seen_only(server, timed, tmp_path):
    log = tmp_path / "train.log"
    for folder in (tmp_path / "saved/old", server.folder / "qwen"):
        folder.mkdir(parents=True)
        (folder / "training_log.jsonl").write_text("{}\n")
    facts = LaunchFacts(working_directory=str(server.folder / "qwen"))
    (companion,) = companions(log, facts, Surroundings(timed.disk))
    assert companion.path == server.folder / "qwen/training_log.jsonl"
    server.silent = {"stat"}
    with pytest.raises(TimeoutError):
        companions(log, facts, Surroundings(timed.disk))
    server.revive()
    answered(timed)
    assert companions(log, facts, Surroundings(timed.disk)) == [companion]
    timed.close()
