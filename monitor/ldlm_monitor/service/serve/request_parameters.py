"""The parameters of a request to Prometheus' API, from its URL and its form, as values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn, Self
from urllib.parse import parse_qs

from starlette.requests import Request

from ldlm_promrules.query_answers import duration, moment

FORM = "application/x-www-form-urlencoded"
MAX_FIELDS = 1000  # parameters of a request. A choice: more than clients send, few to read


class QueryError(Exception):
    """An answer of Prometheus' API with an error; `kind` is its `errorType`."""

    def __init__(self, text: str, kind: str = "bad_data") -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Parameters:
    """The values of each parameter, those of the form first, and the parts of the `path`.

    `until`: when the answer is due, on the monotonic clock.

    Every method raises `QueryError` if a value has the wrong form, or is missing without a default.
    """

    given: Mapping[str, list[str]]
    path: Mapping[str, str]
    until: float

    @classmethod
    def of(cls, request: Request, until: float) -> Self:
        """The parameters of a request whose body was read."""
        query, form = request.url.query, ""
        if request.headers.get("content-type", "").partition(";")[0].strip() == FORM:
            form = request.state.body.decode("utf-8", "replace")
        try:
            found = parse_qs("&".join(filter(None, (form, query))), True, max_num_fields=MAX_FIELDS)
        except ValueError:
            raise QueryError(f"at most {MAX_FIELDS} parameters") from None
        return cls(found, request.path_params, until)

    def refuse(self, name: str, reason: str) -> NoReturn:
        """Raise the error of a parameter."""
        raise QueryError(f'invalid parameter "{name}": {reason}')

    def all(self, name: str) -> list[str]:
        """Each value of a parameter that may be repeated."""
        return self.given.get(name, [])

    def text(self, name: str, default: str | None = None) -> str:
        """The first value."""
        found = self.given.get(name)
        if found:
            return found[0]
        if default is None:
            self.refuse(name, "it is missing")
        return default

    def time(self, name: str, default: float | None = None) -> float:
        """Unix seconds, given as such or as RFC 3339."""
        return self._read(name, default, moment, "timestamp")

    def duration(self, name: str, default: float | None = None) -> float:
        """Seconds, given as such or as a duration such as `1m30s`."""
        return self._read(name, default, duration, "duration")

    def _read(
        self, name: str, default: float | None, read: Callable[[str], float], what: str
    ) -> float:
        text = self.text(name, None if default is None else "")
        if not text and default is not None:
            return default
        try:
            return read(text)
        except ValueError:
            self.refuse(name, f"cannot parse {text[:80]!r} to a valid {what}")

    def count(self, name: str) -> int:
        """A number from 0 on, which is the default."""
        text = self.text(name, "0")
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            self.refuse(name, f"cannot parse {text[:80]!r} to a number from 0 on")
        return int(text)
