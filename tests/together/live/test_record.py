"""A recording of a real daemon, killed in the middle, shows what the daemon showed."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.finished.playback.engine import Playback
from ldlm_monitor.finished.playback.recording import Fed, entries
from ldlm_monitor.finished.playback.timed_inputs import of_recording
from ldlm_monitor.service.config import Settings

pytestmark = pytest.mark.live


def played(recording: Path, folder: Path) -> Playback:
    folder.mkdir()
    playback = Playback(lambda: of_recording(recording, Settings(), folder), 100.0)
    while not playback.played().has_ended:
        playback.advance(1.0)
    return playback


def test_a_daemon_that_is_killed_leaves_what_it_was_fed(
    start: Callable[..., Any], append: Callable[[str, str], Path], tmp_path: Path
) -> None:
    log = append("a.log", "".join(f"step {step} loss 2.5\n" for step in range(30)))
    recording = tmp_path / "night.ldlm"
    daemon = start("a.log", "--record", "night.ldlm").ready()
    append("a.log", "step 30 loss nan\n")
    daemon.until("FIRING", "NonFiniteLoss")
    append("a.log", "step 31 loss 2.5\n")
    daemon.wait_for_metric('ldlm_train_step{run="a"} 31')
    for _ in range(1000):
        if any("step 31" in (each.text or "") for each in entries(recording) if type(each) is Fed):
            break
        signal.sigtimedwait([], 0.02)
    daemon.stop(signal.SIGKILL)

    playback = played(recording, tmp_path / "played")
    firing = [each.name for each in playback.snapshot().alerts if each.state == "firing"]
    assert "NonFiniteLoss" in firing
    (run,) = playback.snapshot().runs
    assert (run.name, run.step) == ("a", 31)
    opened = playback.opened("a.log")
    assert opened.size == log.stat().st_size
    opened.close()


def test_a_restart_records_what_the_logs_held_before(
    start: Callable[..., Any], append: Callable[[str, str], Path], tmp_path: Path
) -> None:
    append("a.log", "".join(f"step {step} loss 2.5\n" for step in range(30)))
    daemon = start("a.log").ready()
    daemon.stop()
    daemon = start("a.log", "--record", "second.ldlm").ready()
    daemon.wait_for_metric('ldlm_train_step{run="a"} 29')
    daemon.stop()
    (run,) = played(tmp_path / "second.ldlm", tmp_path / "played").snapshot().runs
    assert run.step == 29


def test_a_recording_that_is_there_already_is_refused(
    start: Callable[..., Any], append: Callable[[str, str], Path]
) -> None:
    append("a.log", "step 1 loss 2.5\n")
    append("night.ldlm", "precious")
    daemon = start("a.log", "--record", "night.ldlm")
    assert daemon.wait() == 2
    assert any("is there already" in line for line in daemon.messages())
