"""A server that does not answer holds up its own files, and no others."""

import os
import threading
from pathlib import Path

import pytest

from ldlm_monitor.logs.source.file_system import Disk, Mount, MountTable
from ldlm_monitor.logs.source.follower import Follower


@pytest.fixture
def follower(server) -> Follower:
    return Follower(disk=server.disk, mounts=lambda: server.table)


def read_until(follower: Follower, count: int, now: float) -> list[bytes]:
    """All that comes until `count` chunks did: a thread answers in its own time."""
    found: list[bytes] = []
    while len(found) < count:
        found += [chunk.data for chunk in follower.read(None, now)]
    return found


@pytest.mark.parametrize("call", ["stat", "open", "pread"])
def test_the_other_files_are_read_while_a_server_does_not_answer(server, follower, tmp_path, call):
    here, there = tmp_path / "local.log", server.folder / "remote.log"
    here.write_bytes(b"local 1\n")
    there.write_bytes(b"remote 1\n")
    server.silent = {call}
    follower.add(there)
    follower.add(here)
    assert read_until(follower, 1, 1000.0) == [b"local 1\n"]
    os.read(server.entered, 1)
    for second in range(1, 20):
        with here.open("ab") as file:
            file.write(b"local more\n")
        assert [chunk.data for chunk in follower.read(None, 1000.0 + second)] == [b"local more\n"]
    (notice,) = follower.journal.drain()
    assert str(notice) == (
        f"{there}: no answer from {server.folder} (nfs4) for 5s; other files are still read"
    )
    server.revive()
    assert read_until(follower, 1, 1030.0) == [b"remote 1\n"]
    assert [notice.kind for notice in follower.journal.drain()] == ["answering"]
    follower.close()


def test_what_a_stalled_server_holds_is_not_waited_for_at_the_end(server, follower, tmp_path):
    there = server.folder / "remote.log"
    there.write_bytes(b"remote 1\n")
    server.silent = {"pread"}
    follower.add(there)
    assert list(follower.read(None, 1000.0)) == []
    os.read(server.entered, 1)
    before = follower.positions()
    assert list(follower.finish()) == []
    assert before == follower.positions() == []
    (thread,) = (each for each in threading.enumerate() if each.name == f"read {server.folder}")
    follower.close()
    server.revive()
    thread.join(30)


def test_a_link_that_is_led_to_a_server_that_does_not_answer_holds_up_nobody(
    server, follower, tmp_path
):
    first, second = tmp_path / "run1.log", server.folder / "run2.log"
    link, swap = tmp_path / "latest.log", tmp_path / "swap"
    first.write_bytes(b"a1\n")
    second.write_bytes(b"b1\n")
    link.symlink_to(first)
    follower.add(link)
    assert read_until(follower, 1, 1000.0) == [b"a1\n"]
    server.silent = {"stat"}
    swap.symlink_to(second)
    swap.replace(link)
    with first.open("ab") as file:
        file.write(b"a2\n")
    assert [chunk.data for chunk in follower.read({link}, 1001.0)] == []
    assert [chunk.data for chunk in follower.read(None, 1002.0)] == [b"a2\n"]
    server.revive()
    assert read_until(follower, 1, 1003.0) == [b"b1\n"]
    follower.close()


def test_files_on_a_network_are_followed_like_others(server, follower):
    logs = [server.folder / f"{rank}.log" for rank in range(4)]
    for log in logs:
        log.write_bytes(b"one\ntw")
        follower.add(log)
    assert sorted(read_until(follower, 4, 1000.0)) == [b"one\n"] * 4
    logs[0].rename(server.folder / "0.log.1")
    logs[0].write_bytes(b"new\n")
    assert read_until(follower, 1, 1000.25) == [b"new\n"]
    assert {position.offset for position in follower.positions()} == {4}
    assert len(follower.positions()) == 5
    ends = [chunk.data for chunk in follower.finish()]
    assert sorted(ends) == [b"", b"tw", b"tw", b"tw", b"tw"]
    follower.close()


def test_what_a_slow_local_disk_has_comes_with_a_later_read(tmp_path, monkeypatch):
    log = tmp_path / "train.log"
    log.write_bytes(b"one\n")
    answers = threading.Event()

    def stat(path: Path) -> os.stat_result:
        assert answers.wait(30)
        return os.stat(path)

    monkeypatch.setattr("ldlm_monitor.logs.source.follower.LOCAL_SECONDS", 0.01)
    follower = Follower(disk=Disk(stat=stat), mounts=lambda: MountTable(""))
    follower.add(log)
    assert list(follower.read(None, 1000.0)) == []
    assert list(follower.read(None, 1006.0)) == []
    (notice,) = follower.journal.drain()
    assert "no answer from the local disks for 6s" in str(notice)
    answers.set()
    assert read_until(follower, 1, 1007.0) == [b"one\n"]
    monkeypatch.undo()
    follower.close()


TABLE = MountTable(
    "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    "30 22 0:40 / /data rw - lustre mds@tcp:/data rw\n"
    "31 22 0:41 / /mnt/a\\040b rw - fuse.sshfs host: rw\n"
    "32 22 0:42 / /home rw - autofs auto.home rw\n"
    "33 32 0:43 / /home/me rw - xfs /dev/vdb rw\n"
)


@pytest.mark.parametrize(
    ("path", "point", "kind"),
    [
        ("/data/logs/train.log", "/data", "lustre"),
        ("/data", "/data", "lustre"),
        ("/database/x", "/", "ext4"),
        ("/mnt/a b/x.log", "/mnt/a b", "fuse"),
        ("/database/../data/x", "/data", "lustre"),
        ("/var/log/../x", "/", "ext4"),
        ("/home/me/x", "/home", "autofs"),
    ],
)
def test_the_mount_of_a_path_is_the_deepest_or_the_first_on_a_network(path, point, kind):
    mount = TABLE.of(Path(path))
    assert (mount.point, mount.kind) == (point, kind)


def test_links_are_followed_to_a_mount_and_circles_end(tmp_path):
    link, circle = tmp_path / "link", tmp_path / "circle"
    link.symlink_to("/data/logs")
    circle.symlink_to(circle)
    assert TABLE.of(link / "train.log").kind == "lustre"
    assert TABLE.of(circle / "x").kind == "ext4"


def test_a_system_that_tells_nothing_has_no_mounts(tmp_path):
    assert MountTable("").of(tmp_path) == Mount()
