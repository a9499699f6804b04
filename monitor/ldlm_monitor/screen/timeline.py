"""The page of events: a row for each, the newest last, and the details of the selected event.

An incident has a row before the event that caused it. Its details count its symptoms.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import BindingType

from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.base.records import Event, FieldValue, Position
from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.screen.detail_page import DetailPage
from ldlm_monitor.screen.draw import Glyphs, Line, StyledSpan, fit, labelled, safe, wrap
from ldlm_monitor.screen.keys import Key, keys
from ldlm_monitor.screen.page_context import OpenLog
from ldlm_monitor.screen.triage import middle_cut, shared_prefix

_INDENTED = ("traceback", "stack", "stacks")  # fields of several lines, shown as they were written
_RUN_CELLS = 15  # of a run's name without what all share: `20261121_083515`
_NAME_CELLS = 20  # of a field's name at most. A choice: less cuts names, more narrows the text


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A row of the page: an event or an incident."""

    time: float | None  # Unix seconds
    severity: str
    kind: str
    run: str
    whose: str  # rank, host or both; may be empty
    message: str
    body: tuple[tuple[str, str], ...]  # names, texts; a text with line breaks is shown as it is
    position: Position


def entries(snapshot: Snapshot, run: str | None, *, worst_only: bool) -> list[TimelineEntry]:
    """Incidents and events of a run (None: all runs), newest last; `worst_only`: errors alone."""
    found = [
        _of_event(event)
        for event in snapshot.events
        if (run is None or event.run == run)
        and not (worst_only and event.severity not in ("error", "critical"))
    ]
    for incident in snapshot.incidents:
        if run is None or incident.run == run:
            found.insert(_place(incident, found), _of_incident(incident))
    return found


def _place(incident: IncidentView, found: Sequence[TimelineEntry]) -> int:
    """The index of the event that caused the incident; the end if that event was dropped."""
    cause = incident.root.position
    places = (i for i, entry in enumerate(found) if cause and entry.position == cause)
    return next(places, len(found))


def _of_incident(incident: IncidentView) -> TimelineEntry:
    root = incident.root
    facts = [("cause", f"{root.kind} ({root.tier}, {incident.confidence}): {root.message}")]
    facts += [("because", reason) for reason in root.why]
    if incident.collective is not None:
        group = incident.collective
        facts.append(("waiting", f"{group.op} #{group.seq}: {group.waiting}"))
        facts.append(("missing", group.missing or "not known"))
    facts += [
        ("blamed", f"rank {claim.rank} by torchelastic: {claim.reason}")
        for claim in incident.claims
        if claim.agrees is not True
    ]
    facts += [("to do", incident.advice)] if incident.advice else []
    facts += [
        ("followed", f"{each.kind} x {each.count}" + (each.ranks and f" on ranks {each.ranks}"))
        for each in incident.symptoms
    ]
    facts += [("line", f"{line.position.path}:{line.position.line}") for line in incident.excerpt]
    facts += [("alerts", ", ".join(incident.alerts))] if incident.alerts else []
    first = root.position or (incident.excerpt[0].position if incident.excerpt else None)
    return TimelineEntry(
        time=incident.opened_at,
        severity="critical",
        kind=f"INCIDENT {incident.state}",
        run=incident.run,
        whose=f"rank {root.rank}" if root.rank is not None else root.host or "",
        message=incident.title,
        body=(*facts, *(("", f"{line.text}\n") for line in incident.excerpt)),
        position=first or Position("", 0, 0),
    )


def _of_event(event: Event) -> TimelineEntry:
    whose = "" if event.rank is None else f"rank {event.rank}"
    whose += f" {event.node}" if event.node else ""
    facts = [
        (name, _spelled(value))
        for name, value in event.fields.items()
        if name not in _INDENTED and value is not None
    ]
    dumps = [(name, str(event.fields[name])) for name in _INDENTED if event.fields.get(name)]
    return TimelineEntry(
        time=event.time,
        severity=event.severity,
        kind=event.kind,
        run=event.run,
        whose=whose.strip(),
        message=event.message,
        body=(*facts, *dumps),
        position=event.position,
    )


def _spelled(value: FieldValue) -> str:
    """The value as text; a table (a list with a dict) has a line for each of its rows."""
    if not isinstance(value, list) or not any(isinstance(item, dict) for item in value):
        return str(value)
    rows = [item.items() for item in value if isinstance(item, dict)]
    return "\n".join("  ".join(f"{name}={text}" for name, text in row) for row in rows) + "\n"


