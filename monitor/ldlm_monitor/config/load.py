"""Reads settings from flags, environment and file, in this order of precedence."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource, SettingsError, TomlConfigSettingsSource

from ldlm_monitor.config.complaints import ENVIRONMENT, FLAG, Values, complaint
from ldlm_monitor.config.settings import ENV_PREFIX, SECTIONS, Settings, is_secret
from ldlm_monitor.model.errors import ConfigError

DEFAULT_FILE = Path("ldlm-monitor.toml")
_MOVED = ("route", "inhibit_rules", "time_intervals")
"""Tables of earlier versions, which an Alertmanager has and the policy of a receiver replaces."""


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
        return Settings(**merged)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        sources = ((FLAG, flags), (ENVIRONMENT, from_environment), (str(file), from_file))
        raise complaint(first, sources) from error


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
    _refuse_moved((key for key in _MOVED if key in values), f"{file}: ")
    _refuse_secrets(values, file)
    _anchor(values, file.parent)
    return values


def _refuse_moved(keys: Iterable[str], source: str) -> None:
    for key in keys:
        raise ConfigError(
            "route trees, inhibition and time intervals are Alertmanager's",
            where=f"{source}{key}",
            remedy="give them to the Alertmanager of alertmanager.urls, as in"
            " deploy/fleet/alertmanager.yml, or set matchers, min_severity and quiet_hours"
            " of [slack], [webhook] or [apprise]",
        )


def _refuse_secrets(values: dict[str, Any], file: Path) -> None:
    for section, model in SECTIONS.items():
        table = values.get(section)
        for key, field in model.model_fields.items():
            if is_secret(field) and isinstance(table, dict) and key in table:
                variable = f"{ENV_PREFIX}{section}_{key}".upper()
                raise ConfigError(
                    "a secret does not belong in this file",
                    where=f"{file}: {section}.{key}",
                    remedy=f"set {variable}, or name a file in {section}.{key}_file",
                )


def _anchor(values: dict[str, Any], folder: Path) -> None:
    """Makes the file's relative paths relative to its folder, in place."""

    def anchored(path: object) -> object:
        if isinstance(path, list):
            return [anchored(item) for item in path]
        if not isinstance(path, str) or path in ("", "-") or path.startswith("~"):
            return path
        return str(folder / path)

    tables = [(values, Settings.model_fields)]
    tables += [(values.get(name, {}), model.model_fields) for name, model in SECTIONS.items()]
    for table, fields in tables:
        for key, field in fields.items():
            annotation = str(field.annotation)
            if (
                isinstance(table, dict)
                and key in table
                and (key == "files" or "Path" in annotation)
            ):
                several = annotation.startswith("tuple") and isinstance(table[key], str)
                table[key] = anchored([table[key]] if several else table[key])


def _read_environment() -> dict[str, Any]:
    moved = tuple(f"{ENV_PREFIX}{key}".upper() for key in _MOVED)
    _refuse_moved((name for name in os.environ if name.upper().startswith(moved)), "")
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
