"""The lines around the pages: pages and the source's status, notices, a playback, the keys."""

import time
from collections.abc import Callable, Iterator

from rich.cells import cell_len
from textual import events
from textual.binding import ActiveBinding

from ldlm_monitor.base.errors import INTERRUPTED
from ldlm_monitor.base.queries import Played
from ldlm_monitor.base.text.format import local_time
from ldlm_monitor.screen.draw import Glyphs, Line, StyledSpan, bar, fit, safe, width_of
from ldlm_monitor.screen.keys import Key
from ldlm_monitor.screen.page_context import PageContext, whole_duration
from ldlm_monitor.screen.page_table import PAGES
from ldlm_monitor.screen.widgets import Painted

_LEAST_BAR = 10  # cells of a bar and 2 blanks. A choice: fewer are coarse, more rarely fit
_NOTICE_SECONDS = 60.0  # a choice: read by then, or out of the way
_OLD_SECONDS = 15.0  # age of a snapshot to report while a run is live: three evaluations of 5 s

EVERYWHERE = (
    *(
        Key(
            f"{number}",
            f"page('{page.page_id()}')",
            page.tab,
            ", ".join(each.page_id() for each in PAGES) if number == 1 else "",
            f"1 to {len(PAGES)}",
        )
        for number, page in enumerate(PAGES, start=1)
    ),
    Key("escape", "page('overview')", "Back", "the overview; closes a dialog", "Esc"),
    Key("m", "mute", "Mute", "silence a run, as for a maintenance, for a time", "m"),
    Key("a", "acknowledge_run", "Acknowledge", "a run's failure: no messages, no first place", "a"),
    Key("question_mark", "keys", "Keys", "this page", "?", foot=True),
    Key("ctrl+p", "command_palette", "Palette", "everything by name: runs, keys, themes", "Ctrl+P"),
    Key("ctrl+z", "suspend_process", "Suspend", "back to the shell; fg comes back", "Ctrl+Z"),
    Key("q", "leave(0)", "Quit", "quit; prints the report unless attached", "q Ctrl+C", foot=True),
    Key("ctrl+c", f"leave({INTERRUPTED})", "Interrupt"),
)
"""Keys of all pages; the page keys count through `PAGES`."""
PLAYING_BACK = (
    Key(
        "p", "player('toggle')", "Pause", "pause, go on; after the end, begin again", "p", foot=True
    ),
    Key("less_than_sign", "player('slower')", "Slower", "slower, faster", "< >", foot=True),
    Key("greater_than_sign", "player('faster')", "Faster", foot=True),
    Key(
        "A", "player('seek')", "Next alert", "on to the next alert, and stop there", "A", foot=True
    ),
    Key("R", "player('rewind')", "Begin again", "begin again", "R"),
)


class PageBar(Painted):
    """The bar of pages; a click on one of them calls `opens` with its name."""

    def __init__(self, line: Callable[[int], Line], opens: Callable[[str], object]) -> None:
        super().__init__(lambda width, height: [line(width)], id="bar")
        self._line, self._opens = line, opens

    def on_click(self, event: events.Click) -> None:
        """Open the page under the pointer: each title follows its key."""
        end, names = 0, {page.tab: page.page_id() for page in PAGES}
        for span in self._line(self.size.width):
            end += cell_len(span.text)
            name = names.get(span.text.rstrip(" 0123456789"))
            if event.x < end and name is not None:
                self._opens(name)
            if event.x < end and span.style != "key":
                return


