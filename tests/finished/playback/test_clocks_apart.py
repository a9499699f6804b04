"""Each run is judged up to its own end, or the end of files with times: no guess moves it on."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ldlm_monitor.base.snapshot import RunView
from ldlm_monitor.base.text.lines import StatusLines
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.finished.report.plain_text import health_report
from ldlm_monitor.logs.history.arrival_times import FROM_LAST_WRITE, FROM_LINE_ABOVE, ONLY_ORDER
from ldlm_monitor.service.config import Settings

TODAY = 1_790_000_000.0  # four months after the lines; when all files were copied
STEPS = "".join(
    f"2026-05-28 20:00:{second:02} - INFO - step {second} loss 2.{second} lr 3e-4\n"
    for second in range(60)
)
LATER = "2026-05-28 21:00:00 - INFO - step 7 loss 1.5 lr 3e-4\n"
BEGIN = "2026-05-28 20:00:00 - INFO - begin\n"
BARS = "".join(
    f"\rTraining:  {step}%|# | {step}/100 [00:{step:02}<01:00, 1.0it/s, Loss=1.0]"
    for step in range(30)
)


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


def runs(folder: Path, **texts: str) -> Iterator[RunView]:
    """The runs of logs that were copied today, by their names, in their order."""
    paths = []
    for name, text in texts.items():
        path = folder / f"{name}.log"
        path.write_text(text)
        os.utime(path, (TODAY, TODAY))
        paths.append(str(path))
    found = {run.name: run for run in Replay(Settings(files=tuple(paths))).end().runs}
    return (found[name] for name in texts if name in found)


@pytest.mark.parametrize("notes", ["milk\nbread\n", BARS, '{"step": 1, "loss": 2.0}\n'])
def test_a_file_without_times_does_not_stall_another_run(tmp_path: Path, notes: str) -> None:
    train, *_ = runs(tmp_path, alpha=STEPS, beta=notes)
    assert (train.state, train.health) == ("running", "HEALTHY")


def test_a_file_with_times_that_go_on_shows_that_another_run_is_silent(tmp_path: Path) -> None:
    train, other = runs(tmp_path, alpha=STEPS, beta=LATER)
    assert (train.state, other.state) == ("stalled", "running")


def test_lines_without_times_do_not_stall_their_own_run(tmp_path: Path) -> None:
    """Standard error beside the log: its last write is that of a copy."""
    for name, text in (("train_20260528_200000_node0.log", STEPS), ("train.err", "a warning\n")):
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (TODAY, TODAY))
    replay = Replay(Settings(files=(str(tmp_path / "*"),)))
    run = max(replay.end().runs, key=lambda run: run.step or 0)
    assert run.state == "running"


def test_a_run_tells_up_to_when_it_is_judged_where_that_is_not_the_end_of_all(
    tmp_path: Path,
) -> None:
    train, *_ = runs(tmp_path, alpha=STEPS, beta="milk\n")
    assert train.judged_to == train.last_progress_at


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (STEPS, None),
        (BEGIN + BARS + "\n2026-05-28 20:00:40 - INFO - saved\n", None),
        (BARS, FROM_LAST_WRITE),
        (BEGIN + BARS, FROM_LINE_ABOVE),
        ('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 2.0}\n', ONLY_ORDER),
    ],
)
def test_a_time_that_is_a_guess_is_marked_and_says_why(
    tmp_path: Path, text: str, why: str | None
) -> None:
    (path := tmp_path / "alpha.log").write_text(text)
    snapshot = Replay(Settings(files=(str(path),))).end()
    (run,) = snapshot.runs
    assert (run.guess and run.guess.why) == why
    page, mark = health_report(snapshot), "≈" if why else ""
    assert f"Last step    {mark}20" in page
    assert ("Times        ≈: its" in page) is bool(why)
    assert f"last step {mark}" in next(StatusLines().of(snapshot, snapshot.at))


def test_no_time_is_invented_between_a_line_and_the_bars_of_a_copied_log(tmp_path: Path) -> None:
    (train,) = runs(tmp_path, alpha=BEGIN + BARS)
    assert train.goodput is not None
    assert train.goodput.total_seconds == pytest.approx(29, abs=1)


def test_the_time_between_a_line_and_bars_is_a_start_where_a_line_below_shows_it(
    tmp_path: Path,
) -> None:
    below = "\n2026-05-28 20:00:50 - INFO - saved\n"
    (train,) = runs(tmp_path, alpha=BEGIN + BARS + below)
    assert train.goodput is not None
    assert train.goodput.total_seconds == pytest.approx(50, abs=1)
