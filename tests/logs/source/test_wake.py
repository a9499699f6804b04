"""The doorbell: real file events, what happens when they fail, and waiting without them."""

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ldlm_monitor.logs.source import wake
from ldlm_monitor.logs.source.file_system import MountTable, read_mounts
from ldlm_monitor.logs.source.follower import Follower
from ldlm_monitor.logs.source.notices import Journal
from ldlm_monitor.logs.source.wake import CHECKED_FILES, Rota, Waker, file_events
from ldlm_monitor.logs.source.watchdog_events import WatchdogEvents

LONG = 30.0
"""Never waited for when all is well: something rings."""


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture(params=[file_events, WatchdogEvents], ids=["system", "watchdog"])
def waker(request, monkeypatch, journal, tmp_path):
    """With the events of this system, and with those of others, which come by watchdog."""
    monkeypatch.setattr(wake, "file_events", request.param)
    waker = Waker(journal)
    waker.watch([tmp_path])
    yield waker
    waker.close()


def wait_for(waker: Waker, path: Path) -> None:
    while True:
        rung = waker.wait(LONG)
        assert rung, f"nothing rang for {path}"
        if path in rung:
            return


def test_a_line_written_rings_and_is_read(waker, tmp_path):
    log = tmp_path / "train.log"
    follower = Follower()
    follower.add(log)
    log.write_bytes(b"one\n")
    wait_for(waker, log)
    assert [chunk.data for chunk in follower.read({log}, 0.0)] == [b"one\n"]
    follower.close()


def test_creation_renaming_and_deletion_ring(waker, tmp_path):
    a, b = tmp_path / "a.log", tmp_path / "b.log"
    a.touch()
    wait_for(waker, a)
    a.rename(b)
    wait_for(waker, b)
    b.unlink()
    wait_for(waker, b)


def test_our_own_reading_does_not_ring(waker, tmp_path):
    log, other = tmp_path / "train.log", tmp_path / "other.log"
    log.write_bytes(b"one\n")
    wait_for(waker, log)
    log.read_bytes()
    other.touch()
    assert log not in waker.wait(LONG), "a later event came first"


def test_folders_can_be_watched_later_and_again_after_they_came_back(waker, tmp_path):
    folder = tmp_path / "later"
    log = folder / "x.log"
    waker.watch([tmp_path, folder])
    for _ in range(2):
        folder.mkdir()
        waker.watch([tmp_path, folder])
        log.touch()
        wait_for(waker, log)
        log.unlink()
        folder.rmdir()
        wait_for(waker, folder)


def test_a_hand_rings_too(waker):
    threading.Timer(0, waker.ring, [Path("-")]).start()
    assert waker.wait(LONG) == {Path("-")}


def test_a_network_file_system_is_polled_and_it_is_said_once(journal, tmp_path):
    table = MountTable(f"36 35 0:51 / {tmp_path} rw,noatime - nfs4 server:/logs rw\n")
    folders = [tmp_path / "a", tmp_path / "b"]
    waker = Waker(journal, mounts=lambda: table)
    waker.watch(folders)
    waker.watch(folders)
    assert waker.polling
    (notice,) = journal.drain()
    assert str(notice) == (f"{tmp_path} (nfs4) is a network file system; polling every 0.25s")
    waker.close()


LIMITED = """
import sys
from pathlib import Path
from ldlm_monitor.logs.source.notices import Journal
from ldlm_monitor.logs.source.wake import CHECKED_FILES, Rota, Waker
journal = Journal()
waker = Waker(journal)
waker.watch([Path(name) for name in sys.argv[1:]])
print(waker.polling, *journal.drain(), sep="\\n")
waker.close()
"""


@pytest.mark.parametrize(
    ("limit", "value"), [("max_inotify_watches", 1), ("max_inotify_instances", 0)]
)
def test_beyond_the_limits_of_the_system_it_polls_and_says_so_once(tmp_path, limit, value):
    """In a user namespace, which has limits of its own (user_namespaces(7))."""
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    entered = ["unshare", "--user", "--map-root-user", "sh", "-c"]
    lowered = f"echo {value} > /proc/sys/user/{limit}"
    if (
        shutil.which("unshare") is None
        or subprocess.run([*entered, lowered], check=False, capture_output=True).returncode
    ):
        pytest.skip("no user namespace can be made here")
    done = subprocess.run(
        [*entered, lowered + ' && exec "$@"', "sh", sys.executable, "-c", LIMITED, *folders],
        check=True,
        capture_output=True,
        text=True,
    )
    polling, *notices = done.stdout.splitlines()
    assert polling == "True"
    (notice,) = notices
    assert notice.startswith("not every folder can be watched (raise the sysctl fs.inotify.")


def test_the_file_system_of_proc_is_proc():
    assert read_mounts().of(Path("/proc/self")).kind == "proc"


def test_of_very_many_watched_files_a_part_is_checked_in_a_turn_and_each_in_its_turn(
    waker, tmp_path
):
    unwatched = tmp_path / "unwatched"
    names = [tmp_path / f"{number}.log" for number in range(2 * CHECKED_FILES)]
    followed = {path: path for path in [*names, unwatched / "a.log"]}
    followed[unwatched / "run1.log"] = tmp_path / "latest.log"
    always = {unwatched / "a.log", tmp_path / "latest.log"}
    rota = Rota(waker.watches)
    first, second, again = (rota.turn(followed) for _ in range(3))
    assert first | second == {*names, *always}
    assert first & second == always
    assert again == first


def test_few_files_are_all_checked_in_each_turn(waker, tmp_path):
    assert Rota(waker.watches).turn({tmp_path / "a.log": tmp_path / "a.log"}) is None


def test_a_name_that_is_followed_no_more_is_checked_no_more(waker, tmp_path):
    names = [tmp_path / "unwatched" / f"{number}.log" for number in range(CHECKED_FILES + 2)]
    rota = Rota(waker.watches)
    assert rota.turn({path: path for path in names}) == {*names}
    assert rota.turn({path: path for path in names[1:]}) == {*names[1:]}


@pytest.mark.parametrize("waker", [file_events], indirect=True)
def test_two_names_of_one_folder_both_ring(waker, tmp_path):
    folder, link = tmp_path / "logs", tmp_path / "latest"
    folder.mkdir()
    link.symlink_to(folder)
    waker.watch([folder, link])
    (folder / "a.log").touch()
    assert waker.wait(LONG) == {folder / "a.log", link / "a.log"}
    waker.watch([link])
    (folder / "b.log").touch()
    assert waker.wait(LONG) == {link / "b.log"}


@pytest.mark.parametrize("waker", [file_events], indirect=True)
def test_a_folder_that_was_moved_away_is_watched_no_more_and_the_one_in_its_place_is(
    waker, tmp_path
):
    folder = tmp_path / "logs"
    folder.mkdir()
    waker.watch([tmp_path, folder])
    folder.rename(tmp_path / "old")
    wait_for(waker, folder)
    assert not waker.watches(folder)
    folder.mkdir()
    waker.watch([tmp_path, folder])
    (tmp_path / "old/a.log").touch()
    (folder / "b.log").touch()
    assert waker.wait(LONG) == {folder, folder / "b.log"}


def test_where_the_system_dropped_events_any_file_may_have_changed(waker, tmp_path):
    queued = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for _ in range(queued // 4 + 1):  # like events that follow each other are merged
        for name in "abcdefgh":
            (tmp_path / name).write_bytes(b"")
    assert waker.wait(LONG) is None
