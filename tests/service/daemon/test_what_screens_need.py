"""What a screen needs beside the judged runs: inputs without one, events of all, detail on zoom."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ldlm_monitor.base.snapshot import CurveView, Snapshot
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.judge.core.recent_records import RecentRecords
from ldlm_monitor.judge.run.curve import CAPACITY
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.daemon.local_source import LocalSource
from ldlm_monitor.service.daemon.pictures import INPUTS_SECONDS
from ldlm_monitor.service.daemon.pump import Pump
from ldlm_monitor.service.notify.silences import Silences
from tests.service.daemon.watching import NOW, Watching


@pytest.fixture
def pump(tmp_path: Path) -> Iterator[Pump]:
    files = tuple(str(tmp_path / name) for name in ("later.log", "novel.txt", "train.log"))
    settings = Settings(files=files, companions=False)
    watching = Watching()
    watching.start(settings, tmp_path, receivers=())
    yield watching.pump
    watching.close()


def rows(steps: range, loss: float | str = 2.0, rank: int = 0, total: int = 0) -> str:
    more = {"total_steps": total} if total else {}
    return "".join(
        json.dumps({"step": step, "loss": loss, "rank": rank, "time": NOW + step, **more}) + "\n"
        for step in steps
    )


def read(path: Path) -> Snapshot:
    replay = Replay(Settings(files=(str(path),), run="r"))
    list(replay.transitions())
    return replay.snapshot()


def test_an_input_without_a_run_has_its_reason(pump: Pump, tmp_path: Path) -> None:
    (tmp_path / "novel.txt").write_text("It was a bright cold day in April.\n" * 2310)
    (tmp_path / "train.log").write_text("step 1 loss 2.5\nstep 2 loss 2.4\n")
    pump.turn(None, NOW)
    found = {Path(each.name).name: (each.state, each.lines) for each in pump.snapshot.inputs}
    assert found == {
        "later.log": ("waiting", None),
        "novel.txt": ("no training recognised", 2310),
    }
    (tmp_path / "later.log").write_text("step 1 loss 2.5\nstep 2 loss 2.4\n")
    pump.turn({tmp_path / "later.log"}, NOW + 2 * INPUTS_SECONDS)
    pump.turn(None, NOW + 4 * INPUTS_SECONDS)
    assert [Path(each.name).name for each in pump.snapshot.inputs] == ["novel.txt"]


def test_runs_show_while_their_files_are_read_but_nothing_is_judged(
    pump: Pump, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.log").write_text(rows(range(1, 6_000), "NaN"))
    seen: list[Snapshot] = []
    show = pump.pictures.show_reading

    def shown(reading: float | None, judged_to: float | None) -> None:
        show(reading, judged_to)
        seen.append(pump.pictures.preview)

    monkeypatch.setattr("ldlm_monitor.service.daemon.backfill.SLICE_SECONDS", 0.0)
    monkeypatch.setattr(pump.pictures, "show_reading", shown)
    pump.turn(None, NOW + 10)
    early = [each for each in seen if each.runs]
    assert early
    assert not any(each.alerts for each in early)
    assert {each.runs[0].health for each in early} == {"READING"}
    assert pump.pictures.preview is pump.snapshot
    assert pump.snapshot.runs[0].reasons


def test_a_noisy_run_does_not_displace_the_one_event_of_another() -> None:
    recent = RecentRecords[tuple[str, int]](10, lambda item: item[0])
    recent.extend([("quiet", 0)])
    recent.extend(("noisy", number) for number in range(1, 1000))
    assert recent.items() == (("quiet", 0), *(("noisy", number) for number in range(991, 1000)))


def test_a_nan_of_any_rank_keeps_its_step_however_long_the_run(tmp_path: Path) -> None:
    log = tmp_path / "rank.jsonl"
    lines = [rows(range(step, step + 1), rank=rank) for step in range(1, 3000) for rank in (0, 1)]
    lines[2 * 43 + 1] = rows(range(44, 45), "NaN", rank=1)
    log.write_text("".join(lines))
    (mark,) = read(log).runs[0].nonfinite
    assert (mark.step, mark.rank, mark.quantity) == (44, 1, "loss")


def test_of_too_many_non_finite_steps_the_first_stays(tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    log.write_text(rows(range(1, 44)) + rows(range(44, 2000), "NaN"))
    marks = read(log).runs[0].nonfinite
    assert marks[0].step == 44
    assert len(marks) <= 256
    assert marks[-1].step > 1900


def test_the_time_between_two_attempts_is_no_step(tmp_path: Path) -> None:
    """The time left is that of the attempt's own steps, although it was down for a day."""
    log = tmp_path / "train_20260129_101500_node0.log"
    step = "2026-01-{day} 10:{minute:02}:00 step {step}/1000 loss 2.5\n"
    first = "".join(step.format(day=29, minute=m, step=m + 1) for m in range(20))
    then = "".join(step.format(day=30, minute=m, step=m + 21) for m in range(3))
    error = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nRuntimeError: no\n'
    log.write_text(first + error + "*** Starting MMDiT training ***\n" + then)
    (run,) = read(log).runs
    assert run.step == 23
    assert run.step_seconds == pytest.approx(60.0)


def curve(source: LocalSource, start: int | None, end: int | None) -> CurveView:
    found = source.series("r", "loss", start, end, 4096)
    assert found is not None
    return found


def test_a_part_of_a_long_curve_has_each_of_its_steps(tmp_path: Path) -> None:
    log = tmp_path / "long.jsonl"
    spike = rows(range(2_001, 2_002), 40.0)
    log.write_text(rows(range(1, 2_001)) + spike + rows(range(2_002, 6_001)))
    snapshot = read(log)
    silences = Silences(tmp_path / "silences.sqlite")
    source = LocalSource(lambda: snapshot, silences, "long")
    assert len(curve(source, None, None).steps) <= CAPACITY
    part = curve(source, 1_900, 2_099)
    assert list(part.steps) == list(range(1_900, 2_100))
    index = list(part.steps).index(2_001)
    assert part.means[index] == 40.0
    assert part.means[index - 1] == part.means[index + 1] == 2.0
    assert part.times[index] == NOW + 2_001
    log.write_text("")  # rotated away: what memory has
    assert len(curve(source, 1_900, 2_099).steps) < 40
    silences.close()
