"""The one line for a setting that cannot be used: its source, its key as written, a remedy."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from ldlm_monitor.config.policy import Policy
from ldlm_monitor.config.settings import ENV_PREFIX, SECTIONS, Settings, is_secret
from ldlm_monitor.model.errors import ConfigError

Values: TypeAlias = Mapping[str, Any]
Sources: TypeAlias = tuple[tuple[str, Values], ...]
"""Pairs of a name (`FLAG`, `ENVIRONMENT`, the file's path) and its values, the strongest first."""
FLAG = "flag"
ENVIRONMENT = "environment"
_SHOWN = 60
"""Characters of a wrong value that are repeated: enough to recognise it, and still one line."""
_WITH_PASSWORDS = frozenset({"alertmanager.urls", "slack.api_url"})
"""Not repeated either: a user may have written a password into such a URL."""
_COMPLAINTS = {
    "bool_parsing": "should be true or false",
    "bool_type": "should be true or false",
    "float_parsing": "should be a number",
    "float_type": "should be a number",
    "string_type": "should be text",
    "path_type": "should be a path",
    "tuple_type": "should be a list",
    "dict_type": "should be a table",
    "model_type": "should be a table",
    "missing": "is missing",
}


def complaint(error: ErrorDetails, sources: Sources) -> ConfigError:
    """pydantic's error as a ConfigError that names the source and a remedy."""
    keys = [str(part) for part in error["loc"]]
    source = next((name for name, values in sources if _contains(values, keys)), ENVIRONMENT)
    section = keys[0] if keys[0] in SECTIONS and len(keys) > 1 else ""
    depth = 2 if section else 1
    fields = (SECTIONS[section] if section else Settings).model_fields
    key, rest = ".".join(keys[:depth]), [part for part in keys[depth:] if part != "[key]"]
    inner = "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in rest)
    where = _spelled(source, key) + inner
    if error["type"] == "extra_forbidden":
        what = "unknown key"
        owner = _spelled(source, key) + inner.removesuffix(f".{keys[-1]}") if rest else section
        names = tuple(Policy.model_fields if rest else fields)
        remedy = _known(source, owner, keys[-1], names)
    else:
        field = fields[keys[depth - 1]]
        what = _complaint(error, repeat=not is_secret(field) and key not in _WITH_PASSWORDS)
        remedy = f"for example {_example(source, key, field)}"
    if source not in (FLAG, ENVIRONMENT):
        where = f"{source}: {where}"
    return ConfigError(what, where=where, remedy=remedy)


def _contains(values: object, keys: list[str]) -> bool:
    """Whether a source gave the value; what is inside a list or a scalar came with it."""
    for key in keys:
        if not isinstance(values, Mapping):
            return True
        if key not in values:
            return False
        values = values[key]
    return True


def _known(source: str, owner: str, name: str, names: tuple[str, ...]) -> str:
    def spelled(known: str) -> str:
        return _spelled(source, f"{owner}.{known}" if owner else known)

    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {spelled(close[0])}?"
    return f"known: {', '.join(spelled(known) for known in sorted(names))}"


def _spelled(source: str, key: str) -> str:
    if source == FLAG:
        return "--" + key.replace(".", "-").replace("_", "-")
    if source == ENVIRONMENT and not key.startswith(ENV_PREFIX):
        return ENV_PREFIX + key.replace(".", "_").upper()
    return key


def _complaint(error: ErrorDetails, *, repeat: bool) -> str:
    text = _COMPLAINTS.get(error["type"], error["msg"].removeprefix("Value error, "))
    text = text.removeprefix("Input ")
    if not repeat or error["type"] == "missing":
        return text
    value = error["input"]
    shown = value if isinstance(value, str) else _toml(value)
    return f'"{shown[:_SHOWN]}" {text}'


def _example(source: str, key: str, field: FieldInfo) -> str:
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
        name, inner = next(iter(field.annotation.model_fields.items()))
        example = _example(source, f"{key}.{name}", inner)
        return example if source == ENVIRONMENT else f"[{key}] and below it {example}"
    value = field.examples[0] if field.examples else field.default
    name = _spelled(source, key)
    if source in (FLAG, ENVIRONMENT):
        return f"{name}{' ' if source == FLAG else '='}{_plain(value)}"
    return f"{name.rpartition('.')[2]} = {_toml(value)}"


def _plain(value: object) -> str:
    if isinstance(value, list):
        return os.pathsep.join(str(item) for item in value)
    if isinstance(value, dict):
        return ",".join(f"{name}={item}" for name, item in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


def _toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(item)}" for name, item in value.items()) + " }"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"'{value}'" if '"' in value else f'"{value}"'
    return str(value)