class NoticeLine(Painted):
    """The last line of the monitor's own log, shown for `_NOTICE_SECONDS`."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(
            lambda width, height: [[StyledSpan(f" {self._notice}", "warning")]], id="notice"
        )
        self._glyphs, self._notice, self._until = glyphs, "", 0.0

    def take(self, found: list[str]) -> None:
        """Show the last of new lines; without one, hide an old one whose time is over."""
        now = time.monotonic()
        if found:
            self._notice, self._until = safe(found[-1], self._glyphs), now + _NOTICE_SECONDS
            self.refresh()
        self.display = now < self._until


class KeyLine(Painted):
    """The keys that the page's footer names; a click does what the key does.

    Textual's Footer makes a widget of each key anew at each page: half of the time of a key press.
    """

    def __init__(self) -> None:
        super().__init__(
            lambda width, height: [[each for _, pair in self._keys() for each in pair]]
        )

    def on_mount(self) -> None:
        """Draw again whenever other keys are active."""
        self.screen.bindings_updated_signal.subscribe(self, lambda screen: self.refresh())

    def _keys(self) -> Iterator[tuple[ActiveBinding, Line]]:
        found = {each.binding.action: each for each in self.screen.active_bindings.values()}
        for key in found.values():
            if key.binding.show and key.enabled:
                shown = StyledSpan(f" {self.app.get_key_display(key.binding)} ", "key")
                yield key, [shown, StyledSpan(f"{key.binding.description} ")]

    async def on_click(self, event: events.Click) -> None:
        """Do what the key under the pointer does."""
        end = 0
        for key, pair in self._keys():
            end += width_of(pair)
            if event.x < end:
                await self.app.run_action(key.binding.action, key.node)
                return


def page_bar(context: PageContext, page: str, width: int) -> Line:
    """The pages with their badges, and the source's status."""
    # Below 90 cells the status needs the room of the program's name; 80 are supported.
    line: Line = [StyledSpan(" ldlm-monitor ", "key")] if width >= 90 else []
    for number, each in enumerate(PAGES, start=1):
        badge = each.badge(context.snapshot)
        count = f" {badge}" if badge else ""
        style = "here" if each.page_id() == page else "badge" if count else ""
        line += [
            StyledSpan(f" {number} ", "key"),
            StyledSpan(f"{each.tab}{count}", style),
            StyledSpan(" "),
        ]
    room = width - width_of(line)
    texts, style = _source_status(context)
    text = next((text for text in texts if cell_len(text) < room), texts[-1])
    return [*line, StyledSpan(fit(f"{text} ", room, context.glyphs, right=True), style)]


def _source_status(context: PageContext) -> tuple[list[str], str]:
    """The source's time, progress of reading or problem: texts, the longest first; and a style."""
    now = local_time(context.clock())
    age = context.clock() - context.snapshot.at
    if context.source.problem:
        return [safe(context.source.problem, context.glyphs), "no answer"], "critical"
    name = safe(context.source.name, context.glyphs)
    if words := context.snapshot.unjudged(local_time):
        share = words.partition(":")[0]
        return [f"{name}  {words}", words, share, share.removeprefix("reading, ")], "warning"
    is_live = any(run.ended_at is None for run in context.snapshot.runs)
    if context.snapshot.at > 0 and age > _OLD_SECONDS and is_live:
        return [f"nothing new for {whole_duration(age)}", f"{whole_duration(age)} old"], "dim"
    return [f"{name}  {now}", now, now[6:]], "dim"  # the last without month and day


def player_line(played: Played, width: int, glyphs: Glyphs) -> Line:
    """The state of a playback in `width` cells; a bar and other parts only where they fit."""
    line: Line = [_state(played), StyledSpan(f" {_speed(played.speed)} ", "title")]
    line += [StyledSpan(f" {local_time(played.at)} ")]
    passed = played.at - played.start
    length = max(played.end - played.start, 1e-9)  # no division by 0 for an empty playback
    done = f" {whole_duration(passed)} of {whole_duration(length)} "
    room = width - width_of(line) - len(done)
    if room >= _LEAST_BAR:
        line += [StyledSpan(" "), *bar(passed / length, room - 2, glyphs), StyledSpan(" ")]
    line += [StyledSpan(done, "dim")]
    if width_of(line) <= width:
        return line
    return [StyledSpan(fit(f" {local_time(played.at)}", width, glyphs))]


def _state(played: Played) -> StyledSpan:
    if played.seeks:
        return StyledSpan(" seeking an alert ", "warning")
    if played.alert:
        return StyledSpan(f" stopped at {played.alert} ", "critical")
    if played.has_ended:
        return StyledSpan(" the end ", "title")
    return StyledSpan(" playing ", "ok") if played.is_playing else StyledSpan(" paused ", "warning")


def _speed(speed: float) -> str:
    # In thousands from 10,000 on, as `20kx`.
    return f"{speed:g}x" if speed < 1e4 else f"{speed / 1000:g}kx"
