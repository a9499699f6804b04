"""What is played back is what a replay reports, at any speed, and nothing before its time."""

from itertools import pairwise
from pathlib import Path

import pytest

from ldlm_monitor.finished.playback.engine import Playback
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.finished.playback.recording import Recorder
from ldlm_monitor.finished.playback.timed_inputs import of_logs, of_recording
from tests.finished.replaying import Asked, asked

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "train_logs"
NAN = EXAMPLES / "train_20261121_083451_node0.log"


def of_nan(speed: float | None = None) -> Playback:
    return Playback(lambda: of_logs(asked(NAN)), speed)


def to_the_end(playback: Playback, seconds: float = 1.0) -> None:
    while not playback.played().has_ended:
        playback.advance(seconds)


def reported(playback: Playback) -> list[tuple[str, str, float | None]]:
    transitions = playback.snapshot().transitions
    return [(each.alert, each.state, each.time) for each in transitions if not each.is_heartbeat]


def replayed(path: Path) -> list[tuple[str, str, float | None]]:
    replay = Replay(asked(path))
    for _ in replay.transitions():
        pass
    transitions = replay.snapshot().transitions
    return [(each.alert, each.state, each.time) for each in transitions if not each.is_heartbeat]


@pytest.mark.parametrize(("speed", "seconds"), [(1.0, 0.7), (50.0, 0.05), (1e5, 1.0)])
def test_at_any_speed_it_tells_what_a_replay_tells(speed: float, seconds: float) -> None:
    playback = of_nan(speed)
    to_the_end(playback, seconds)
    assert reported(playback) == replayed(NAN)
    assert any(alert == "NonFiniteLoss" for alert, _, _ in reported(playback))


def test_the_clock_goes_on_by_the_speed_and_stops_on_wish() -> None:
    playback = of_nan(2.0)
    start = playback.at
    playback.advance(3.0)
    assert playback.at == pytest.approx(start + 6.0)
    playback.toggle()
    playback.advance(60.0)
    assert playback.at == pytest.approx(start + 6.0)
    playback.toggle()
    playback.change_speed(1)
    playback.advance(1.0)
    assert playback.at == pytest.approx(start + 11.0)


def test_without_a_wish_all_of_it_takes_two_minutes_at_most() -> None:
    played = of_nan().played()
    assert played.end - played.start <= 120 * played.speed


def test_it_goes_to_the_next_alert_and_stops_there() -> None:
    playback = of_nan(1.0)
    playback.seek_alert()
    while playback.played().seeks:
        playback.advance(0.05)
    played = playback.played()
    assert played.alert == "NonFiniteLoss"
    assert played.run == "train_20261121_083451"
    assert not played.is_playing
    firing = {alert.name for alert in playback.snapshot().alerts if alert.state == "firing"}
    assert "NonFiniteLoss" in firing
    at = playback.at
    playback.advance(10.0)
    assert playback.at == at


def test_a_search_for_an_alert_ends_with_the_logs() -> None:
    playback = Playback(lambda: of_logs(asked(EXAMPLES / "train_20261121_083409_node0.log")))
    playback.seek_alert()
    for _ in range(10_000):
        playback.advance(0.05)
        if playback.played().has_ended:
            break
    assert playback.played().alert == ""
    assert playback.played().has_ended


def test_the_log_holds_nothing_from_the_future() -> None:
    playback = of_nan(1.0)
    sizes = []
    while not playback.played().has_ended:
        playback.advance(5.0)
        log = playback.opened(str(NAN))
        sizes.append(log.size)
        log.close()
    assert sizes == sorted(sizes)
    assert 0 < sizes[0] < sizes[-1] == NAN.stat().st_size


def test_it_can_begin_again() -> None:
    playback = of_nan(1e5)
    to_the_end(playback)
    first = reported(playback)
    playback.rewind()
    assert playback.snapshot().transitions == ()
    to_the_end(playback)
    assert reported(playback) == first


def test_lines_that_tell_their_time_come_at_that_time(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    lines = [f"2026-11-21 08:{n // 60:02d}:{n % 60:02d} step {n} loss 2.{n}\n" for n in range(300)]
    log.write_text("".join(lines))
    playback = Playback(lambda: of_logs(asked(log)), 1.0)
    played = playback.played()
    assert played.end - played.start == pytest.approx(299)
    playback.advance(100.5)
    assert playback.opened(str(log)).size == sum(map(len, lines[:101]))


def test_lines_without_a_time_come_one_after_the_other(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("".join(f"step {n} loss 2.{n}\n" for n in range(50)))
    playback = Playback(lambda: of_logs(asked(log)), 1.0)
    sizes = []
    for _ in range(20):
        playback.advance(1.0)
        sizes.append(playback.opened(str(log)).size)
    assert all(before < after for before, after in pairwise(sizes))


def recording_of(path: Path, place: Path) -> Path:
    """What a recorder keeps of a log that grows as this one did."""
    replay = Replay(asked(path), ahead=False)
    started = False
    for when, piece, _ in replay.history.play():
        if not started:
            recorder, started = Recorder(place, path.name, when), True
        recorder.fed(piece, replay.monitor.names.origin(piece.path).run, when)
        recorder.turn(when)
    recorder.close()
    return place


def test_a_recording_is_played_like_the_log_itself(tmp_path: Path) -> None:
    recording = recording_of(NAN, tmp_path / "nan.ldlm")
    folder = tmp_path / "logs"
    folder.mkdir()
    playback = Playback(lambda: of_recording(recording, Asked(), folder), 100.0)
    to_the_end(playback, 0.3)
    # A recording ends before a replay's clock does, which finds that the run has finished.
    firing = [each for each in reported(playback) if each[1] == "firing"]
    replay = [each for each in replayed(NAN) if each[:2] != ("RunFinished", "firing")]
    assert firing == [each for each in replay if each[1] == "firing"]
    (run,) = playback.snapshot().runs
    assert run.name == "train_20261121_083451"
    log = playback.opened(str(NAN))
    assert log.size == NAN.stat().st_size
    log.close()


def test_what_a_recording_held_when_it_began_is_there_at_once(tmp_path: Path) -> None:
    replay = Replay(asked(NAN), ahead=False)
    pieces = [(when, piece) for when, piece, _ in replay.history.play()]
    middle = pieces[len(pieces) // 2][0]
    recorder = Recorder(tmp_path / "half.ldlm", NAN.name, middle)
    for when, piece in pieces:
        recorder.fed(piece, replay.monitor.names.origin(piece.path).run, when)
    recorder.close()
    playback = Playback(lambda: of_recording(tmp_path / "half.ldlm", Asked(), tmp_path), 1.0)
    assert playback.at == middle
    playback.advance(0.0)
    (run,) = playback.snapshot().runs
    assert run.step is not None
    assert run.step > 0
