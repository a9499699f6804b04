"""The incidents of a run as text: cause, reasons, counts, the lines that matter, what to do."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from ldlm_monitor.model.view import IncidentView, SymptomView
from ldlm_monitor.text.format import counted, duration, utc
from ldlm_monitor.text.sanitize import plain, shorten_path

WIDTH = 80
"""Columns of a terminal that nobody has resized, and of a mail."""
SHOWN = 5
"""More incidents than these of one run are counted, not shown; the newest are."""
SYMPTOMS = 8
"""Kinds of symptoms in a line; the most frequent ones come first."""
_INDENT = 12


def incident_lines(incidents: Sequence[IncidentView]) -> Iterator[str]:
    """The newest incidents, oldest first, within 80 columns. Log text is made harmless."""
    if len(incidents) > SHOWN:
        yield f"  {len(incidents) - SHOWN} earlier ones are not shown"
    for incident in incidents[-SHOWN:]:
        yield from _incident(incident)


def _incident(incident: IncidentView) -> Iterator[str]:
    sure = "unknown" if incident.confidence == "none" else incident.confidence
    yield from wrapped(plain(incident.title), indent=_INDENT, first=f"  {sure:<10}")
    yield from wrapped(_when(incident), indent=_INDENT)
    if incident.collective is not None:
        collective = incident.collective
        missing = f", missing {collective.missing}" if collective.missing else ""
        name = plain(f"{collective.op} #{collective.seq}", 80)
        text = f"collective {name}: waiting {collective.waiting}{missing}"
        yield from wrapped(text, indent=_INDENT)
    for reason in incident.root.why:
        yield from wrapped(f"- {plain(reason)}", indent=_INDENT, hanging=2)
    for claim in incident.claims:
        if claim.agrees is not True:
            said = f"torchelastic blames rank {claim.rank}: {plain(claim.reason)}"
            yield from wrapped(f"! {said}", indent=_INDENT, hanging=2)
    if incident.events:
        yield from wrapped(event_counts(incident), indent=_INDENT)
    for line in incident.excerpt:
        yield f"{'':<{_INDENT}}| {plain(line.text, WIDTH - _INDENT - 2)}"
        place = f":{line.position.line}"
        if line.position.path:
            path = shorten_path(plain(line.position.path), WIDTH - _INDENT - 4 - len(place))
            yield f"{'':<{_INDENT}}    {path}{place}"
    if incident.action:
        yield from wrapped(f"-> {plain(incident.action, 800)}", indent=_INDENT, hanging=3)


def _when(incident: IncidentView) -> str:
    began = incident.root.at if incident.root.at is not None else incident.opened_at
    start = f"began {utc(began)}"
    if incident.ended_at is not None:
        lasted = duration(max(incident.ended_at - began, 0.0))
        return f"{start}, {plain(incident.ended_reason)} after {lasted}"
    return f"{start}, {incident.state}"


def event_counts(incident: IncidentView) -> str:
    """How many, then by kind, the most frequent first, with the ranks that logged it."""
    return f"{counted(incident.events, 'event')}: {_counts(incident.symptoms)}"


def _counts(symptoms: Sequence[SymptomView]) -> str:
    counts: dict[str, int] = {}
    ranks: dict[str, str] = {}
    for symptom in symptoms:
        counts[symptom.kind] = counts.get(symptom.kind, 0) + symptom.count
        if symptom.ranks:
            known = ranks.get(symptom.kind)
            ranks[symptom.kind] = symptom.ranks if known is None else f"{known},{symptom.ranks}"
    ordered = by_count(counts)
    shown = [
        f"{plain(kind, 40)} {count}"
        + (f" (ranks {plain(ranks[kind], 60)})" if kind in ranks else "")
        for kind, count in ordered[:SYMPTOMS]
    ]
    return ", ".join([*shown, "…"] if len(ordered) > SYMPTOMS else shown)


def by_count(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """The most frequent first, then by name."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def wrapped(text: str, *, indent: int = 0, hanging: int = 0, first: str = "") -> list[str]:
    """Lines of at most `WIDTH`; `first` stands in place of the first line's indent."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first or " " * indent,
        subsequent_indent=" " * (indent + hanging),
        break_on_hyphens=False,
    )
