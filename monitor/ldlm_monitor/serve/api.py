"""`/api/v1`: parts of the snapshot as JSON, and the landing page."""

import json
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from html import escape
from typing import TypeAlias

from ldlm_monitor.model.view import Snapshot

RESOURCES = ("runs", "alerts", "incidents", "events")
WITH = {"runs": {"monitor"}, "alerts": {"transitions"}}
"""What a resource carries beside its own: how alerts began and ended, how the monitor does."""
LINKS = ("/metrics", "/-/healthy", "/-/ready", *(f"/api/v1/{name}" for name in RESOURCES))

Redact: TypeAlias = Callable[[str], str]

_REMEMBERED = 16384
_SHORT = 400
"""Characters of a text that is remembered."""
_SHOWN = 200
"""Characters of a run's name on the landing page."""


def resource(snapshot: Snapshot, name: str, redact: Redact) -> bytes:
    """One of RESOURCES with the snapshot's `version` and `at`, as a JSON object.

    Non-finite numbers are the strings "NaN", "Infinity" and "-Infinity"; every
    text passes through `redact`, since it may come from a log.
    """
    parts = {"version", "at", name} | WITH.get(name, set())
    return encoded(snapshot.model_dump(include=parts), redact)


def tag(snapshot: Snapshot, name: str) -> str:
    """An ETag (RFC 9110, 8.8.3) of a resource: equal where its content is.

    Events only come and go at the ends of their list; versions begin anew with the daemon.
    """
    if name == "events" and snapshot.events:
        ends = snapshot.events[0].position, snapshot.events[-1].position
        return f'"{len(snapshot.events)}-{hash(ends)}"'
    return f'"{snapshot.version}-{snapshot.at}"'


def remembering(redact: Redact) -> Redact:
    """`redact`, which need not look at the same short text again and again."""
    known = lru_cache(maxsize=_REMEMBERED)(redact)
    return lambda text: known(text) if len(text) <= _SHORT else redact(text)


def encoded(document: Mapping[str, object], redact: Redact) -> bytes:
    """`document` as JSON, by the rules of `resource`."""
    return json.dumps(_plain(document, redact), allow_nan=False).encode("ascii")


def _plain(value: object, redact: Redact) -> object:
    """`value` with nothing in it that JSON cannot say."""
    match value:
        case str():
            return redact(value.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {_plain(key, redact): _plain(item, redact) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item, redact) for item in value]
        case _:
            return value


def landing_page(snapshot: Snapshot, redact: Redact) -> bytes:
    """HTML for a person who opened the port in a browser: the runs, and where to go."""
    runs = "".join(
        f"<li>{_shown(redact(run.name))}: {_shown(run.state)}, {_shown(run.headline)}"
        f"{'' if run.step is None else f', step {run.step}'}</li>"
        for run in snapshot.runs
    )
    links = "".join(f'<li><a href="{link}">{link}</a></li>' for link in LINKS)
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8"><title>ldlm-monitor</title></head>'
        f"<body><h1>ldlm-monitor</h1><h2>Runs</h2><ul>{runs or '<li>none yet</li>'}</ul>"
        f"<h2>Pages</h2><ul>{links}</ul></body></html>\n"
    ).encode("utf-8", "replace")


def _shown(text: str) -> str:
    text = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    return escape("".join(char if char.isprintable() else "\ufffd" for char in text))
