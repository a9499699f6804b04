"""The request by which the ranks of a run stop by themselves, and when none is made."""

import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ldlm_callback.rank import Beat, HeartbeatPage, Identity
from ldlm_callback.stop_request import NAME, StopRequest, read_request
from ldlm_monitor.base.snapshot import RunView, Statistics
from ldlm_monitor.host.supervise import stopping
from ldlm_monitor.host.supervise.stopping import SAVE_SECONDS, Asked, ask

NOW = 1_000_000.0
LAUNCH = "train_20260129_101500"
Ranks = Callable[..., None]


@pytest.fixture
def rank(tmp_path: Path) -> Ranks:
    """Write a rank's page into the run's folder, as its process does."""

    def write(
        number: int,
        step: int,
        *,
        heeds: bool = True,
        host: str = socket.gethostname(),
        at: float = NOW,
        status: str = "running",
        folder: Path = tmp_path,
    ) -> None:
        identity = Identity(7, 0, 0, 0, number, host.encode(), b"", b"")
        page = HeartbeatPage(folder / f"heartbeat_rank{number}", identity)
        page.beat(Beat(step=step, time=at, status=status.encode()))
        if heeds:
            page.heed_stop()
        page.sync()

    return write


def run(folder: Path, **changes: object) -> RunView:
    """A run of two ranks whose step takes a tenth of a second."""
    found = {
        "name": LAUNCH, "framework": "", "world_size": 2, "state": "running", "health": "CRITICAL",
        "step": 40, "total_steps": None, "epoch": None, "progress": None, "eta_seconds": None,
        "started_at": None, "last_progress_at": NOW, "stall_limit_seconds": None, "ended_at": None,
        "files": ("/logs/a.log", *(str(folder / f"health_rank{rank}.jsonl") for rank in (0, 1))),
        "statistics": {}, "event_counts": {}, "skipped_steps": 0, "settings": {},
        "step_seconds": 0.1,
    }  # fmt: skip
    return RunView.model_validate({**found, **changes})


def asked(view: RunView) -> Asked | None:
    return ask(view, LAUNCH, "NonFiniteLoss, --on nan=stop", NOW)


def test_all_ranks_stop_ten_seconds_of_steps_after_the_furthest(
    rank: Ranks, tmp_path: Path
) -> None:
    rank(0, 40)
    rank(1, 43)
    assert asked(run(tmp_path)) == Asked(143, pytest.approx(103 * 0.1 + SAVE_SECONDS))
    expected = StopRequest(143, "NonFiniteLoss, --on nan=stop")
    assert read_request(tmp_path, LAUNCH) == expected
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "heartbeat_rank0", "heartbeat_rank1", NAME,
    ]  # fmt: skip


def test_long_steps_are_two_and_a_save_may_take_as_long_as_a_pause_of_the_run(
    rank: Ranks, tmp_path: Path
) -> None:
    rank(0, 7)
    rank(1, 7)
    view = run(tmp_path, step_seconds=60.0, stall_limit_seconds=4000.0)
    assert asked(view) == Asked(9, pytest.approx(120.0 + 4000.0))


def test_one_slow_step_leaves_the_ranks_their_seconds(rank: Ranks, tmp_path: Path) -> None:
    rank(0, 7)
    rank(1, 7)
    usual = Statistics(
        current=5.0, mean=0.2, minimum=0.1, maximum=5.0, count=50, nonfinite=0
    )  # fmt: skip
    found = asked(run(tmp_path, step_seconds=5.0, statistics={"step_seconds": usual}))
    assert found is not None
    assert found == Asked(7 + 50, pytest.approx(50 * 5.0 + SAVE_SECONDS))


@pytest.mark.parametrize("hosts", [(socket.gethostname(), "n2"), ("n2", "n2")])
def test_ranks_on_other_hosts_get_the_time_for_which_a_client_may_cache_names(
    rank: Ranks, tmp_path: Path, hosts: tuple[str, str]
) -> None:
    for number in range(len(hosts)):
        rank(number, 40, host=hosts[number])
    found = asked(run(tmp_path))
    assert found is not None
    assert found.step == 40 + 700


def test_each_folder_of_rows_gets_the_request(rank: Ranks, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for number, folder in enumerate(folders):
        folder.mkdir()
        rank(number, 40, folder=folder)
    files = tuple(str(folder / f"health_rank{each}.jsonl") for each, folder in enumerate(folders))
    assert asked(run(tmp_path, files=files))
    assert read_request(folders[0], LAUNCH) == read_request(folders[1], LAUNCH) is not None


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"heeds": False}, "its loop does not ask"),
        ({"at": NOW - 60}, "the page is of an earlier launch"),
        ({"status": "failed"}, "it has ended"),
        (None, "it has no callback"),
    ],
)
def test_where_one_rank_would_go_on_none_is_asked(
    rank: Ranks, tmp_path: Path, other: dict[str, object] | None, why: str
) -> None:
    rank(0, 40)
    if other is not None:
        rank(1, 40, **other)
    assert asked(run(tmp_path)) is None, why
    assert not (tmp_path / NAME).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's file takes root")
def test_ranks_of_another_user_would_not_take_our_file(rank: Ranks, tmp_path: Path) -> None:
    for number in (0, 1):
        rank(number, 40)
        os.chown(tmp_path / f"heartbeat_rank{number}", 65533, -1)
    assert asked(run(tmp_path)) is None


def test_without_a_known_pace_or_without_rows_none_is_asked(rank: Ranks, tmp_path: Path) -> None:
    rank(0, 40)
    rank(1, 40)
    assert asked(run(tmp_path, step_seconds=None)) is None
    assert asked(run(tmp_path, files=(str(tmp_path / "training_log.jsonl"),))) is None


def test_a_link_in_its_place_is_replaced_and_not_followed(rank: Ranks, tmp_path: Path) -> None:
    rank(0, 40)
    rank(1, 40)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in (NAME, f".{NAME}.{os.getpid()}"):
        (tmp_path / name).symlink_to(victim)
    assert asked(run(tmp_path))
    assert victim.read_text() == "mine"
    assert read_request(tmp_path, LAUNCH)


def test_where_it_cannot_be_written_none_is_asked(rank: Ranks, tmp_path: Path) -> None:
    rank(0, 40)
    rank(1, 40)
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "kept").touch()
    assert asked(run(tmp_path)) is None
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_disk_that_does_not_answer_holds_no_signal_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it is a call that waits: a mount without its server takes root."""
    answers = threading.Event()
    monkeypatch.setattr(stopping, "ASK_SECONDS", 0.01)
    monkeypatch.setattr(stopping, "_step_seconds", lambda _: answers.wait() and [])
    before = threading.enumerate()
    assert asked(run(tmp_path)) is None
    answers.set()
    for each in threading.enumerate():
        if each not in before:
            each.join()
