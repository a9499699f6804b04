"""The overview: a row for each run, what needs a look first; on a wide screen beside it one run."""

from collections import Counter
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical

from ldlm_monitor.base.snapshot import InputView, RunView, Snapshot
from ldlm_monitor.base.text.format import counted
from ldlm_monitor.screen.draw import HEALTH_STYLE, STATE_STYLE, Glyphs, Line, StyledSpan, safe
from ldlm_monitor.screen.keys import Key, keys
from ldlm_monitor.screen.page_context import Curves, OpenRun, PageContext, SelectRun
from ldlm_monitor.screen.run_card import RunCard
from ldlm_monitor.screen.run_columns import SPARK, Layout, RunRow
from ldlm_monitor.screen.screen_page import ScreenPage
from ldlm_monitor.screen.text_prompt import TextPrompt
from ldlm_monitor.screen.triage import SORTABLE, arranged, shared_prefix
from ldlm_monitor.screen.widgets import Painted, RowList, in_thread

_CURVES_SECONDS = 2.0  # between queries for shown curves. A choice: old curves, or more requests
SPLIT_WIDTH = 160  # cells from which one run is beside the list, which then still has its columns


def summary(snapshot: Snapshot, glyphs: Glyphs) -> Line:
    """The number of all runs, of running runs by health, and of ended runs by state."""
    counts = Counter[str](run.health for run in snapshot.runs if run.ended_at is None)
    ended = Counter(run.state for run in snapshot.runs if run.ended_at is not None)
    line = [StyledSpan(f" {counted(len(snapshot.runs), 'run')}", "title")]
    for health, style in HEALTH_STYLE.items():
        if count := counts.get(health):
            line.append(StyledSpan(f"   {glyphs.health[health]} {count} {health}", style))
    for state, count in sorted(ended.items()):
        line.append(StyledSpan(f"   {count} {state}", STATE_STYLE.get(state, "")))
    return line


def input_line(found: InputView, reading: float | None, glyphs: Glyphs) -> Line:
    """An input that shows no run, and why."""
    said, style = str(found.state), "warning"
    if found.state == "waiting":
        said = "waiting: no such file yet"
    elif found.state == "reading" and reading is not None:
        said, style = f"read {100 * reading:.0f} %", "dim"
    elif found.lines is not None:
        said = f"{counted(found.lines, 'line')} and {found.state}"
    name = safe(found.name, glyphs)
    return [StyledSpan(f"   {said:<40} ", style), StyledSpan(name, "dim")]


class HeadBar(Painted):
    """The titles of the columns; a click sorts by one, a second click the other way round."""

    def __init__(self, page: "OverviewPage") -> None:
        super().__init__(lambda width, height: [self._line()])
        self._page = page

    def _line(self) -> Line:
        return [span for _, span in self._page.columns.header(self._page.sorted_by)]

    def on_click(self, event: events.Click) -> None:
        """Sort by the column under the pointer."""
        end = 0
        for title, span in self._page.columns.header(""):
            end += len(span.text)
            if event.x < end:
                self._page.sort_by(title)
                return


