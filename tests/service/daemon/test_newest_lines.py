"""A start shows what the newest lines say, as READING, before it judges any history."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ldlm_monitor.base.snapshot import RunView, Snapshot
from ldlm_monitor.base.text.format import iso
from ldlm_monitor.base.text.lines import StatusLines
from ldlm_monitor.finished.report.plain_text import health_report
from ldlm_monitor.service.cli.health_report import run_page
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.daemon.local_source import LocalSource
from ldlm_monitor.service.mcp.agent_answers import Tools
from ldlm_monitor.service.notify.silences import Silences
from ldlm_monitor.service.serve.live_page import live_page
from ldlm_monitor.service.serve.pages import resource, tag
from tests.service.daemon.watching import NOW, Watching, append

TRACEBACK = (
    'Traceback (most recent call last):\n  File "/job/train.py", line 3, in <module>\n'
    "ValueError: bad batch\n"
)


def steps(count: int, last: str = "2.5") -> str:
    lines = [f"step {step} loss 2.{step % 7} grad_norm 1.0\n" for step in range(count)]
    return "".join(lines[:-1]) + f"step {count - 1} loss {last} grad_norm 1.0\n"


class Start:
    """A monitor of a folder; `seen`: what its views have while the first turn reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.watching = Watching()
        self.seen: list[Snapshot] = []
        self.silences = Silences(folder / "silences.sqlite")

    def turn(self, at: float) -> Snapshot:
        settings = Settings(files=(str(self.folder / "*"),), companions=False)
        self.watching.start(settings, self.folder / ".state", meanwhile=self._look)
        self.watching.pump.turn(None, at)
        return self.watching.pump.snapshot

    def _look(self) -> None:
        self.seen.append(self.watching.pump.pictures.preview)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setattr("ldlm_monitor.service.daemon.backfill.SLICE_SECONDS", 0.0)
    found = Start(tmp_path)
    yield found
    found.watching.close()
    found.silences.close()


def first_of(start: Start) -> dict[str, RunView]:
    return {run.name: run for run in start.seen[0].runs}


def test_each_run_shows_its_last_step_at_once_and_is_not_judged(start: Start) -> None:
    for name, count in (("alpha", 1500), ("beta", 1000)):
        append(start.folder / f"{name}.log", steps(count), NOW)
    after = start.turn(NOW + 10)
    shown = first_of(start)
    assert {(run.health, run.step) for run in shown.values()} == {
        ("READING", 1499),
        ("READING", 999),
    }
    assert not any(run.reasons or run.stall_limit_seconds for run in shown.values())
    assert {run.health for run in after.runs} == {"HEALTHY"}
    assert after.reading is None


def test_every_view_says_how_far_the_history_was_judged(start: Start) -> None:
    append(start.folder / "alpha.log", steps(1500), NOW)
    append(start.folder / "beta.log", steps(300), NOW - 600)
    start.turn(NOW + 10)
    first, *_, last = start.seen
    for shown, text in (first, "nothing judged yet"), (last, "judged up to 2026-01-29"):
        reading = json.loads(resource(shown, "runs", str))["reading"]
        assert 0 <= reading <= 1
        assert f"<p>reading, {100 * reading:.0f} %: {text}" in live_page(shown, str).decode()
        page, _ = run_page(shown, "alpha") or ("", "")
        assert "READING</span>" in page
        assert text in page
        assert text in health_report(shown)
        source = LocalSource(lambda shown=shown: shown, start.silences, "logs")
        assert (
            f'"reading":"reading, {100 * reading:.0f} %: {text}'
            in Tools(source, lambda query: {}).runs()
        )
        assert tag(shown, "runs") != tag(start.watching.pump.snapshot, "runs")


def test_nothing_is_said_of_alerts_and_metrics_before_all_is_judged(start: Start) -> None:
    append(start.folder / "alpha.log", steps(1500, "NaN"), NOW)
    after = start.turn(NOW + 10)
    assert start.seen
    assert not any(each.alerts or each.incidents or each.points for each in start.seen)
    assert after.alerts
    assert after.points


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (steps(1500, "NaN"), "loss is NaN or infinite at step 1499"),
        (steps(1500) + TRACEBACK, "ValueError: bad batch"),
    ],
    ids=["a NaN", "a crash"],
)
def test_a_failure_in_the_newest_lines_is_the_reason(start: Start, text: str, said: str) -> None:
    append(start.folder / "alpha.log", text, NOW)
    start.turn(NOW + 1)
    assert said in first_of(start)["alpha"].because


