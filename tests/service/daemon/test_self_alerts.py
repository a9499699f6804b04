"""A monitor in trouble says so: the real pump, outbox and files; only the time is an argument."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ldlm_monitor.base.errors import DeliveryError
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.notify.message import Receipt
from ldlm_monitor.service.state.state_dir import StateDir
from tests.service.daemon.watching import NOW, Watching

BAR = "\rTraining:   1%|▏| 5/950 [00:05<09:00,  1.00it/s, Epoch=0/1, Progress=1.0%, Loss=2.3, "
NAN = "WARNING: Invalid text_loss detected: nan\n"
MIB = 1024 * 1024


class Watched(Watching):
    """A pump whose messages go to two receivers."""

    def __init__(self, folder: Path, state: Path) -> None:
        self.log = folder / "train_20260129_101500_node0.log"
        self.log.write_text(BAR, "utf-8")
        self.now = NOW
        self.folder = StateDir(state)
        settings = Settings(files=(str(folder / "*.log"),))
        self.start(settings, state, receivers=("slack", "pager"), folder=self.folder)
        self.notified: list[tuple[str, str]] = []
        self.turn(0)

    def turn(self, seconds: float) -> None:
        """Go on by so many seconds; the pager takes all that waits for it."""
        self.now += seconds
        self.pump.turn(None, self.now)
        while (pending := self.outbox.due("pager", self.now)) is not None:
            self.notified.append((pending.message.lead.alert, pending.message.lead.state))
            self.outbox.accepted(pending, self.now, Receipt())

    def until(self, pair: tuple[str, str], within: float, step: float = 5.0) -> None:
        end = self.now + within
        while pair not in self.notified:
            assert self.now < end, self.notified
            self.turn(step)

    def slack_is_down(self) -> None:
        while (pending := self.outbox.due("slack", self.now)) is not None:
            self.outbox.failed(pending, DeliveryError("no answer"), self.now)

    def slack_takes_all(self) -> None:
        while (pending := self.outbox.due("slack", self.now)) is not None:
            self.outbox.accepted(pending, self.now, Receipt())

    def close(self) -> None:
        super().close()
        self.folder.close()


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    watched: list[Watched] = []

    def begin(state: Path | None = None) -> Watched:
        (tmp_path / "logs").mkdir()
        watched.append(Watched(tmp_path / "logs", state or tmp_path))
        return watched[-1]

    yield begin
    for each in watched:
        each.close()


def test_a_receiver_that_is_down_for_an_hour_is_told_to_the_other_one_once_and_its_return_too(
    watch: Callable[..., Watched],
) -> None:
    watched = watch()
    with watched.log.open("a") as log:
        log.write("\n" + NAN)
    while watched.now < NOW + 3600:
        watched.turn(5)
        watched.slack_is_down()
    about = [pair for pair in watched.notified if pair[0] == "MonitorCannotDeliver"]
    assert about == [("MonitorCannotDeliver", "firing")]
    told_at = next(
        alert.fired_at
        for alert in watched.pump.snapshot.alerts
        if alert.name == "MonitorCannotDeliver"
    )
    assert told_at is not None
    assert told_at < NOW + 120
    watched.turn(300)
    watched.slack_takes_all()
    watched.until(("MonitorCannotDeliver", "resolved"), within=1300)


def test_a_receiver_that_hiccups_is_no_alert(watch: Callable[..., Watched]) -> None:
    watched = watch()
    with watched.log.open("a") as log:
        log.write("\n" + NAN)
    watched.turn(1)
    watched.slack_is_down()
    watched.turn(2)
    watched.slack_is_down()
    watched.turn(4)
    watched.slack_takes_all()
    while watched.now < NOW + 1800:
        watched.turn(10)
        watched.slack_takes_all()
    assert "MonitorCannotDeliver" not in {alert for alert, _ in watched.notified}


def test_a_log_that_cannot_be_read_is_told(watch: Callable[..., Watched]) -> None:
    watched = watch()
    # Root cannot read this one either.
    (watched.log.parent / "locked.log").symlink_to("/proc/self/mem")
    watched.until(("MonitorCannotRead", "firing"), within=150)
    (watched.log.parent / "locked.log").unlink()
    watched.until(("MonitorCannotRead", "resolved"), within=150)


def test_logs_that_grow_faster_than_they_are_read_are_told(watch: Callable[..., Watched]) -> None:
    watched = watch()
    with watched.log.open("ab") as log:
        log.truncate(200 * MIB)
    watched.turn(1)
    watched.turn(121)
    assert ("MonitorBehind", "firing") not in watched.notified, "not before two minutes have passed"
    watched.turn(10)
    assert ("MonitorBehind", "firing") in watched.notified


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of its own, with room for 8 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a disk takes root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_is_nearly_full_is_told(
    watch: Callable[..., Watched], small_disk: Path
) -> None:
    watched = watch(small_disk)
    watched.until(("MonitorDiskFilling", "firing"), within=150)


def test_the_room_of_a_disk_is_told_anew_when_it_changed_by_a_hundredth(small_disk: Path) -> None:
    room = StateDir(small_disk)
    first = room.look()
    assert first is not None
    assert first <= 8 * MIB
    (small_disk / "little").write_bytes(bytes(8192))
    assert room.look() == first
    (small_disk / "much").write_bytes(bytes(MIB))
    assert room.look() == first - 8192 - MIB
    room.close()


def test_a_disk_with_room_is_no_alert(watch: Callable[..., Watched], tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    if disk.f_bavail * disk.f_frsize < 9 * 1024 * MIB:
        pytest.skip("this disk is nearly full")
    watched = watch()
    for _ in range(60):
        watched.turn(10)
    assert not {alert for alert, _ in watched.notified if alert.startswith("Monitor")}


def test_records_that_are_cut_are_counted_as_dropped(watch: Callable[..., Watched]) -> None:
    watched = watch()
    assert watched.pump.snapshot.monitor.dropped["truncated"] == 0
    with watched.log.open("a") as log:
        log.write("\n" + "x" * 2 * MIB + "\n" + NAN)
    for _ in range(12):
        watched.turn(5)
    assert watched.pump.snapshot.monitor.dropped["truncated"] == 1
