"""Drives the real app without a terminal, and reads what it shows."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from textual.pilot import Pilot
from textual.worker import WorkerCancelled

from ldlm_monitor.base.queries import Source
from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.screen.app import MonitorApp
from ldlm_monitor.screen.draw import Line
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.notify.silences import Silences

PATIENCE = 200
LAST_WRITE = 1_795_250_114  # Unix seconds, of copied logs
NOW = 1_795_250_120.0


@dataclass
class Shown:
    snapshot: Snapshot
    silences: Silences
    source: Source = field(init=False)


def read(pattern: str, run: str | None = None) -> Snapshot:
    """What the real core makes of finished logs."""
    replay = Replay(Settings(files=(pattern,), run=run))
    for _ in replay.transitions():
        pass
    return replay.snapshot()


def plain_text(lines: Iterable[Line]) -> str:
    """The lines without their styles."""
    return "\n".join("".join(span.text for span in line).rstrip() for line in lines)


def text_of(app: MonitorApp) -> str:
    """The characters on the screen, line by line."""
    strips = app.screen._compositor.render_strips(app.size)
    return "\n".join(strip.text.rstrip() for strip in strips)


class Screen:
    """A screen that is open: keys go in, text comes out."""

    def __init__(self, app: MonitorApp, pilot: Pilot[int]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def text(self) -> str:
        return text_of(self.app)

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def settle(self) -> None:
        with suppress(WorkerCancelled):  # by the next press or reading, which has its own worker
            await self.app.workers.wait_for_complete()
        await self.pilot.pause()

    async def until(self, *words: str) -> str:
        """What is shown, once it holds all words."""
        for _ in range(PATIENCE):
            if all(word in self.text for word in words):
                return self.text
            await self.settle()
            await self.pilot.pause(0.02)
        raise AssertionError(f"{words} never came:\n{self.text}")


def on_screen(
    source: Source,
    steps: Callable[[Screen], Awaitable[None]],
    *,
    size: tuple[int, int] = (120, 36),
    ascii_only: bool = False,
    clock: Callable[[], float] = lambda: NOW,
    **more: Any,
) -> int | None:
    """Open the screen, do the steps, close it; its exit code."""
    app = MonitorApp(source, ascii_only=ascii_only, clock=clock, **more)

    async def drive() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            screen = Screen(app, pilot)
            await screen.settle()
            await steps(screen)

    asyncio.run(drive())
    return app.return_value