def detail(entry: TimelineEntry, width: int, glyphs: Glyphs) -> list[Line]:
    """The lines of an entry's kind, place and message, and of its `body`."""
    inner = max(width - 4, 10)  # cells between margins of 2; a tiny screen cuts them
    where = f"{entry.position.path}:{entry.position.line}"
    lines: list[Line] = [
        [
            StyledSpan(f" {safe(entry.kind, glyphs)}", entry.severity),
            StyledSpan(f"  {safe(entry.run, glyphs)} {safe(entry.whose, glyphs)}", "title"),
            StyledSpan(f"  {safe(where, glyphs)}", "dim"),
            StyledSpan("  (Enter)", "dim"),
        ],
        *([StyledSpan("  "), *line] for line in wrap(safe(entry.message, glyphs), inner)),
    ]
    cells = max((len(name) for name, text in entry.body if "\n" not in text), default=0)
    cells = min(cells, _NAME_CELLS) + 1
    for name, text in entry.body:
        if "\n" not in text:
            head = fit(safe(name, glyphs), cells, glyphs)
            lines += labelled(head, safe(text, glyphs), max(inner - cells, 10), cells=cells)
            continue
        lines += [[StyledSpan(f"  {safe(name, glyphs)}", "key")]] if name else []
        lines += [_stack_line(line, glyphs) for line in text.splitlines()]
    return lines


def _stack_line(text: str, glyphs: Glyphs) -> Line:
    shown = safe(text, glyphs)
    style = "accent" if shown.lstrip().startswith("File ") else ""
    return [StyledSpan(f"  {shown}", style)]


def event_severities(found: Iterable[Event]) -> dict[tuple[str, int], str]:
    """The severity of each event above `info`, by path and byte of its record."""
    return {
        (event.position.path, event.position.offset): event.severity
        for event in found
        if event.severity != "info"
    }


def neighbour(found: Sequence[Event], path: str, offset: int, *, forward: bool) -> Event | None:
    """The first event of a file after a byte, or if not `forward` the last before it, or None."""
    there = {event.position.offset: event for event in found if event.position.path == path}
    if forward:
        return there.get(min((at for at in there if at > offset), default=-1))
    return there.get(max((at for at in there if at < offset), default=-1))


class EventsPage(DetailPage[TimelineEntry]):
    """A row for each event and incident, and the details of the selected one below."""

    tab = "Events"
    BINDINGS: ClassVar[list[BindingType]] = keys(
        "Events",
        Key("v", "worst", "Errors only", "errors only, or all", "v", True),
        Key("o", "only_run", "This run only", "the selected run only, or all", "o", True),
    )
    _worst_only = False
    _all_runs = True
    _prefix = ""

    def look(self) -> None:
        """Show the last snapshot's events; a cursor on the last event moves to the new last one."""
        at_end = self.rows.cursor >= self.rows.count - 1
        run = None if self._all_runs else self._pages.run
        self._prefix = shared_prefix([each.name for each in self._pages.snapshot.runs])
        self.show(entries(self._pages.snapshot, run, worst_only=self._worst_only), to_end=at_end)

    def action_worst(self) -> None:
        """Switch between errors only and all events."""
        self._worst_only = not self._worst_only
        self.look()

    def action_only_run(self) -> None:
        """Switch between the events of the chosen run only and those of all runs."""
        self._all_runs = not self._all_runs
        self.look()

    def on_row_list_chosen(self) -> None:
        """Open the log at the line of the selected event."""
        if self.selected and self.selected.position.path:
            self.post_message(OpenLog(self.selected.position))

    def title(self) -> Line:
        """How many events are shown, and of which run."""
        which = "all runs" if self._all_runs else safe(self._pages.run or "", self._pages.glyphs)
        what = "errors" if self._worst_only else "events"
        return [
            StyledSpan(f" {len(self.items)} {what}", "title"),
            StyledSpan(f"   of {which}", "dim"),
        ]

    def run_of(self, item: TimelineEntry) -> str | None:
        """The run of the event or incident."""
        return item.run

    def detail(self, item: TimelineEntry, width: int) -> list[Line]:
        """The entry's kind, place, message, fields and stacks."""
        return detail(item, width, self._pages.glyphs)

    def row(self, item: TimelineEntry) -> Line:
        """Time, run, severity, kind, rank or host, message; cells hold usual values, or cut."""
        glyphs, style = self._pages.glyphs, item.severity
        mark = glyphs.marks.get(item.severity, " ")
        line = [StyledSpan(fit(self._pages.local_time(item.run, item.time), 14) + " ", "dim")]
        if self._all_runs and len(self._pages.snapshot.runs) > 1:
            own = safe(item.run.removeprefix(self._prefix), glyphs)
            line.append(StyledSpan(middle_cut(own, _RUN_CELLS, glyphs) + " ", "accent"))
        # Below 120 cells the mark and its colour say the severity, and the message has the room.
        wide = self.size.width >= 120
        return [
            *line,
            StyledSpan(f"{mark} {fit(item.severity, 9) if wide else ''}", style),
            StyledSpan(fit(safe(item.kind, glyphs), 26 if wide else 18, glyphs) + " ", style),
            StyledSpan(fit(safe(item.whose, glyphs), 9, glyphs) + " ", "dim"),
            StyledSpan(safe(item.message, glyphs)),
        ]
