"""A playback on the screen: every key of it, and what the line of it says."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ldlm_monitor.base.queries import Played
from ldlm_monitor.finished.playback.engine import Playback, Showing
from ldlm_monitor.finished.playback.timed_inputs import of_logs
from ldlm_monitor.screen.app import MonitorApp
from ldlm_monitor.screen.draw import ASCII, UNICODE, Glyphs, width_of
from ldlm_monitor.screen.page_frame import player_line
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.daemon.local_source import LocalSource
from ldlm_monitor.service.notify.silences import Silences
from tests.screen.screens import Screen, Shown, on_screen, plain_text

PLAYED = Played(start=1000.0, end=4600.0, at=2800.0, runs=1, speed=10.0, is_playing=True)


def on_playback(
    logs: str, folder: Path, steps: Callable[[Screen, Showing], Awaitable[None]], speed: float
) -> None:
    """The real screen on a real playback in its thread."""
    showing = Showing(Playback(lambda: of_logs(Settings(files=(logs,))), speed))
    silences = Silences(folder / "silences.sqlite")
    source = LocalSource(
        showing.snapshot, silences, logs, clock=showing.clock, opened=showing.opened
    )
    app = MonitorApp(source, clock=showing.clock, player=showing, ascii_only=False)

    async def drive() -> None:
        async with app.run_test(size=(120, 30)) as pilot:
            await steps(Screen(app, pilot), showing)

    showing.start()
    try:
        asyncio.run(drive())
    finally:
        showing.close()
        silences.close()


def test_the_keys_steer_it(trainings: Path, tmp_path: Path) -> None:
    async def steps(screen: Screen, showing: Showing) -> None:
        await screen.until("playing", "p Pause", "< Slower", "> Faster", "A Next alert")
        await screen.press("p")
        await screen.until("paused")
        await screen.press(">", ">")
        await screen.until("5x")
        await screen.press("<")
        await screen.until("2x")
        await screen.press("A")
        text = await screen.until("stopped at NonFiniteLoss")
        assert "train_20261121_083451" in text
        await screen.press("4")
        await screen.until("ERROR: Invalid loss")
        assert "Training complete" not in screen.text
        before = showing.clock()
        await screen.press("<", "<", "R")
        await screen.until("playing")
        assert showing.clock() < before

    # So slow that it is paused before the NaN, however busy the machine is.
    on_playback(f"{trainings}/train_logs/*083451*.log", tmp_path, steps, 0.001)


def test_several_runs_begin_with_the_overview(trainings: Path, tmp_path: Path) -> None:
    """Even while only the first of them has begun."""

    async def steps(screen: Screen, showing: Showing) -> None:
        await screen.until("1 run ", "train_20261121_083409")
        await screen.press("A")
        await screen.until("stopped at")

    on_playback(f"{trainings}/train_logs/*.log", tmp_path, steps, 10.0)


def test_it_says_that_it_has_ended_and_begins_again(trainings: Path, tmp_path: Path) -> None:
    async def steps(screen: Screen, showing: Showing) -> None:
        await screen.until("the end")
        await screen.press("<", "<", "<", "<", "<", "<", "<", "<", "<", "<", "<", "<", "<", "p")
        await screen.until("playing", " 1x ")

    on_playback(f"{trainings}/train_logs/*083451*.log", tmp_path, steps, 1e5)


def test_a_live_screen_has_no_such_keys(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("p", "A", "R")
        assert "Pause" not in screen.text
        assert "playing" not in screen.text

    on_screen(shown.source, steps)


@pytest.mark.parametrize("width", [20, 60, 80, 120, 200])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_the_line_fits_every_width(width: int, glyphs: Glyphs) -> None:
    line = player_line(PLAYED, width, glyphs)
    assert width_of(line) <= width
    assert "01-01" in plain_text([line])


def test_the_line_says_how_far_it_is() -> None:
    text = plain_text([player_line(PLAYED, 120, UNICODE)])
    assert "playing" in text
    assert "10x" in text
    assert "30m of 1h" in text
