"""The incidents of a run as text: cause, reasons, counts, the lines that matter, what to do."""

import textwrap
from collections.abc import Iterator, Sequence

from ldlm_monitor.model.view import IncidentView, SymptomView
from ldlm_monitor.text.format import duration, utc
from ldlm_monitor.text.sanitize import plain, shorten_path

WIDTH = 80
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
    yield from _wrapped(plain(incident.title), first=f"  {sure:<10}")
    yield from _wrapped(_when(incident))
    if incident.collective is not None:
        collective = incident.collective
        missing = f", missing {collective.missing}" if collective.missing else ""
        name = plain(f"{collective.op} #{collective.seq}", 80)
        yield from _wrapped(f"collective {name}: waiting {collective.waiting}{missing}")
    for reason in incident.root.why:
        yield from _wrapped(f"- {plain(reason)}", hanging=2)
    for claim in incident.claims:
        if claim.agrees is not True:
            said = f"torchelastic blames rank {claim.rank}: {plain(claim.reason)}"
            yield from _wrapped(f"! {said}", hanging=2)
    if incident.events:
        yield from _wrapped(event_counts(incident))
    for line in incident.excerpt:
        yield f"{'':<{_INDENT}}| {plain(line.text, WIDTH - _INDENT - 2)}"
        place = f":{line.position.line}"
        if line.position.path:
            path = shorten_path(plain(line.position.path), WIDTH - _INDENT - 4 - len(place))
            yield f"{'':<{_INDENT}}    {path}{place}"
    if incident.action:
        yield from _wrapped(f"-> {plain(incident.action, 800)}", hanging=3)


def _when(incident: IncidentView) -> str:
    began = incident.root.at if incident.root.at is not None else incident.opened_at
    start = f"began {utc(began)}"
    if incident.ended_at is not None:
        lasted = duration(max(incident.ended_at - began, 0.0))
        return f"{start}, {plain(incident.ended_reason)} after {lasted}"
    return f"{start}, {incident.state}"


def event_counts(incident: IncidentView) -> str:
    """How many, then by kind, the most frequent first, with the ranks that logged it."""
    plural = "" if incident.events == 1 else "s"
    return f"{incident.events} event{plural}: {_counts(incident.symptoms)}"


def _counts(symptoms: Sequence[SymptomView]) -> str:
    counts: dict[str, int] = {}
    ranks: dict[str, str] = {}
    for symptom in symptoms:
        counts[symptom.kind] = counts.get(symptom.kind, 0) + symptom.count
        if symptom.ranks:
            known = ranks.get(symptom.kind)
            ranks[symptom.kind] = symptom.ranks if known is None else f"{known},{symptom.ranks}"
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = [
        f"{plain(kind, 40)} {count}"
        + (f" (ranks {plain(ranks[kind], 60)})" if kind in ranks else "")
        for kind, count in ordered[:SYMPTOMS]
    ]
    return ", ".join([*shown, "…"] if len(ordered) > SYMPTOMS else shown)


def _wrapped(text: str, *, first: str = "", hanging: int = 0) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first or " " * _INDENT,
        subsequent_indent=" " * (_INDENT + hanging),
        break_on_hyphens=False,
    )
