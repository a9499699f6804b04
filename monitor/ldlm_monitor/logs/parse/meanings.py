"""What events mean, by the `meanings` of definition files and by their family and role.

A kind of the packaged files has its meaning there. An event of a user's own file carries what that
file says of it in its field `meaning`, as it carries its family and role: so a copy of the event,
also one that was written as JSON, means the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Final

import re2
import yaml
from pydantic import ValidationError

from ldlm_monitor.base.meaning import NOTHING, AccusingKind, Cause, Meaning
from ldlm_monitor.base.records import Event, FieldValue, Scalar
from ldlm_monitor.base.text.yaml_loader import YAML_LOADER
from ldlm_monitor.logs.parse.definitions import (
    PACKAGED,
    KindMeaning,
    MeaningKeys,
    packaged_files,
)

CAUSE_ROLES: Final = frozenset({"root", "evidence"})  # roles of events that can be a cause
_BY_FAMILY: Final[Mapping[str, Cause]] = {
    "scheduler": "external",
    "host": "hardware",
    "nccl": "network",
}
"""The cause that an event can be where its kind has none of its own; of other families: local."""
_NAMING_ROLES: Final = CAUSE_ROLES | {"context", "death"}
"""Roles of events that may accuse another rank."""


@dataclass(frozen=True, slots=True)
class _Case:
    """Changes of a meaning, where fields of the event match the regular expressions of `when`."""

    when: tuple[tuple[str, Any], ...]
    changes: Mapping[str, Any]

    def holds(self, texts: Mapping[str, object]) -> bool:
        return all(
            (text := texts.get(name)) is not None and pattern.search(str(text)) is not None
            for name, pattern in self.when
        )


@dataclass(frozen=True, slots=True)
class _Kind:
    changes: Mapping[str, Any]
    cases: tuple[_Case, ...]


_UNKNOWN: Final = _Kind({}, ())


def meaning_of(event: Event, role: str | None = None) -> Meaning:
    """What an event means; `role` (None: its own) as the judge sees it."""
    fields = event.fields
    role = str(fields.get("role", "")) if role is None else role
    family = str(fields.get("family", ""))
    if isinstance(own := fields.get("meaning"), dict):
        return replace(_meaning(_UNKNOWN, family, role), **_carried(tuple(own.items())))
    found, cases = _known(event.kind, family, role)
    if cases:
        texts = _texts(event)
        for case in cases:
            found = replace(found, **case.changes) if case.holds(texts) else found
    return found


def meaning_of_kind(kind: str, role: str = "root") -> Meaning:
    """What a packaged kind, or an unknown one, means in a role, whatever an event of it says."""
    return _known(kind, "", role)[0]


class CarriedMeaning:
    """What a user's file says of a kind, which its events carry in their field `meaning`.

    Raises `re2.error` for an expression that does not compile.
    """

    def __init__(self, keys: KindMeaning) -> None:
        self._given = keys.model_dump(by_alias=True, exclude_unset=True)
        self._cases = _kind(self._given).cases

    def of(self, event: Event) -> dict[str, Scalar]:
        """The keys that hold for an event; of lists, the items joined by commas."""
        found = {key: self._given[key] for key in self._given if key != "cases"}
        texts = _texts(event)
        for case, given in zip(self._cases, self._given.get("cases", ()), strict=True):
            if case.holds(texts):
                found |= {key: given[key] for key in given if key != "when"}
        if found.get("accuses"):
            found["accuses"] = found["accuses"]["how"]
        return {
            key: ",".join(map(str, value)) if isinstance(value, list | tuple) else value
            for key, value in found.items()
            if value is not None
        }


@lru_cache(maxsize=1024)  # of users' kinds; a forged field may have any text
def _carried(items: tuple[tuple[str, Scalar], ...]) -> Mapping[str, Any]:
    """The changes that a field `meaning` makes; none if it is not one of ours."""
    keys: dict[str, Any] = {key: value for key, value in items if value is not None}
    for name in ("is", "shows", "pause"):
        if isinstance(text := keys.get(name), str):
            keys[name] = text.split(",")
    if "accuses" in keys:
        keys["accuses"] = {"how": keys["accuses"]}
    try:
        MeaningKeys.model_validate(keys)
    except ValidationError:
        return {}
    return _read(keys)


def _texts(event: Event) -> dict[str, FieldValue]:
    return {**event.fields, "severity": event.severity, "message": event.message}


@lru_cache(maxsize=4096)  # kinds are some hundred, but a forged field may have any text
def _known(kind: str, family: str, role: str) -> tuple[Meaning, tuple[_Case, ...]]:
    """What a kind means in a role, and the cases that change it."""
    known = _packaged().get(kind, _UNKNOWN)
    return _meaning(known, family, role), known.cases


def _meaning(kind: _Kind, family: str, role: str) -> Meaning:
    """The meaning without cases. Only some roles can be a cause, and context is no crash."""
    found = replace(NOTHING, **{"cause": _BY_FAMILY.get(family, "local"), **kind.changes})
    causes = _NAMING_ROLES if found.cause == "named" else CAUSE_ROLES
    if role not in causes:
        found = replace(found, cause="none")
    is_context = role == "context" and found.ends == "crashed"
    return replace(found, ends=None) if is_context else found


@cache
def _packaged() -> Mapping[str, _Kind]:
    """The kinds of the packaged files: of each file its part before the events alone."""
    paths = (*packaged_files(), PACKAGED / "made.yml")
    heads = (path.read_bytes().partition(b"\nevents:")[0] for path in paths)
    found: dict[str, _Kind] = {}
    for head in heads:
        if b"\nmeanings:" in head:
            given = yaml.load(head, Loader=YAML_LOADER)["meanings"]
            found |= {kind: _kind(keys) for kind, keys in given.items()}
    return found


def _kind(keys: Mapping[str, Any]) -> _Kind:
    cases = tuple(
        _Case(
            tuple((name, re2.compile(text)) for name, text in case["when"].items()),
            _read({key: value for key, value in case.items() if key != "when"}),
        )
        for case in keys.get("cases", ())
    )
    return _Kind(_read({key: value for key, value in keys.items() if key != "cases"}), cases)


def _read(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a definition file, or of the field `meaning`, as fields of `Meaning`."""
    found: dict[str, Any] = {}
    for key, value in keys.items():
        if key in ("is", "shows"):
            found["words" if key == "is" else key] = frozenset(value)
        elif key == "pause":
            found[key] = tuple(value)
        elif key == "accuses":
            found[key] = AccusingKind(**value)
        else:
            found[key] = value
    return found
