"""Parts of the snapshot as JSON, and the landing page as HTML."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from html import escape
from typing import TypeAlias

from ldlm_monitor.model.view import Snapshot

RESOURCES = ("runs", "alerts", "incidents", "events")

Redact: TypeAlias = Callable[[str], str]

_WITH = {"runs": {"monitor"}, "alerts": {"transitions"}}
"""Fields of the snapshot that a resource contains beside its own."""
_LINKS = ("/metrics", "/-/healthy", "/-/ready", *(f"/api/v1/{name}" for name in RESOURCES))
_CACHED = 16384
_CACHED_LENGTH = 400
"""Characters of the longest text that is cached: together some MB at most."""
_SHOWN = 200
"""Characters of a run's name on the landing page."""


def resource(snapshot: Snapshot, name: str, redact: Redact) -> bytes:
    """One of RESOURCES with the snapshot's `version` and `at`, as a JSON object."""
    parts = {"version", "at", name} | _WITH.get(name, set())
    return encoded(snapshot.model_dump(include=parts), redact)


def tag(snapshot: Snapshot, name: str) -> str:
    """An ETag (RFC 9110, 8.8.3) of a resource: it changes with the content.

    Events are added and dropped at the ends of their list only. The time is part of the other
    tags because versions start again with each daemon.
    """
    if name == "events" and snapshot.events:
        ends = snapshot.events[0].position, snapshot.events[-1].position
        return f'"{len(snapshot.events)}-{hash(ends)}"'
    return f'"{snapshot.version}-{snapshot.at}"'


def cached(redact: Redact) -> Redact:
    """`redact` with a cache: most short texts come again with each request."""
    short = lru_cache(maxsize=_CACHED)(redact)
    return lambda text: short(text) if len(text) <= _CACHED_LENGTH else redact(text)


def encoded(document: Mapping[str, object], redact: Redact) -> bytes:
    """`document` as JSON.

    Non-finite numbers are the strings "NaN", "Infinity" and "-Infinity". Every text passes
    through `redact`, since it may come from a log.
    """
    return json.dumps(_plain(document, redact), allow_nan=False).encode("ascii")


def _plain(value: object, redact: Redact) -> object:
    """`value` without anything that JSON cannot express."""
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
    """HTML for a person who opens the port in a browser: the runs, and links."""
    runs = "".join(
        f"<li>{_shown(redact(run.name))}: {_shown(run.state)}, {_shown(run.headline)}"
        f"{'' if run.step is None else f', step {run.step}'}</li>"
        for run in snapshot.runs
    )
    links = "".join(f'<li><a href="{link}">{link}</a></li>' for link in _LINKS)
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8"><title>ldlm-monitor</title></head>'
        f"<body><h1>ldlm-monitor</h1><h2>Runs</h2><ul>{runs or '<li>none yet</li>'}</ul>"
        f"<h2>Pages</h2><ul>{links}</ul></body></html>\n"
    ).encode("utf-8", "replace")


def _shown(text: str) -> str:
    text = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    return escape("".join(char if char.isprintable() else "\ufffd" for char in text))
