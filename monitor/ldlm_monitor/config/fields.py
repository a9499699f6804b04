"""The types of settings: how a value is read from a file or the environment, and checked."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from ldlm_monitor.config.receivers import UserPath

OWN_LABELS = frozenset({"run", "rank", "alertname", "alertstate", "severity", "job", "instance"})
"""What series and alerts carry anyway, so that no external label may be called so."""
Phase: TypeAlias = Literal["starting", "running", "evaluating", "checkpointing"]
"""The states of a run in which a pause can be a stall."""


def _split_list(value: object) -> object:
    """An environment variable lists its paths as PATH does."""
    return [part for part in value.split(os.pathsep) if part] if isinstance(value, str) else value


def _split_pairs(value: object) -> object:
    """`evaluating=900,checkpointing=1800` of an environment variable."""
    if not isinstance(value, str):
        return value
    pairs = [part.partition("=") for part in value.split(",") if part.strip()]
    return {name.strip(): text.strip() for name, _, text in pairs}


def _checked_number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("should be a number")
    return value


def _checked_name(value: str) -> str:
    if not value.strip():
        raise ValueError("should not be blank")
    return value


def _checked_label(name: str) -> str:
    # The names of Prometheus' data model; two underscores are its own.
    if not re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name) or name.startswith("__"):
        raise ValueError("should be a label's name: letters, digits and underscores")
    if name in OWN_LABELS:
        raise ValueError("should not be a label that the monitor or Prometheus sets")
    return name


def _checked_discovery(value: Path) -> Path:
    if value.suffix != ".json":
        raise ValueError("should be a file whose name ends in .json")
    return value


def _checked_listen(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError("should be HOST:PORT")
    return value


Seconds: TypeAlias = Annotated[
    float, Field(gt=0, allow_inf_nan=False), BeforeValidator(_checked_number)
]
SecondsFromZero: TypeAlias = Annotated[
    float, Field(ge=0, allow_inf_nan=False), BeforeValidator(_checked_number)
]
Name: TypeAlias = Annotated[str, AfterValidator(_checked_name)]
Paths: TypeAlias = Annotated[tuple[UserPath, ...], BeforeValidator(_split_list)]
Patterns: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_split_list)]
PhaseLimits: TypeAlias = Annotated[dict[Phase, Seconds], BeforeValidator(_split_pairs)]
Listen: TypeAlias = Annotated[str, AfterValidator(_checked_listen)]
Discovery: TypeAlias = Annotated[UserPath, AfterValidator(_checked_discovery)]
Labels: TypeAlias = Annotated[
    dict[Annotated[str, AfterValidator(_checked_label)], Name], BeforeValidator(_split_pairs)
]
