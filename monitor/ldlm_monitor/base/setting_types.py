"""Types of setting values: the values that each accepts, and their form in a variable."""

import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

OWN_LABELS = frozenset({"run", "rank", "alertname", "alertstate", "severity", "job", "instance"})
"""Label names that the monitor and Prometheus set themselves; no external label may use them."""

# pydantic searches all installed packages at each start, for code of others that would see what is
# validated here. The name is private: where it is another, there is only the search again.
with suppress(ImportError):
    from pydantic.plugin import _loader

    _loader._plugins = {}


class Section(BaseModel):
    """A table of the configuration file."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True
    )


def from_text(parse: Callable[[str], object]) -> BeforeValidator:
    """A validator that parses text, such as a variable's; other values pass unchanged."""
    return BeforeValidator(lambda value: parse(value) if isinstance(value, str) else value)


def split_commas(text: str) -> list[str]:
    """The parts of a variable's text, split at commas because the parts may contain colons.

    A comma within double quotes is part of a matcher's value.
    """
    parts = re.findall(r'(?:[^,"]|"(?:[^"\\]|\\.)*"|")+', text)
    return [part.strip() for part in parts if part.strip()]


def split_pairs(text: str) -> dict[str, str]:
    """The pairs of a variable such as `evaluating=900,checkpointing=1800`."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    return {name.strip(): value.strip() for name, _, value in pairs}


def parse_json(text: str) -> Any:
    """The value of a variable's JSON, meant to be a table. Raises ValueError if it is no JSON."""
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError("should be a table; in a variable, as JSON") from None


def expanded(path: Path) -> Path:
    """The path with the home folder for `~`; unchanged where that is unknown."""
    return Path(os.path.expanduser(path))


def _check(holds: Callable[[Any], object], should: str) -> Callable[[Any], Any]:
    """A validator: returns the value if `holds(value)` is true, else raises ValueError(should)."""

    def checked(value: Any) -> Any:
        if not holds(value):
            raise ValueError(should)
        return value

    return checked


def _checked_label(name: str) -> str:
    # The names of Prometheus' data model; two leading underscores are reserved there.
    if not re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name) or name.startswith("__"):
        raise ValueError("should be letters, digits and underscores, without a digit or __ first")
    if name in OWN_LABELS:
        raise ValueError("should not be a label that the monitor or Prometheus sets")
    return name


def _checked_listen(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:  # the highest TCP port
        raise ValueError("should be HOST:PORT")
    return value


def _checked_server(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("should be a URL of a host that begins with http:// or https://")
    if parts.username or parts.password:
        raise ValueError("should contain no user or password (Alertmanager: authorization_file)")
    return value


def _checked_base(value: str) -> str:
    if re.search(
        r"[\s<>|\"?#]", _checked_server(value)
    ):  # paths are added, and messages link to it
        raise ValueError("should be a URL without query and fragment")
    return value.rstrip("/")


# A variable separates paths and patterns by os.pathsep, as PATH does.
_LIST = from_text(lambda text: [part for part in text.split(os.pathsep) if part])
# A bool is an int in Python, and `true` would be one second.
_NUMBER = BeforeValidator(_check(lambda value: not isinstance(value, bool), "should be a number"))
# Labels as in RFC 1123, and underscores, which names in private networks contain.
_HOST = _check(
    re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?").fullmatch,
    "should be a host's name, without scheme and port",
)
_DISCOVERY = _check(  # Prometheus reads YAML too, but the monitor writes JSON alone
    lambda path: path.suffix == ".json", "should be a file whose name ends in .json"
)
_SECRET_URL = _check(  # http is accepted too: some receivers stand in the same network
    lambda value: value.get_secret_value().startswith(("https://", "http://")),
    "should be a URL that begins with https:// or http://",
)
Seconds: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False), _NUMBER]
SecondsFromZero: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False), _NUMBER]
Name: TypeAlias = Annotated[str, AfterValidator(_check(str.strip, "should not be blank"))]
UserPath: TypeAlias = Annotated[Path, AfterValidator(expanded)]
Paths: TypeAlias = Annotated[tuple[UserPath, ...], _LIST]
Hosts: TypeAlias = Annotated[tuple[Annotated[str, AfterValidator(_HOST)], ...], _LIST]
Patterns: TypeAlias = Annotated[tuple[str, ...], _LIST]
Listen: TypeAlias = Annotated[str, AfterValidator(_checked_listen)]
Discovery: TypeAlias = Annotated[UserPath, AfterValidator(_DISCOVERY)]
Labels: TypeAlias = Annotated[
    dict[Annotated[str, AfterValidator(_checked_label)], Name], from_text(split_pairs)
]
SecretUrl: TypeAlias = Annotated[SecretStr, AfterValidator(_SECRET_URL)]
Url: TypeAlias = Annotated[str, AfterValidator(_checked_server)]
BaseUrl: TypeAlias = Annotated[str, AfterValidator(_checked_base)]
Urls: TypeAlias = Annotated[tuple[Url, ...], from_text(split_commas)]