@pytest.mark.parametrize("count", [1500, 2])
def test_a_failure_that_steps_follow_is_not_the_newest(start: Start, count: int) -> None:
    append(start.folder / "alpha.log", TRACEBACK + steps(count), NOW)
    start.turn(NOW + 1)
    assert not first_of(start)["alpha"].reasons


def test_a_restart_shows_them_too(start: Start) -> None:
    append(start.folder / "alpha.log", steps(1500), NOW)
    (read,) = start.turn(NOW + 1).runs
    assert read.about(read.last_progress_at) == "≈"
    append(start.folder / "alpha.log", "step 1500 loss 2.5 grad_norm 1.0\n", NOW + 1)
    start.watching.pump.turn(None, NOW + 2)
    (live,) = start.watching.pump.snapshot.runs
    assert (live.about(live.started_at), live.about(live.last_progress_at)) == ("≈", "")
    start.watching.close()
    append(start.folder / "alpha.log", "step 1501 loss 2.5 grad_norm 1.0\n", NOW + 2)
    start.seen.clear()
    start.turn(NOW + 3)
    shown = first_of(start)["alpha"]
    assert (shown.step, shown.about(shown.last_progress_at)) == (1501, "≈")


def test_a_bar_shows_its_last_repaint(start: Start) -> None:
    bars = "".join(
        f"\rTraining:  {step // 90}%|# | {step}/9000 [00:10<01:00, 1.0it/s, Loss=2.5]"
        for step in range(8000)
    )
    append(start.folder / "alpha.log", bars, NOW)
    start.turn(NOW + 1)
    assert first_of(start)["alpha"].step == 7999


def test_what_is_no_plain_text_waits_for_its_turn(start: Start) -> None:
    append(start.folder / "alpha.log", steps(1500), NOW)
    append(start.folder / "older.log.gz", gzip.compress(steps(50).encode()), NOW)
    append(start.folder / "noise.log", bytes(range(256)) * 64, NOW)
    append(start.folder / "empty.log", "", NOW)
    start.turn(NOW + 1)
    assert first_of(start)["alpha"].step == 1499


def test_headless_says_how_far_it_has_read_and_each_failure_once(start: Start) -> None:
    append(start.folder / "alpha.log", steps(1500) + TRACEBACK, NOW)
    append(start.folder / "beta.log", steps(1500), NOW)
    start.turn(NOW + 1)
    status = StatusLines()
    shown = start.seen[0].model_copy(update={"reading": 0.31, "judged_to": NOW - 60})
    head, failed = status.of(shown, NOW)
    far = f"reading, 31 %: judged up to {iso(NOW - 60)}"
    assert head.endswith(f"STATUS    2 runs  2 READING running  {far}")
    assert "alpha  READING running  step 1499" in failed
    assert failed.endswith("ValueError: bad batch")
    assert len([*status.of(shown, NOW + 10)]) == 1


def test_of_several_files_of_a_run_the_newest_is_shown(start: Start) -> None:
    append(start.folder / "alpha.log.1", steps(500, "9.0"), NOW - 600)
    append(start.folder / "alpha.log", steps(1500, "2.0"), NOW)
    start.turn(NOW + 1)
    (shown,) = first_of(start).values()
    assert (shown.step, shown.statistics["loss"].current) == (1499, 2.0)


def test_no_silence_is_judged_of_the_newest_lines(start: Start) -> None:
    append(start.folder / "alpha.log", steps(1500), NOW - 9000)
    append(start.folder / "beta.log", steps(1500), NOW)
    append(start.folder / "gamma.log", steps(1500) + TRACEBACK, NOW - 9500)
    start.turn(NOW + 1)
    assert {first_of(start)[name].state for name in ("alpha", "beta")} == {"running"}


def test_what_was_not_read_is_judged_up_to_nothing(start: Start) -> None:
    append(start.folder / "alpha.log", steps(1500), NOW)
    start.turn(NOW + 1)
    assert first_of(start)["alpha"].judged_to == 0.0
