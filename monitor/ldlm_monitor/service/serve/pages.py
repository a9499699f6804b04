"""Parts of the snapshot, curves and slices of logs as JSON.

A query that cannot be answered raises starlette's `HTTPException`: 400 for a bad parameter, 404
for an unknown run, quantity or file.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException

from ldlm_monitor.base.errors import InputError, first_problem
from ldlm_monitor.base.queries import MAX_POINTS, LogQuery, Natural, Source, visible
from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.base.text.sanitize import jsonable

RESOURCES = ("runs", "alerts", "incidents", "events")
"""Fields of the snapshot, each with an endpoint /api/v1/NAME."""

Redact: TypeAlias = Callable[[str], str]  # removes secrets from a text

_WITH = {"runs": {"monitor", "inputs", "reading", "judged_to"}, "alerts": {"transitions"}}
"""Further fields of the snapshot in a resource, whose clients show both."""
_CACHED, _CACHED_LENGTH = 16384, 400
"""Texts that the cache of `redact` holds, and characters of the longest: a choice. Some MB in all
suffice for the labels of thousands of series."""


def parts(name: str) -> set[str]:
    """The fields of the snapshot in one of RESOURCES."""
    return {"version", "at", name} | _WITH.get(name, set())


def resource(snapshot: Snapshot, name: str, redact: Redact) -> bytes:
    """One of RESOURCES with the snapshot's `version` and `at`, as a JSON object."""
    return encoded(snapshot.model_dump(include=parts(name)), redact)


def tag(snapshot: Snapshot, name: str) -> str:
    """An ETag (RFC 9110, 8.8.3) of a resource: it changes with the content.

    Events have their positions in it, because most changes of the version are of no event. Other
    tags contain the time, since each daemon counts versions from 0 again, and how far it has read.
    """
    if name == "events" and snapshot.events:
        return f'"{len(snapshot.events)}-{hash(tuple(each.position for each in snapshot.events))}"'
    return f'"{snapshot.version}-{snapshot.at}-{len(snapshot.runs)}-{snapshot.reading}"'


def cached(redact: Redact) -> Redact:
    """`redact` with a cache of short texts, as most of them are part of every answer."""
    short = lru_cache(maxsize=_CACHED)(redact)
    return lambda text: short(text) if len(text) <= _CACHED_LENGTH else redact(text)


def encoded(document: Mapping[str, object], redact: Redact) -> bytes:
    """`document` as JSON. Every text passes through `redact`, since it may come from a log."""
    return json.dumps(jsonable(document, redact), allow_nan=False).encode("ascii")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesQuery:
    """The parameters of `/api/v1/series`: steps `start` to `end` (None: all), `points` at most."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    run: str
    quantity: str
    start: Natural | None = None
    end: Natural | None = None
    points: Natural = MAX_POINTS


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamQuery:
    """The parameter of `/api/v1/stream`: also transitions after the time `since` (Unix seconds)."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    since: Annotated[float, Field(allow_inf_nan=False)] | None = None


_T = TypeVar("_T")
_SERIES, _LOGS = TypeAdapter(SeriesQuery), TypeAdapter(LogQuery)
_STREAM = TypeAdapter(StreamQuery)


def _parsed(query: TypeAdapter[_T], parameters: Mapping[str, str]) -> _T:
    try:
        return query.validate_strings(dict(parameters))
    except ValidationError as error:
        raise HTTPException(400, ": ".join(first_problem(error))) from None


def since(parameters: Mapping[str, str]) -> float | None:
    """The time from which a stream begins. Raises HTTPException."""
    return _parsed(_STREAM, parameters).since


def series(source: Source, parameters: Mapping[str, str]) -> dict[str, Any]:
    """One curve between two steps, as a JSON document. Raises HTTPException."""
    query = _parsed(_SERIES, parameters)
    curve = source.series(query.run, query.quantity, query.start, query.end, query.points)
    if curve is None:
        # A client may send names of any length; 80 characters of each make one line.
        raise HTTPException(404, f"no curve of {query.quantity[:80]} of run {query.run[:80]}")
    columns = {field.name: list(getattr(curve, field.name)) for field in fields(curve)}
    return {"run": query.run, "quantity": query.quantity, **columns}


def log(redact: Redact, source: Source, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Records of a followed file, as a JSON document. Raises HTTPException."""
    try:
        return asdict(visible(source, _parsed(_LOGS, parameters), redact))
    except InputError as problem:
        raise HTTPException(404, str(problem)) from None
