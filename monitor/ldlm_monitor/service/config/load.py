"""Settings from flags, environment and file; of these three, the one named first prevails.

The error for an unusable value is one line: the source, the key as spelled there, a remedy.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from ldlm_monitor.base.errors import ConfigError
from ldlm_monitor.service.config.settings import SECTIONS, Settings, is_secret
from ldlm_monitor.service.notify.policy import StreamPolicy
from ldlm_monitor.service.notify.receivers import RECEIVERS

ENV_PREFIX = "LDLM_"  # begins the name of every setting's environment variable
DEFAULT_FILE = Path("ldlm-monitor.toml")  # in the working directory
_MOVED = ("route", "inhibit_rules", "time_intervals")
"""Tables of earlier versions, refused with a hint to what replaces them."""
Values: TypeAlias = Mapping[str, Any]
Sources: TypeAlias = tuple[tuple[str, Values], ...]
"""Pairs of a source (`_FLAG`, `_ENVIRONMENT`, a path) and its values; an earlier pair prevails."""
# Names of the two sources that are no file; an error shows a setting as its source spells it.
_FLAG, _ENVIRONMENT = "flag", "environment"
_SHOWN = 60
"""Characters of a wrong value that an error shows: a choice; fewer hide it, more wrap the line."""
_NEAR = 0.85
"""difflib's ratio from which a variable is a mistyped one, with the prefix: one letter wrong or
missing. Less would refuse variables of others, such as LDLM_RUN_DIR."""
_WORDS = {
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
"""pydantic's error types to the monitor's words; other types keep pydantic's message."""


def load(flags: Values, *, path: Path | None = None) -> Settings:
    """Settings from the flags that were given, the environment, and a file.

    `flags`: values by key, of a table in a mapping of its own. `path`: the file; None: the one in
    `LDLM_CONFIG`, otherwise ./ldlm-monitor.toml if it exists. Relative paths in the file start at
    the file's folder. Raises ConfigError for an unusable file, key or value.
    """
    file = _file_to_read(path)
    from_file = _read_file(file) if file else {}
    from_environment = _read_environment()
    merged: dict[str, Any] = {}
    for source in (from_file, from_environment, flags):
        _merge(merged, source)
    try:
        return _with_expectations(Settings(**merged))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        sources = ((_FLAG, flags), (_ENVIRONMENT, from_environment), (str(file), from_file))
        raise _complaint(first, sources) from error


def _with_expectations(found: Settings) -> Settings:
    """The settings, with what their expectations become among the formats and rules."""
    if not found.expect:
        return found
    from ldlm_monitor.judge.core.packaged_rules import packaged_rules
    from ldlm_monitor.service.config.expectations import written

    lines, rules = written(found.expect)
    every = *(found.rules or packaged_rules()), rules
    return found.model_copy(update={"formats": (*found.formats, lines), "rules": every})


def _file_to_read(path: Path | None) -> Path | None:
    asked = path or (Path(text) if (text := os.environ.get("LDLM_CONFIG")) else None)
    return asked or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)


def _read_file(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text("utf-8-sig"))  # some editors write a BOM
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(
            f"is not TOML: {error}", where=str(file), remedy="see https://toml.io for the syntax"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            f"cannot be read ({reason})",
            where=str(file),
            remedy="mend it, or name a TOML file with --config PATH",
        ) from error
    for key in _MOVED:
        if key in values:
            raise _moved(f"{file}: {key}")
    _refuse_secrets(values, file)
    _anchor(values, file.parent)
    return values


