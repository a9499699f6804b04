"""Words a setting that cannot be used: its source, its key as the author wrote it, a remedy."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from ldlm_monitor.config.receivers import (
    Alertmanager,
    Apprise,
    Attach,
    Heartbeat,
    Slack,
    Webhook,
)
from ldlm_monitor.config.routing import InhibitRule, Route, SubRoute
from ldlm_monitor.config.settings import ENV_PREFIX, Settings, Stall
from ldlm_monitor.config.time_intervals import Interval, TimeRange
from ldlm_monitor.model.errors import ConfigError

Values: TypeAlias = Mapping[str, Any]
FLAG = "flag"
ENVIRONMENT = "environment"
_SECTIONS: dict[str, type[BaseModel]] = {
    "stall": Stall,
    "slack": Slack,
    "alertmanager": Alertmanager,
    "webhook": Webhook,
    "apprise": Apprise,
    "heartbeat": Heartbeat,
    "attach": Attach,
    "route": Route,
}
_ENTRIES: dict[str, type[BaseModel]] = {
    "routes": SubRoute,
    "inhibit_rules": InhibitRule,
    "times": TimeRange,
    "time_intervals": Interval,
}
"""What stands in lists of tables."""
_SECRETS = frozenset(
    {
        *("slack.webhook_url", "slack.bot_token", "alertmanager.urls", "webhook.url"),
        *("heartbeat.url", "attach.token"),
    }
)
"""Not repeated where they are wrong: a password may be in them."""
_SHOWN = 60
"""So much of a wrong value is repeated."""

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
    "too_short": "should not be empty",
}


def worded(error: ErrorDetails, sources: tuple[tuple[str, Values], ...]) -> ConfigError:
    """One line for pydantic's complaint.

    `sources` are pairs of a name (`FLAG`, `ENVIRONMENT` or the file's path) and the
    values that it gave, the strongest first.
    """
    keys = [str(part) for part in error["loc"]]
    source = next((name for name, values in sources if _holds(values, keys)), ENVIRONMENT)
    section = keys[0] if keys[0] in _SECTIONS and len(keys) > 1 else ""
    depth = 2 if section else 1
    fields = (_SECTIONS[section] if section else Settings).model_fields
    key, rest = ".".join(keys[:depth]), [part for part in keys[depth:] if part != "[key]"]
    where = _spelled(source, key) + _inner(rest)
    if error["type"] == "extra_forbidden":
        inside = next((_ENTRIES[name] for name in reversed(keys[:-1]) if name in _ENTRIES), None)
        known = inside.model_fields.items() if inside is not None else fields.items()
        names = tuple(field.alias or name for name, field in known)
        section = "" if inside is not None else section
        what, remedy = "unknown key", _known(source, section, keys[-1], names)
    else:
        what = _complaint(error, secret=key in _SECRETS)
        remedy = f"for example {_example(source, key, fields[keys[depth - 1]])}"
    if source not in (FLAG, ENVIRONMENT):
        where = f"{source}: {where}"
    return ConfigError(what, where=where, remedy=remedy)


def _inner(rest: list[str]) -> str:
    """`[0].matchers[1]`, or `[evaluating]`: where in a value something stands."""
    shown, after_number = "", False
    for part in rest:
        shown += f".{part}" if after_number and not part.isdecimal() else f"[{part}]"
        after_number = part.isdecimal()
    return shown


def _holds(values: object, keys: list[str]) -> bool:
    """Whether this source gave the value; inside a list or a scalar, its owner did."""
    for key in keys:
        if not isinstance(values, Mapping):
            return True
        if key not in values:
            return False
        values = values[key]
    return True


def _known(source: str, section: str, name: str, names: tuple[str, ...]) -> str:
    def spelled(known: str) -> str:
        return _spelled(source, f"{section}.{known}" if section else known)

    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {spelled(close[0])}?"
    return f"known: {', '.join(spelled(known) for known in sorted(names))}"


def _spelled(source: str, key: str) -> str:
    if source == FLAG:
        return "--" + key.replace(".", "-").replace("_", "-")
    if source == ENVIRONMENT:
        return ENV_PREFIX + key.replace(".", "_").upper()
    return key


def _complaint(error: ErrorDetails, *, secret: bool) -> str:
    text = _COMPLAINTS.get(error["type"], error["msg"].removeprefix("Value error, "))
    text = text.removeprefix("Input ")
    if secret or error["type"] == "missing":
        return text
    value = error["input"]
    shown = value if isinstance(value, str) else _toml(value)
    return f'"{shown[:_SHOWN]}" {text}'


def _example(source: str, key: str, field: FieldInfo) -> str:
    if key in _SECTIONS:
        name, inner = next(iter(_SECTIONS[key].model_fields.items()))
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
