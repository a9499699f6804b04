"""The screen: the pages of one source, whose snapshot is read four times a second."""

import gc
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import ClassVar

from textual import events
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import BindingType
from textual.screen import Screen
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.widgets import ContentSwitcher

from ldlm_monitor.base.queries import Player, PlayerCommand, Source
from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.screen.alert_page import Bell
from ldlm_monitor.screen.background import BackgroundSeen, asking_driver, light_or_dark
from ldlm_monitor.screen.dialogs import Absence, Help
from ldlm_monitor.screen.draw import ASCII, UNICODE, Line, is_utf8, safe
from ldlm_monitor.screen.hold_back import acknowledge_run, silence
from ldlm_monitor.screen.keys import keys
from ldlm_monitor.screen.log_page import LogPage
from ldlm_monitor.screen.look import Look
from ldlm_monitor.screen.page_context import HeldBack, OpenLog, OpenRun, PageContext, SelectRun
from ldlm_monitor.screen.page_frame import (
    EVERYWHERE,
    PLAYING_BACK,
    KeyLine,
    NoticeLine,
    PageBar,
    page_bar,
    player_line,
)
from ldlm_monitor.screen.page_table import PAGES
from ldlm_monitor.screen.screen_page import ScreenPage
from ldlm_monitor.screen.triage import triaged
from ldlm_monitor.screen.widgets import PagesScreen, Painted, PlainScrollBar, in_thread

DEFAULT_LOOK = Look()
LOOK_SECONDS = 0.25  # between reads of the snapshot. A choice: more is visible, less costs CPU
_PAGE_KEYS = frozenset(f"everywhere.{page.page_id()}" for page in PAGES)
_AGES_SECONDS = 1.0  # after which ages, shown in whole seconds, are drawn again without news


