"""Events as a timeline: one line each, the newest last, and the whole of the chosen one.

An incident stands before the event that caused it, with what only followed counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ldlm_monitor.model.records import Event, FieldValue, Position
from ldlm_monitor.model.view import IncidentView, Snapshot
from ldlm_monitor.tui.draw import Glyphs, Line, Span, fit, safe, wrap
from ldlm_monitor.tui.palette import SEVERITY_STYLE
from ldlm_monitor.tui.words import clock

_INDENTED = ("traceback", "stack", "stacks")


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the timeline; `body` is what the detail shows, `by_line` a line for each pair."""

    time: float | None
    severity: str
    kind: str
    run: str
    whose: str
    message: str
    body: tuple[tuple[str, str], ...]
    position: Position
    by_line: bool = False


def entries(snapshot: Snapshot, run: str | None, *, worst_only: bool) -> list[Entry]:
    """What happened to a run (None: to all), the newest last."""
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


def _on_ranks(ranks: str) -> str:
    """Nothing where none is named."""
    return f" on ranks {ranks}" if ranks else ""


def _place(incident: IncidentView, found: Sequence[Entry]) -> int:
    """Before the event that caused it; the newest last, where that one is forgotten."""
    cause = incident.root.position
    places = (i for i, entry in enumerate(found) if cause and entry.position == cause)
    return next(places, len(found))


def _of_incident(incident: IncidentView) -> Entry:
    root = incident.root
    told = [("cause", f"{root.kind} ({root.tier}, {incident.confidence}): {root.message}")]
    told += [("because", reason) for reason in root.why]
    if incident.collective is not None:
        group = incident.collective
        told.append(("waiting", f"{group.op} #{group.seq}: {group.waiting}"))
        told.append(("missing", group.missing or "not known"))
    told += [
        ("blamed", f"rank {claim.rank} by torchelastic: {claim.reason}")
        for claim in incident.claims
        if claim.agrees is not True
    ]
    told += [("to do", incident.action)] if incident.action else []
    told += [
        ("followed", f"{symptom.kind} x {symptom.count}{_on_ranks(symptom.ranks)}")
        for symptom in incident.symptoms
    ]
    told += [("line", f"{line.position.path}:{line.position.line}") for line in incident.excerpt]
    told += [("alerts", ", ".join(incident.alerts))] if incident.alerts else []
    first = root.position or (incident.excerpt[0].position if incident.excerpt else None)
    return Entry(
        time=incident.opened_at,
        severity="critical",
        kind=f"INCIDENT {incident.state}",
        run=incident.run,
        whose=f"rank {root.rank}" if root.rank is not None else root.host or "",
        message=incident.title,
        body=(*told, *(("", f"{line.text}\n") for line in incident.excerpt)),
        position=first or Position("", 0, 0),
        by_line=True,
    )


def _of_event(event: Event) -> Entry:
    whose = "" if event.rank is None else f"rank {event.rank}"
    whose += f" {event.node}" if event.node else ""
    told = [
        (name, _spelled(value))
        for name, value in event.fields.items()
        if name not in _INDENTED and value is not None
    ]
    dumps = [(name, str(event.fields[name])) for name in _INDENTED if event.fields.get(name)]
    return Entry(
        time=event.time,
        severity=event.severity,
        kind=event.kind,
        run=event.run,
        whose=whose.strip(),
        message=event.message,
        body=(*told, *dumps),
        position=event.position,
    )


def _spelled(value: FieldValue) -> str:
    """A table has a line for each of its rows."""
    if not isinstance(value, list) or not any(isinstance(item, dict) for item in value):
        return str(value)
    rows = [item.items() for item in value if isinstance(item, dict)]
    return "\n".join("  ".join(f"{name}={text}" for name, text in row) for row in rows) + "\n"


def row(entry: Entry, width: int, glyphs: Glyphs, *, chosen: bool) -> Line:
    """One entry in one line."""
    style = SEVERITY_STYLE.get(entry.severity, "")
    mark = glyphs.marks.get(entry.severity, " ")
    return [
        Span(f"{glyphs.cursor if chosen else ' '} ", "key"),
        Span(fit(clock(entry.time), 15), "dim"),
        Span(f"{mark} {fit(entry.severity, 9)}", style),
        Span(fit(safe(entry.kind, glyphs), 26, glyphs) + " ", style),
        Span(fit(safe(entry.whose, glyphs), 9, glyphs) + " ", "dim"),
        Span(safe(entry.message, glyphs)),
    ]


def detail(entry: Entry, width: int, glyphs: Glyphs) -> list[Line]:
    """The message, the fields, and tracebacks or stack dumps as they were written."""
    inner = max(width - 4, 10)
    where = f"{entry.position.path}:{entry.position.line}"
    lines: list[Line] = [
        [
            Span(f" {safe(entry.kind, glyphs)}", SEVERITY_STYLE.get(entry.severity, "")),
            Span(f"  {safe(entry.run, glyphs)} {safe(entry.whose, glyphs)}", "title"),
            Span(f"  {safe(where, glyphs)}", "dim"),
            Span("  (Enter)", "dim"),
        ],
        *([Span("  "), *line] for line in wrap(safe(entry.message, glyphs), inner)),
    ]
    if entry.by_line:
        return lines + _by_line(entry, inner, glyphs)
    facts = [(name, text) for name, text in entry.body if "\n" not in text]
    told = "  ".join(f"{name}={text}" for name, text in facts)
    lines += [[Span("  "), *line] for line in wrap(safe(told, glyphs), inner, "dim") if told]
    for name, text in entry.body:
        if "\n" in text:
            lines.append([Span(f"  {safe(name, glyphs)}", "key")])
            lines += [_stack_line(line, glyphs) for line in text.splitlines()]
    return lines


def _by_line(entry: Entry, width: int, glyphs: Glyphs) -> list[Line]:
    lines: list[Line] = []
    for name, text in entry.body:
        if text.endswith("\n"):
            lines.append([Span(f"  {safe(text.rstrip(), glyphs)}", "dim")])
            continue
        for index, line in enumerate(wrap(safe(text, glyphs), max(width - 10, 10))):
            lines.append([Span(f"  {name if index == 0 else '':<9}", "key"), *line])
    return lines


def _stack_line(text: str, glyphs: Glyphs) -> Line:
    """Frames stand out from the code below them."""
    shown = safe(text, glyphs)
    style = "accent" if shown.lstrip().startswith("File ") else ""
    return [Span(f"  {shown}", style)]


def neighbour(found: Sequence[Event], path: str, offset: int, *, forward: bool) -> Event | None:
    """The next event (or the one before) of a file from a byte on."""
    there = sorted(
        (event for event in found if event.position.path == path),
        key=lambda event: event.position.offset,
    )
    if forward:
        return next((event for event in there if event.position.offset > offset), None)
    return next((event for event in reversed(there) if event.position.offset < offset), None)
