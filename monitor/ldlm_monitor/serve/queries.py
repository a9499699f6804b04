"""The parameters of GET `/api/v1/series` and `/api/v1/logs`, and their answers.

What cannot be answered raises starlette's `HTTPException`: 400 for a bad parameter, 404 for a run,
quantity or file that is not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, cast

from starlette.exceptions import HTTPException

from ldlm_monitor.model.errors import InputError
from ldlm_monitor.model.queries import MAX_POINTS, Level, LogQuery, Source

if TYPE_CHECKING:
    from ldlm_monitor.model.view import CurveView

_SERIES_KEYS = ("run", "quantity", "start", "end", "points")
_LOG_KEYS = tuple(field.name for field in fields(LogQuery))
_LEVELS = (None, "error", "warning", "info")


def series(source: Source, parameters: Mapping[str, str]) -> dict[str, Any]:
    """One curve between two steps, as a JSON document."""
    _check_keys(parameters, _SERIES_KEYS)
    run, quantity = _text(parameters, "run"), _text(parameters, "quantity")
    start, end = _number(parameters, "start"), _number(parameters, "end")
    points = _number(parameters, "points") or MAX_POINTS
    curve = source.series(run, quantity, start, end, points)
    if curve is None:
        raise HTTPException(404, f"no curve of {quantity[:80]} of run {run[:80]}")
    return {"run": run, "quantity": quantity, **columns_of(curve)}


def columns_of(curve: CurveView) -> dict[str, Any]:
    """The curve as plain lists."""
    return {field.name: list(getattr(curve, field.name)) for field in fields(curve)}


def log(source: Source, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Records of a followed file, as a JSON document."""
    _check_keys(parameters, _LOG_KEYS)
    level = parameters.get("level")
    if level not in _LEVELS:
        raise HTTPException(400, "level: should be error, warning or info")
    query = LogQuery(
        path=_text(parameters, "path"),
        at=_number(parameters, "at"),
        at_line=_number(parameters, "at_line"),
        before=_number(parameters, "before") or 0,
        after=_number(parameters, "after") or 0,
        rank=_number(parameters, "rank"),
        level=cast("Level | None", level),
        find=parameters.get("find", ""),
        bars=_is_set(parameters, "bars"),
        backwards=_is_set(parameters, "backwards"),
    )
    try:
        return asdict(source.log(query))
    except InputError as problem:
        raise HTTPException(404, str(problem)) from None


def _check_keys(parameters: Mapping[str, str], known: tuple[str, ...]) -> None:
    if unknown := sorted(set(parameters) - set(known)):
        raise HTTPException(400, f"{unknown[0]}: unknown; there are {', '.join(known)}")


def _is_set(parameters: Mapping[str, str], name: str) -> bool:
    return parameters.get(name, "") not in ("", "0", "false")


def _text(parameters: Mapping[str, str], name: str) -> str:
    if name not in parameters:
        raise HTTPException(400, f"{name}: is needed")
    return parameters[name]


def _number(parameters: Mapping[str, str], name: str) -> int | None:
    text = parameters.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise HTTPException(400, f"{name}: should be a whole number that is not negative")
    return int(text)
