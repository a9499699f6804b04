"""Reads settings from flags, environment and file, in this order of precedence."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource, SettingsError, TomlConfigSettingsSource

from ldlm_monitor.config.routing import check_routing
from ldlm_monitor.config.settings import ENV_PREFIX, Settings
from ldlm_monitor.config.wording import ENVIRONMENT, FLAG, Values, worded
from ldlm_monitor.model.errors import ConfigError

DEFAULT_FILE = Path("ldlm-monitor.toml")
_SECRETS = (
    ("slack", "webhook_url"),
    ("slack", "bot_token"),
    ("webhook", "url"),
    ("heartbeat", "url"),
    ("attach", "token"),
)


def load(flags: Values, *, path: Path | None = None) -> Settings:
    """Settings from the flags that were given, the environment, and a file.

    `path`: the file (None: `LDLM_CONFIG`, else ./ldlm-monitor.toml where there is
    one); relative paths in it are relative to its folder. Raises ConfigError.
    """
    file = _file_to_read(path)
    from_file = _read_file(file) if file else {}
    from_environment = _read_environment()
    merged: dict[str, Any] = {}
    for source in (from_file, from_environment, flags):
        _merge(merged, source)
    try:
        settings = Settings(**merged)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        sources = ((FLAG, flags), (ENVIRONMENT, from_environment), (str(file), from_file))
        raise worded(first, sources) from error
    check_routing(settings.route, settings.time_intervals, f"{file}: " if file else "")
    return settings


def _file_to_read(path: Path | None) -> Path | None:
    asked = path or (Path(text) if (text := os.environ.get("LDLM_CONFIG")) else None)
    if asked is None:
        return DEFAULT_FILE if DEFAULT_FILE.is_file() else None
    if not asked.is_file():
        what = "is a folder" if asked.is_dir() else "no such file"
        raise ConfigError(what, where=str(asked), remedy="name a TOML file with --config PATH")
    return asked


def _read_file(file: Path) -> dict[str, Any]:
    try:
        values = TomlConfigSettingsSource(Settings, file).toml_data
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"is not TOML: {error}", where=str(file), remedy="see https://toml.io for its form"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            f"cannot be read ({reason})", where=str(file), remedy="mend it or name another file"
        ) from error
    for section, key in _SECRETS:
        table = values.get(section)
        if isinstance(table, dict) and key in table:
            variable = f"{ENV_PREFIX}{section}_{key}".upper()
            raise ConfigError(
                "a secret does not belong in this file",
                where=f"{file}: {section}.{key}",
                remedy=f"set {variable}, or name a file in {section}.{key}_file",
            )
    _anchor(values, file.parent)
    return values


def _anchor(values: dict[str, Any], folder: Path) -> None:
    """Makes the file's relative paths relative to its folder, in place."""

    def anchored(path: object) -> object:
        if not isinstance(path, str) or path in ("", "-") or path.startswith("~"):
            return path
        return str(folder / path)

    for key in ("files", "rules", "formats"):
        if isinstance(values.get(key), str):
            values[key] = [values[key]]
        if isinstance(values.get(key), list):
            values[key] = [anchored(path) for path in values[key]]
    for table, key in (
        (values, "state_dir"),
        (values, "file_sd"),
        (values, "web_config"),
        (values.get("slack"), "webhook_url_file"),
        (values.get("slack"), "bot_token_file"),
        (values.get("alertmanager"), "authorization_file"),
        (values.get("webhook"), "url_file"),
        (values.get("webhook"), "secret_file"),
        (values.get("apprise"), "urls_file"),
        (values.get("heartbeat"), "url_file"),
        *(
            (values.get("attach"), f"{name}_file")
            for name in ("token", "password", "ca", "cert", "key")
        ),
    ):
        if isinstance(table, dict) and key in table:
            table[key] = anchored(table[key])


def _read_environment() -> dict[str, Any]:
    try:
        return EnvSettingsSource(Settings)()
    except SettingsError as error:
        raise ConfigError(
            str(error).splitlines()[0], where="environment", remedy="mend or unset that variable"
        ) from error


def _merge(into: dict[str, Any], values: Values) -> None:
    for key, value in values.items():
        if isinstance(value, Mapping):
            table = into.get(key)
            into[key] = table = dict(table) if isinstance(table, Mapping) else {}
            _merge(table, value)
        else:
            into[key] = value
