"""Every page as a picture, in several sizes and states.

After a change that is meant: `pytest tests/screen/test_pictures.py --snapshot-update`, and look at
what `git diff` shows of the SVGs in a browser.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from ldlm_monitor.base.queries import Played, PlayerCommand
from ldlm_monitor.base.snapshot import InputView, Snapshot
from ldlm_monitor.screen.app import MonitorApp
from ldlm_monitor.service.daemon.local_source import LocalSource
from ldlm_monitor.service.notify.silences import Silences
from tests.screen.screens import NOW, Shown, read

Compare = Callable[..., bool]
WIDE, NARROW, LARGE = (120, 36), (80, 24), (200, 50)


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One time zone, one locale and no wish about colours, wherever this runs."""
    import time

    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("NO_COLOR", raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(scope="module")
def read_by_name(trainings: Path) -> Snapshot:
    """The example trainings, by paths that are the same everywhere."""
    with contextlib.chdir(trainings):
        return read("train_logs/*.log")


@pytest.fixture
def pictured(
    read_by_name: Snapshot, trainings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shown]:
    monkeypatch.chdir(trainings)
    silences = Silences(tmp_path / "silences.sqlite")
    shown = Shown(read_by_name, silences)
    shown.source = LocalSource(
        lambda: shown.snapshot, silences, "train_logs/*.log", clock=lambda: NOW
    )
    yield shown
    silences.close()


async def settle(pilot: Pilot[int]) -> None:
    """Until nothing moves: workers have answered, toasts are gone."""
    for _ in range(6):
        await pilot.app.workers.wait_for_complete()
        await pilot.pause(0.05)
    pilot.app.clear_notifications()
    await pilot.pause()


def compare(
    snap_compare: Compare,
    shown: Shown,
    *keys: str,
    size: tuple[int, int] = WIDE,
    ascii_only: bool = False,
    theme: str = "",
) -> bool:
    app = MonitorApp(shown.source, clock=lambda: NOW, ascii_only=ascii_only)

    async def drive(pilot: Pilot[int]) -> None:
        if theme:
            app.theme = theme
        await settle(pilot)
        for key in keys:
            await pilot.press(key)
            await settle(pilot)
        for asking in app.screen.query(Input):
            asking.cursor_blink = False
        await settle(pilot)

    return snap_compare(app, terminal_size=size, run_before=drive)


@pytest.mark.parametrize("size", [NARROW, WIDE, LARGE], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("page", ["1", "2", "3", "4", "5", "6"])
def test_every_page_in_every_size(
    snap_compare: Compare, pictured: Shown, page: str, size: tuple[int, int]
) -> None:
    assert compare(snap_compare, pictured, page, size=size)


@pytest.mark.parametrize("size", [(40, 15), (110, 20)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_two_hundred_runs(snap_compare: Compare, pictured: Shown, size: tuple[int, int]) -> None:
    """What needs a look is the first row, and names with much in common still differ."""
    crashed, *_, fine = sorted(pictured.snapshot.runs, key=lambda run: run.health)
    runs = [
        (crashed if number == 199 else fine).model_copy(
            update={"name": f"train_lr3e-4_bs256_seed{number:03}_variant"}
        )
        for number in range(200)
    ]
    pictured.snapshot = pictured.snapshot.model_copy(update={"runs": tuple(runs), "alerts": ()})
    assert compare(snap_compare, pictured, "1", size=size)


def test_inputs_that_show_no_run(snap_compare: Compare, pictured: Shown) -> None:
    inputs = (
        InputView(name="train_logs/typo*.log", state="waiting"),
        InputView(name="notes.txt", state="no training recognised", lines=2310),
    )
    empty = {"runs": (), "alerts": (), "events": (), "incidents": (), "transitions": ()}
    pictured.snapshot = pictured.snapshot.model_copy(update={**empty, "inputs": inputs})
    assert compare(snap_compare, pictured, "1", size=NARROW)


def test_a_run_in_the_palette(snap_compare: Compare, pictured: Shown) -> None:
    assert compare(snap_compare, pictured, "ctrl+p", *"0834")


def test_the_run_that_crashed(snap_compare: Compare, pictured: Shown) -> None:
    assert compare(snap_compare, pictured, "down", "enter")


def test_a_chart_that_is_zoomed_logarithmic_and_smoothed(
    snap_compare: Compare, pictured: Shown
) -> None:
    assert compare(snap_compare, pictured, "2", "plus", "l", "s", "left")


def test_each_component_of_the_loss(snap_compare: Compare, pictured: Shown) -> None:
    assert compare(snap_compare, pictured, "2", "c", "c", "c")


def test_the_line_of_an_alert_in_its_log(snap_compare: Compare, pictured: Shown) -> None:
    assert compare(snap_compare, pictured, "3", "enter")


def test_an_alert_that_is_acknowledged(
    snap_compare: Compare, pictured: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", "ada")
    monkeypatch.setenv("LOGNAME", "ada")
    assert compare(snap_compare, pictured, "3", "a")


def test_for_how_long_an_alert_is_silenced(snap_compare: Compare, pictured: Shown) -> None:
    assert compare(snap_compare, pictured, "3", "s")


def test_errors_only(snap_compare: Compare, pictured: Shown) -> None:
    assert compare(snap_compare, pictured, "5", "v")


def test_the_question_what_to_search_for(snap_compare: Compare, pictured: Shown) -> None:
    assert compare(snap_compare, pictured, "4", "slash", size=NARROW)


def test_what_was_found(snap_compare: Compare, pictured: Shown) -> None:
    assert compare(snap_compare, pictured, "4", "home", "slash", *"Invalid", "enter")


def test_all_keys(snap_compare: Compare, pictured: Shown) -> None:
    assert compare(snap_compare, pictured, "question_mark", size=(100, 60))


@pytest.mark.parametrize("page", ["1", "2", "5"])
def test_ascii(snap_compare: Compare, pictured: Shown, page: str) -> None:
    assert compare(snap_compare, pictured, page, ascii_only=True)


def test_without_colour(
    snap_compare: Compare, pictured: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert compare(snap_compare, pictured, "2", size=NARROW)


def test_a_light_theme(snap_compare: Compare, pictured: Shown) -> None:
    assert compare(snap_compare, pictured, "2", theme="textual-light")


def test_nothing_there_yet(snap_compare: Compare, pictured: Shown) -> None:
    empty = {"runs": (), "alerts": (), "events": (), "incidents": (), "transitions": ()}
    pictured.snapshot = pictured.snapshot.model_copy(update=empty)
    assert compare(snap_compare, pictured, "1", size=NARROW)


class _At:
    """A playback that stands at a given place."""

    def __init__(self, played: Played) -> None:
        self._played = played

    def played(self) -> Played:
        return self._played

    def steer(self, command: PlayerCommand) -> None: ...


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=lambda size: f"{size[0]}x{size[1]}")
def test_a_playback(snap_compare: Compare, pictured: Shown, size: tuple[int, int]) -> None:
    played = Played(
        start=NOW - 600, end=NOW + 1200, at=NOW, runs=3, speed=10.0, is_playing=True, alert=""
    )
    app = MonitorApp(pictured.source, clock=lambda: NOW, ascii_only=False, player=_At(played))
    assert snap_compare(app, terminal_size=size, run_before=settle)