def _moved(where: str) -> ConfigError:
    *others, last = (f"[{kind.table}]" for kind in RECEIVERS if issubclass(kind, StreamPolicy))
    return ConfigError(
        "route trees, inhibition and time intervals are Alertmanager's",
        where=where,
        remedy="give them to the Alertmanager of alertmanager.urls, as in"
        " deploy/fleet/alertmanager.yml, or set matchers, min_severity and quiet_hours"
        f" of {', '.join(others)} or {last}",
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
    def anchored(path: object) -> object:
        if isinstance(path, list):
            return [anchored(item) for item in path]
        if not isinstance(path, str) or path in ("", "-") or path.startswith("~"):
            return path
        return str(folder / path)

    tables = [(values, Settings.model_fields)]
    tables += [(values.get(name, {}), model.model_fields) for name, model in SECTIONS.items()]
    for table, fields in tables:
        for key in fields.keys() & table.keys() if isinstance(table, dict) else ():
            annotation = str(fields[key].annotation)
            if key == "files" or "Path" in annotation:
                several = annotation.startswith("tuple") and isinstance(table[key], str)
                table[key] = anchored([table[key]] if several else table[key])


def _read_environment() -> dict[str, Any]:
    """Values of `LDLM_KEY` and `LDLM_TABLE_KEY`, in upper or lower case, that are not empty."""
    values: dict[str, Any] = {}
    for variable, text in os.environ.items():
        prefix, name = variable[: len(ENV_PREFIX)].upper(), variable[len(ENV_PREFIX) :].lower()
        if prefix != ENV_PREFIX or not text:
            continue
        if name.startswith(_MOVED):
            raise _moved(variable)
        section, _, key = name.partition("_")
        if name in Settings.model_fields:
            values[name] = text
        elif section in SECTIONS and isinstance(table := values.setdefault(section, {}), dict):
            table[key] = text
        else:
            _check_not_mistyped(variable)
    return values


def _check_not_mistyped(variable: str) -> None:
    """Raises ConfigError for a variable near a setting's: others may be the training's own."""
    tables = {f"{name}_{key}" for name, model in SECTIONS.items() for key in model.model_fields}
    known = [f"{ENV_PREFIX}{name}".upper() for name in (*Settings.model_fields, *tables, "config")]
    close = difflib.get_close_matches(variable.upper(), known, n=1, cutoff=_NEAR)
    if close and close[0] != variable.upper():
        raise ConfigError("unknown variable", where=variable, remedy=f"did you mean {close[0]}?")


def _merge(into: dict[str, Any], values: Values) -> None:
    for key, value in values.items():
        if isinstance(value, Mapping):
            table = into.get(key)
            into[key] = table = dict(table) if isinstance(table, Mapping) else {}
            _merge(table, value)
        else:
            into[key] = value


def _complaint(error: ErrorDetails, sources: Sources) -> ConfigError:
    keys = [str(part) for part in error["loc"]]
    source = next((name for name, values in sources if _contains(values, keys)), _ENVIRONMENT)
    section = keys[0] if keys[0] in SECTIONS and len(keys) > 1 else ""
    depth = 2 if section else 1
    fields = (SECTIONS[section] if section else Settings).model_fields
    key, rest = ".".join(keys[:depth]), [part for part in keys[depth:] if part != "[key]"]
    inner = "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in rest)
    where = _spelled(source, key) + inner
    if error["type"] == "extra_forbidden":
        what = "unknown key"
        owner = _spelled(source, key) + inner.removesuffix(f".{keys[-1]}") if rest else section
        if rest:  # below a field that holds tables, such as `slack.channels`
            held = fields[keys[depth - 1]].annotation
            tables = (each for each in get_args(held) or (held,) if hasattr(each, "model_fields"))
            fields = next(tables).model_fields
        remedy = _known(source, owner, keys[-1], tuple(fields))
    else:
        field = fields[keys[depth - 1]]
        what = _what(error, repeat=field.repr and not is_secret(field))
        remedy = f"for example {_example(source, key, field)}"
    if source not in (_FLAG, _ENVIRONMENT):
        line = _line(Path(source).read_text("utf-8-sig"), keys)
        where = f"{source}{line}: {where}"
    return ConfigError(what, where=where, remedy=remedy)


def _line(text: str, keys: list[str]) -> str:
    """`:NUMBER` of the line with a key, or with a table above it; "" if it is not spelled so."""
    table, wanted = "", ".".join(keys) + "."
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line):
            table = f"{header[1]}."
        assigned = re.match(r"\s*[\"']?([\w.-]+)[\"']?\s*=", line)
        if table == wanted or (assigned and wanted.startswith(f"{table}{assigned[1]}.")):
            return f":{number}"
    return ""


def _contains(values: object, keys: list[str]) -> bool:
    """Whether a source has the value at `keys`; a list or a scalar has all keys below it."""
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
    if source == _FLAG:
        return "--" + key.replace(".", "-").replace("_", "-")
    if source == _ENVIRONMENT and not key.startswith(ENV_PREFIX):
        return ENV_PREFIX + key.replace(".", "_").upper()
    return key


def _what(error: ErrorDetails, *, repeat: bool) -> str:
    text = _WORDS.get(error["type"], error["msg"].removeprefix("Value error, "))
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
        return example if source == _ENVIRONMENT else f"[{key}] and below it {example}"
    value = field.examples[0] if field.examples else field.default
    if isinstance(value, bool):
        value = not value
    name = _spelled(source, key)
    if source in (_FLAG, _ENVIRONMENT):
        return f"{name}{' ' if source == _FLAG else '='}{_plain(value)}"
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