class OverviewPage(ScreenPage):
    """A row for each run; Enter opens it, and other keys act on it."""

    tab = "Overview"
    BINDINGS: ClassVar[list[BindingType]] = keys(
        "Overview",
        Key("slash", "filter", "Filter", "only runs with these words; empty: all", "/", foot=True),
        Key("s", "sort", "Sort", "sort by the next column; a click on its head does, too", "s S"),
        Key("S", "reverse", "Reverse"),
        Key("h", "hide_ended", "Hide ended", "hide ended runs, or show them"),
        Key("space", "pick", "Pick", "pick runs, to draw them in one chart on page 2", "Space"),
    )

    def __init__(self, context: PageContext) -> None:
        super().__init__(context)
        self._runs: list[RunView] = []
        self._curves: Curves = {}
        self._asked_at = 0.0
        self._inputs: list[InputView] = []
        self._columns: tuple[object, Layout] | None = None
        self.rows = RowList(self._row, id="runs")
        self._card = RunCard(context)

    @property
    def sorted_by(self) -> str:
        """The column by which the runs are sorted; "" in the order of triage."""
        return self._pages.arrangement.column

    @property
    def columns(self) -> Layout:
        """The columns for the present width and runs."""
        width = self.rows.scrollable_content_region.width or self.size.width
        if self._columns is None or self._columns[0] != (width, id(self._runs)):
            prefix = shared_prefix([run.name for run in self._runs])
            found = Layout.of(width, self._runs, prefix)
            self._columns = (width, id(self._runs)), found
        return self._columns[1]

    def compose(self) -> ComposeResult:
        """Summary, titles, rows; beside them the selected run."""
        yield Painted(lambda width, height: [self._summary()], id="summary")
        with Horizontal():
            with Vertical(id="run-list"):
                yield HeadBar(self)
                yield self.rows
            yield self._card

    def on_resize(self) -> None:
        """Show the selected run beside the list where the screen is wide enough."""
        self._card.display = self.size.width >= SPLIT_WIDTH

    def look(self) -> None:
        """Show the runs of the last snapshot, with the cursor on the selected run."""
        context = self._pages
        self._runs = arranged(context)
        self._inputs = list(context.snapshot.inputs)
        self.rows.show(len(self._runs) + len(self._inputs))
        names = [run.name for run in self._runs]
        if context.run in names:
            self.rows.cursor = names.index(context.run)
        now = context.clock()
        if abs(now - self._asked_at) >= _CURVES_SECONDS:  # `abs`: a playback's clock may go back
            self._asked_at = now
            # Height 0 before the first layout: 10, a choice. Fewer miss rows, more are not shown.
            top, height = self.rows.scroll_offset.y, max(self.rows.size.height, 10)
            wanted = [(name, "loss") for name in names[top : top + height]]
            in_thread(self, lambda: context.curves(wanted, SPARK), self._take)
        for widget in self.query(Painted):
            widget.refresh()
        if self._card.display:
            self._card.look()

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        """Select the run under the cursor."""
        if event.index < len(self._runs):
            self.post_message(SelectRun(self._runs[event.index].name))

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Open the page of the run."""
        if event.index < len(self._runs):
            self.post_message(OpenRun(self._runs[event.index].name))

    def action_filter(self) -> None:
        """Ask for words, and show only the runs that have them."""
        how = self._pages.arrangement

        def put(words: str | None) -> None:
            if words is not None:
                how.words = words
                self.look()

        self.app.push_screen(
            TextPrompt("Show only runs with", how.words, "name, state, reason; empty: all"), put
        )

    def action_sort(self) -> None:
        """Sort by the next column, after the last one by triage."""
        place = SORTABLE.index(self.sorted_by)
        self.sort_by(SORTABLE[(place + 1) % len(SORTABLE)], turns=False)

    def sort_by(self, title: str, *, turns: bool = True) -> None:
        """Sort by a column; if it is sorted by already and `turns`, the other way round."""
        how = self._pages.arrangement
        if title in SORTABLE:
            how.is_reversed = turns and how.column == title and not how.is_reversed
            how.column = title
            self.look()

    def action_reverse(self) -> None:
        """Sort the other way round."""
        how = self._pages.arrangement
        how.is_reversed = not how.is_reversed
        self.look()

    def action_hide_ended(self) -> None:
        """Hide ended runs, apart from new failures, or show them."""
        how = self._pages.arrangement
        how.hides_ended = not how.hides_ended
        self.look()

    def action_pick(self) -> None:
        """Pick the run under the cursor for a chart of several, or put it back."""
        if self.rows.cursor < len(self._runs):
            name = self._runs[self.rows.cursor].name
            if name in self._pages.marked:
                del self._pages.marked[name]
            else:
                self._pages.marked[name] = None
            self.rows.action_move(1)
            self.look()

    def _take(self, found: Curves) -> None:
        self._curves |= found
        self.rows.refresh()

    def _summary(self) -> Line:
        context, how = self._pages, self._pages.arrangement
        notes = [f"/{safe(how.words, context.glyphs)}"] if how.words else []
        notes += [f"by {how.column.lower()}"] if how.column else []
        notes += ["reversed"] if how.is_reversed else []
        notes += ["without ended"] if how.hides_ended else []
        notes += [f"{len(context.marked)} picked"] if context.marked else []
        hidden = len(context.snapshot.runs) - len(self._runs)
        notes += [f"{hidden} hidden"] if hidden else []
        prefix = safe(self.columns.prefix, context.glyphs)
        notes += [f"names begin {prefix}"] if prefix else []
        line = summary(context.snapshot, context.glyphs)
        return [*line, *(StyledSpan(f"   {note}", "accent") for note in notes)]

    def _row(self, index: int, width: int) -> Line:
        if index >= len(self._runs):
            found = self._inputs[index - len(self._runs)]
            return input_line(found, self._pages.snapshot.reading, self._pages.glyphs)
        run = self._runs[index]
        facts = RunRow(run, self._curves.get((run.name, "loss")), self._pages)
        return self.columns.row(facts, chosen=index == self.rows.cursor)
