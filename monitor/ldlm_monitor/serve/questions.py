"""GET `/api/v1/series` and `/api/v1/logs`: what a screen asks beyond the snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from ldlm_monitor.model.errors import InputError
from ldlm_monitor.model.queries import MAX_POINTS, LogQuery, Source
from ldlm_monitor.serve.commands import RefusedError

if TYPE_CHECKING:
    from ldlm_monitor.model.view import CurveView

SERIES = "/api/v1/series"
LOGS = "/api/v1/logs"
MAX_QUERY = 8192
"""Characters of a query string."""

_SERIES_KEYS = ("run", "quantity", "start", "end", "points")
_LOG_KEYS = tuple(field.name for field in fields(LogQuery))


def answer(source: Source, path: str, query: str) -> dict[str, Any]:
    """The answer to SERIES or LOGS as a JSON document. Raises `RefusedError`."""
    if len(query) > MAX_QUERY:
        raise RefusedError("414 URI Too Long", f"at most {MAX_QUERY} characters")
    asked = {name: values[-1] for name, values in parse_qs(query).items()}
    known = _SERIES_KEYS if path == SERIES else _LOG_KEYS
    if unknown := sorted(set(asked) - set(known)):
        raise _bad(f"{unknown[0]}: unknown; there are {', '.join(known)}")
    return _series(source, asked) if path == SERIES else _log(source, asked)


def _series(source: Source, asked: Mapping[str, str]) -> dict[str, Any]:
    run, quantity = _text(asked, "run"), _text(asked, "quantity")
    points = _number(asked, "points") or MAX_POINTS
    curve = source.series(run, quantity, _number(asked, "start"), _number(asked, "end"), points)
    if curve is None:
        raise RefusedError("404 Not Found", f"no curve of {quantity[:80]} of run {run[:80]}")
    return {"run": run, "quantity": quantity, **columns_of(curve)}


def columns_of(curve: CurveView) -> dict[str, Any]:
    """The curve as plain lists."""
    return {field.name: list(getattr(curve, field.name)) for field in fields(curve)}


def _log(source: Source, asked: Mapping[str, str]) -> dict[str, Any]:
    level = asked.get("level")
    if level not in (None, "error", "warning", "info"):
        raise _bad("level: should be error, warning or info")
    query = LogQuery(
        path=_text(asked, "path"),
        at=_number(asked, "at"),
        at_line=_number(asked, "at_line"),
        before=_number(asked, "before") or 0,
        after=_number(asked, "after") or 0,
        rank=_number(asked, "rank"),
        level=level,  # type: ignore[arg-type]
        find=asked.get("find", ""),
        bars=_is_set(asked, "bars"),
        backwards=_is_set(asked, "backwards"),
    )
    try:
        return asdict(source.log(query))
    except InputError as problem:
        raise RefusedError("404 Not Found", str(problem)) from None


def _is_set(asked: Mapping[str, str], name: str) -> bool:
    return asked.get(name, "") not in ("", "0", "false")


def _text(asked: Mapping[str, str], name: str) -> str:
    if name not in asked:
        raise _bad(f"{name}: is needed")
    return asked[name]


def _number(asked: Mapping[str, str], name: str) -> int | None:
    text = asked.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise _bad(f"{name}: should be a whole number that is not negative")
    return int(text)


def _bad(why: str) -> RefusedError:
    return RefusedError("400 Bad Request", why)
