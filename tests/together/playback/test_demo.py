"""The recording that comes with the package."""

from importlib.resources import files
from pathlib import Path

from ldlm_monitor.finished.playback.engine import Playback
from ldlm_monitor.finished.playback.timed_inputs import of_recording
from ldlm_monitor.service.cli.replay import RECORDING, SPEED
from ldlm_monitor.service.config import Settings

DEMO = Path(str(files("ldlm_monitor.finished.playback") / RECORDING))


def test_the_demo_shows_a_nan_a_hang_and_a_slow_rank_within_a_minute(tmp_path: Path) -> None:
    playback = Playback(lambda: of_recording(DEMO, Settings(), tmp_path), SPEED)
    played = playback.played()
    assert (played.end - played.start) / played.speed < 60
    while not playback.played().has_ended:
        playback.advance(0.5)
    firing = {
        (each.alert, each.labels["run"], each.labels.get("rank"))
        for each in playback.snapshot().transitions
        if each.state == "firing" and not each.is_heartbeat
    }
    assert {
        ("NonFiniteLoss", "lr-3e-3", "1"),
        ("TrainingStalled", "t2l", None),
        ("RankStraggling", "wide", "2"),
    } <= firing
    (incident,) = (each for each in playback.snapshot().incidents if each.run == "t2l")
    assert "rank 2" in incident.title