class MonitorApp(App[int]):
    """The screen of one source. Its exit code is 0 after `q` or the daemon's end, 130 after Ctrl-C.

    `ascii_only` None: ASCII unless the locale is UTF-8. `clock` returns Unix seconds. `ended`
    returns whether the daemon has ended; `notices` what the daemon logged since the last call.
    `bell`: ring when a critical alert begins to fire. `player` controls a playback; None for a
    live source. `opened` is called once, after the first screen was drawn. `look`: the configured
    theme and keys. `attached`: begin with a digest of what happened before.
    """

    CSS_PATH = "app.tcss"
    TITLE = "ldlm-monitor"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        *keys("Everywhere", *EVERYWHERE),
        *keys("Playing back", *PLAYING_BACK),
    ]

    def __init__(
        self,
        source: Source,
        *,
        ascii_only: bool | None = None,
        clock: Callable[[], float] = time.time,
        player: Player | None = None,
        ended: Callable[[], bool] = lambda: False,
        notices: Callable[[], list[str]] = list,
        bell: bool = True,
        opened: Callable[[], object] = lambda: None,
        look: Look = DEFAULT_LOOK,
        attached: bool = False,
    ) -> None:
        # Where NO_COLOR is set, Textual would draw shades of grey without `ansi_color`.
        super().__init__(
            driver_class=asking_driver() if look.theme == "auto" else None,
            ansi_color=True if "NO_COLOR" in os.environ else None,
        )
        plain = not is_utf8(dict(os.environ)) if ascii_only is None else ascii_only
        self.context = PageContext(source, clock, source.snapshot(), ASCII if plain else UNICODE)
        self.context.redraw = self._draw_again
        self.context.changed_keys = dict(look.keys)
        self.set_keymap(self.context.changed_keys)
        theme = light_or_dark(os.environ) if look.theme == "auto" else look.theme
        if theme in self.available_themes:
            self.theme = theme
        self._absence = Absence(self.context, attached=attached)
        self._player = player
        self._ended = ended
        self._notices = notices
        self._bell = Bell(enabled=bell)
        self._opened = opened
        self._drawn: tuple[Snapshot | None, str] = (None, "")
        self._drawn_at = 0.0
        self._is_chosen = False
        self._stopped_at = ("", 0.0)

    def compose(self) -> ComposeResult:
        """Bar, pages, footer."""
        yield PageBar(self._bar, self.action_page)
        if self._player is not None:
            yield Painted(self._player_line, id="player")
        yield NoticeLine(self.context.glyphs)
        with ContentSwitcher(initial=PAGES[0].page_id()):
            yield from (page(self.context) for page in PAGES)
        yield KeyLine()

    def get_default_screen(self) -> PagesScreen:
        """The screen below all dialogs."""
        return PagesScreen(id="_default")

    def on_mount(self) -> None:
        """Start to read snapshots."""
        # Set in both cases: the renderer is a class attribute, shared with a later app.
        ScrollBar.renderer = PlainScrollBar if self.context.glyphs is ASCII else ScrollBarRender
        if self.context.glyphs is ASCII:
            self.screen.add_class("ascii")
        self.set_interval(LOOK_SECONDS, self.look)
        self.look()
        self._page().take_focus()
        self.call_after_refresh(self._opened)

    def look(self) -> None:
        """Draw the page if the source has news; otherwise once a second, for ages on the page."""
        if self._ended():
            self.exit(0)
            return
        if not self.query("#bar"):
            return  # the timer may outlive the widgets when the screen closes
        context = self.context
        context.snapshot = context.source.snapshot()
        self.query_one(NoticeLine).take(self._notices())
        self._follow_player()
        now, before = context.clock(), self._drawn
        drawn = (context.snapshot, context.source.problem)
        is_new = drawn[0] is not before[0]
        if not is_new and drawn[1] == before[1] and abs(now - self._drawn_at) < _AGES_SECONDS:
            return
        self._drawn, self._drawn_at = drawn, now
        self._choose_run()
        if self._bell.rings(context.snapshot, context.held_back):
            self.bell()
        if context.snapshot.reading is None and not gc.get_freeze_count():
            gc.freeze()  # modules and all that was read: a whole collection took 70 ms of a key
        if is_new:
            in_thread(self, context.source.held_back, self._take_held_back, group="held")
        self._draw_again()
        if self._player is None and (digest := self._absence.digest()) is not None:
            self.push_screen(digest)

    def _draw_again(self) -> None:
        self._page().look()
        self.query_one("#bar", Painted).refresh()

    async def on_event(self, event: events.Event) -> None:
        """Note that somebody is there, for the digest of an absence."""
        if isinstance(event, events.InputEvent):
            self._absence.note_input()
        await super().on_event(event)

    def action_page(self, page: str) -> None:
        """Show a page."""
        self.query_one(ContentSwitcher).current = page
        self.screen.remove_class("full")
        self._draw_again()
        self._page().arrive()
        self._page().take_focus()

    def action_mute(self) -> None:
        """Ask for how long, then silence all alerts of the selected run, as for a maintenance."""
        if run := self.context.chosen():
            silence(self._page(), self.context, {"run": run.name}, run.name, "Mute")

    def action_acknowledge_run(self) -> None:
        """Acknowledge all that fires of the selected run."""
        if run := self.context.chosen():
            acknowledge_run(self._page(), self.context, run)

    def action_player(self, command: PlayerCommand) -> None:
        """Control the playback."""
        if self._player is not None:
            self._player.steer(command)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable the keys of the player, which hides them, unless there is a player."""
        return action != "player" or self._player is not None

    def action_keys(self) -> None:
        """Show the list of all keys."""
        self.push_screen(Help(self.context.changed_keys, [page.tab for page in PAGES]))

    def action_leave(self, code: int) -> None:
        """Leave the screen with this exit code."""
        self.exit(code)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: the pages, every key of the present page, the runs, Textual's commands."""
        for page in PAGES:
            show = partial(self.action_page, page.page_id())
            yield SystemCommand(page.tab, f"Show the page: {page.page_id()}", show)
        for binding in {each.binding.id: each for each in screen.active_bindings.values()}.values():
            action = binding.binding
            if binding.enabled and action.id and action.id not in _PAGE_KEYS:
                run = partial(self.run_action, action.action, binding.node)
                yield SystemCommand(action.description, action.tooltip or action.key, run)
        for each in triaged(self.context):
            name = safe(each.name, self.context.glyphs)
            show = partial(self.on_open_run, OpenRun(each.name))
            yield SystemCommand(f"Run {name}", f"{each.state}, {each.health}", show)
        yield from super().get_system_commands(screen)

    def on_background_seen(self, event: BackgroundSeen) -> None:
        """Use the theme for the terminal's background, unless another was chosen meanwhile."""
        if self.theme == light_or_dark(os.environ):
            self.theme = event.theme

    def on_select_run(self, event: SelectRun) -> None:
        """Make a run the one on which all pages act."""
        self.context.run, self._is_chosen = event.run, True
        if self._current == "overview":
            self._page().look()

    def on_open_run(self, event: OpenRun) -> None:
        """Show a run."""
        self.context.run, self._is_chosen = event.run, True
        self.action_page("run")

    def on_open_log(self, event: OpenLog) -> None:
        """Show a line of a log, and select the run of the file."""
        path = event.position.path
        chosen = self.context.chosen()
        if chosen is None or path not in chosen.files:
            for run in self.context.snapshot.runs:
                if path in run.files:
                    self.context.run = run.name
        self.query_one(LogPage).open(path, event.position)
        self.action_page("log")

    def _page(self) -> ScreenPage:
        return self.query_one(f"#{self._current}", ScreenPage)

    @property
    def _current(self) -> str:
        return self.query_one(ContentSwitcher).current or PAGES[0].page_id()

    def _choose_run(self) -> None:
        """Select the first run until a person chooses; once all is read, open a single run."""
        runs = self.context.snapshot.runs
        if runs and (self.context.chosen() is None or not self._is_chosen):
            self.context.run = triaged(self.context)[0].name
        if not runs or self._is_chosen or self.context.snapshot.reading is not None:
            return
        self._is_chosen = True
        to_come = self._player.played().runs if self._player is not None else 1
        if len(runs) == to_come == 1 and self._current == "overview":
            self.action_page("run")

    def _take_held_back(self, held: HeldBack) -> None:
        if held != self.context.held_back:
            self.context.held_back = held
            self._draw_again()

    def _follow_player(self) -> None:
        """Refresh the player's line; if it has stopped at an alert, show the alert's run."""
        if self._player is None:
            return
        self.query_one("#player", Painted).refresh()
        played = self._player.played()
        if (played.alert, played.at) == self._stopped_at or not played.alert:
            return
        if any(run.name == played.run for run in self.context.snapshot.runs):
            self._stopped_at = played.alert, played.at
            self.context.run = played.run
            if self._current in ("overview", "run"):
                self.action_page("run")

    def _player_line(self, width: int, height: int) -> list[Line]:
        played = self._player.played() if self._player is not None else None
        return [] if played is None else [player_line(played, width, self.context.glyphs)]

    def _bar(self, width: int) -> Line:
        return page_bar(self.context, self._current, width)
